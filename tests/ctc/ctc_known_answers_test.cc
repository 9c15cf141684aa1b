// Stored losses and gradients, computed elsewhere: $RONDO_SHARED/data/known_answers/ctc.json.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/base/cpu/parallel.h"
#include "tests/ctc/ctc_problem.h"

namespace rondo::test {
namespace {

constexpr int skip = 77;

std::filesystem::path answers_path() {
  if (const char* shared = std::getenv("RONDO_SHARED")) {
    return std::filesystem::path(shared) / "data/known_answers/ctc.json";
  }
  const char* root = std::getenv("RONDO_SOURCE_ROOT");
  return std::filesystem::path(root ? root : ".") / "../shared/data/known_answers/ctc.json";
}

// Differences found, printed.
int check(const nlohmann::json& c, const Variant& variant, double tolerance, const CtcResult& got) {
  const std::string name = c.at("name").get<std::string>();
  int wrong = 0;
  const auto compare = [&](const char* what, double have, double want) {
    const bool same = std::isinf(want) ? have == want : std::abs(have - want) <= tolerance;
    if (same) return;
    ++wrong;
    std::printf("%s %s: %s is %.9g, expected %.9g\n", name.c_str(), variant.name, what, have, want);
  };
  const bool feasible = c.at("feasible").get<bool>();
  compare("loss", got.loss.at(0),
          feasible ? c.at("loss").get<double>() : std::numeric_limits<double>::infinity());
  size_t i = 0;
  for (const auto& row : c.at("grad")) {
    for (const auto& g : row) compare("gradient", got.grad.at(i++), g.get<double>());
  }
  if (i != got.grad.size()) ++wrong;
  return wrong;
}

int run_all(const nlohmann::json& document) {
  ThreadPool pool(2);
  int wrong = 0, cases = 0;
  for (const auto& c : document.at("cases")) {
    const auto logits = c.at("logits").get<std::vector<std::vector<double>>>();
    CtcProblem p({static_cast<int32_t>(logits.size())}, static_cast<int64_t>(logits.at(0).size()),
                 {c.at("labels").get<std::vector<int32_t>>()});
    p.blank = c.at("blank").get<int32_t>();
    for (size_t t = 0; t < logits.size(); ++t) {
      for (size_t v = 0; v < logits[t].size(); ++v) {
        p.logit(0, static_cast<int32_t>(t), static_cast<int64_t>(v)) = logits[t][v];
      }
    }
    for (const Variant& variant : runnable_ctc_variants()) {
      // Nine decimals are stored.
      wrong += check(c, variant, 2e-9, run_ctc<double>(variant, p, pool));
      wrong += check(c, variant, 1e-5, run_ctc<float>(variant, p, pool));
    }
    ++cases;
  }
  std::printf("%d cases, %d differences\n", cases, wrong);
  return cases == 0 || wrong != 0;
}

int main_impl() {
  const auto path = answers_path();
  std::ifstream file(path);
  if (!file) {
    std::printf("skipped: no %s (set RONDO_SHARED)\n", path.c_str());
    return skip;
  }
  return run_all(nlohmann::json::parse(file));
}

}  // namespace
}  // namespace rondo::test

int main() {
  try {
    return rondo::test::main_impl();
  } catch (const std::exception& e) {
    std::printf("failed: %s\n", e.what());
    return 1;
  }
}
