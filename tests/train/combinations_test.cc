// What does not go together, and that users are told.
#include <cstdlib>

#include "engine/train/combinations.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/support/support.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

struct Run {
  Config config;
  TrainerOptions options;
};

void ask_for(Way way, Run& run) {
  ParallelConfig& p = run.config.parallel;
  switch (way) {
    case Way::pipeline:
      p.pipeline = 2;
      break;
    case Way::sequence:
      p.sequence = 2;
      break;
    case Way::timeline:
      run.options.timeline = "timeline.svg";
      break;
    case Way::profile:
      run.options.profile = "trace.json";
      break;
    case Way::tbptt:
      run.config.training.tbptt = 5;
      break;
    case Way::lockstep:
      run.options.lockstep = true;
      break;
    case Way::world_invariant:
      p.deterministic = Deterministic::world_invariant;
      break;
    case Way::divide_optimizer:
      p.divide_optimizer = true;
      break;
    case Way::async:
      p.sync = Sync::async;
      break;
    case Way::plateau:
      run.config.lr.type = LearningRateType::plateau;
      break;
  }
}

std::string refusal(const std::vector<Way>& ways) {
  Run run;
  for (Way way : ways) ask_for(way, run);
  try {
    require_combination(run.config, run.options);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

const std::vector<Way> all_ways = {
    Way::pipeline, Way::sequence,        Way::timeline,         Way::profile, Way::tbptt,
    Way::lockstep, Way::world_invariant, Way::divide_optimizer, Way::async,   Way::plateau};

std::string table() {
  std::string rows = "|  | does not go with | because |\n|---|---|---|\n";
  for (const Refusal& row : refusals()) {
    std::string others;
    for (Way other : row.others) {
      others += str(others.empty() ? "" : "; ", name_of(other));
    }
    rows += str("| ", name_of(row.one), " | ", others, " | ", row.reason, " |\n");
  }
  return rows;
}

}  // namespace

TEST_CASE("every way to run is allowed alone") {
  for (Way way : all_ways) CHECK(refusal({way}) == "");
}

TEST_CASE("two ways that do not go together are refused by both their names, with the reason") {
  for (const Refusal& row : refusals()) {
    for (Way other : row.others) {
      CHECK(refusal({row.one, other}) ==
            str(name_of(row.one), " and ", name_of(other), " do not go together: ", row.reason));
    }
  }
}

TEST_CASE("what goes together goes on going together") {
  CHECK(refusal({Way::pipeline, Way::sequence, Way::divide_optimizer, Way::timeline}) == "");
  CHECK(refusal({Way::sequence, Way::plateau, Way::divide_optimizer}) == "");
  CHECK(refusal({Way::tbptt, Way::world_invariant}) == "");
  CHECK(refusal({Way::tbptt, Way::divide_optimizer}) == "");
  CHECK(refusal({Way::tbptt, Way::async}) == "");
  CHECK(refusal({Way::lockstep, Way::world_invariant, Way::plateau}) == "");
}

TEST_CASE("the table of what does not go together stands in the documentation") {
  const char* root = std::getenv("RONDO_SOURCE_ROOT");
  if (!root) {
    WARN("RONDO_SOURCE_ROOT is not set: docs/settings.md is not compared");
    return;
  }
  const std::filesystem::path path = std::filesystem::path(root) / "docs/settings.md";
  const std::string begin = "<!-- combinations: begin -->\n", end = "<!-- combinations: end -->";
  std::string doc = test::slurp(path);
  const size_t from = doc.find(begin), to = doc.find(end);
  REQUIRE(from != std::string::npos);
  REQUIRE(to != std::string::npos);
  if (std::getenv("RONDO_UPDATE_DOCS")) {
    doc.replace(from + begin.size(), to - from - begin.size(), table());
    test::spit(path, doc);
  }
  INFO("run train_test with RONDO_UPDATE_DOCS=1 to write the table anew");
  CHECK(test::slurp(path).find(begin + table() + end) != std::string::npos);
}
