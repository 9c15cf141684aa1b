// parallel.sync: ranks that share every update, or never wait.
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/async/async_ranks.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"
#include "tests/rank_check.h"
#include "tests/train/observed_run.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

Config config_of(const TrainingCorpus& corpus, const std::string& name, Sync sync, int every) {
  Config c = corpus.config(name);
  c.data.dev.clear();
  c.data.sorta_grad = false;
  c.training.max_steps = 0;
  c.training.epochs = 3;
  c.training.log_every_steps = 1;
  c.parallel.sync = sync;
  c.parallel.sync_every = every;
  return c;
}

// Fields of the steps in a log.
std::vector<nlohmann::json> steps_of(const std::string& directory, int rank = 0) {
  const std::string name = rank == 0 ? "log.jsonl" : str("log.rank-", rank, ".jsonl");
  std::ifstream in(std::filesystem::path(directory) / name);
  std::vector<nlohmann::json> steps;
  for (std::string line; std::getline(in, line);) {
    nlohmann::json entry = nlohmann::json::parse(line);
    if (entry["event"] == "step") steps.push_back(std::move(entry));
  }
  return steps;
}

nlohmann::json state_of(const std::string& directory) {
  return nlohmann::json::parse(bytes_of(newest(directory) / "state.json"));
}

Outputs small_model(Graph& g) {
  const ValueId x = layers::input_frames(g, "features", 3);
  const ValueId y = layers::linear(g, x, "out", 4);
  return {layers::ctc_loss(g, y), y};
}

SessionOptions small_options() {
  SessionOptions o;
  o.threads = 1;
  o.optimizer.kind = OptimizerOptions::sgd;
  o.optimizer.learning_rate = 0.05;
  return o;
}

}  // namespace

TEST_CASE("the learning rate has fallen with the last update, however ranks share the batches",
          "[slow]") {
  // Five batches of two in each epoch, which neither ranks nor accumulation divide.
  std::vector<ColumnUtterance> alike(10);
  for (size_t i = 0; i < alike.size(); ++i) alike[i] = {4, static_cast<double>(i)};
  const ColumnCorpus corpus(alike);
  for (const Sync sync : {Sync::step, Sync::async}) {
    for (const int ranks : {2, 3}) {
      for (const int accumulation : {1, 2}) {
        const std::string mode = sync_names[static_cast<size_t>(sync)];
        CAPTURE(mode, ranks, accumulation);
        Config c = corpus.config(str(mode, ranks, accumulation));
        c.data.batch_frames = 8;
        c.data.sorta_grad = false;
        c.training.accumulation = accumulation;
        c.lr.type = LearningRateType::linear;
        c.lr.final_factor = 0.25;
        c.parallel.sync = sync;
        c.parallel.sync_every = 2;
        require_success(train_on(ranks, c));
        // Of this rank: by themselves each has its own batches.
        const int together = accumulation * (sync == Sync::step ? 1 : ranks);
        const auto updates =
            static_cast<size_t>(c.training.epochs * ((5 + together - 1) / together));
        const auto rates = values_of(log_events(c.training.checkpoint_dir, "step"), "lr");
        REQUIRE(rates.size() == updates);
        CHECK(rates.front() < c.optimizer.learning_rate);
        CHECK(rates.back() == Approx(0.25 * c.optimizer.learning_rate));
        CHECK(state_of(c.training.checkpoint_dir).at("expected_steps") == updates);
      }
    }
  }
}

TEST_CASE("ranks that draw their own batches share out each epoch") {
  const TrainingCorpus corpus(37, 2);
  Config one = config_of(corpus, "one", Sync::step, 1);
  require_success(train_on(1, one));
  const auto batches = steps_of(one.training.checkpoint_dir).size();
  CHECK(batches % 4 != 0);  // so that some ranks have nothing to do at the end of an epoch
  Config c = config_of(corpus, "run", Sync::async, 2);
  require_success(train_on(4, c));
  CHECK(state_of(c.training.checkpoint_dir)["epoch"] == 3);
  CHECK(state_of(c.training.checkpoint_dir)["step_in_epoch"] == 0);
  size_t updates = 0;
  int64_t fewest = 1 << 20, most = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto steps = steps_of(c.training.checkpoint_dir, rank);
    updates += steps.size();
    fewest = std::min<int64_t>(fewest, static_cast<int64_t>(steps.size()));
    most = std::max<int64_t>(most, static_cast<int64_t>(steps.size()));
  }
  CHECK(updates == batches);
  CHECK(fewest < most);
  CHECK(most - fewest <= 3);
}

TEST_CASE("a model learns, in each mode", "[slow]") {
  const TrainingCorpus corpus(120, 24);
  for (Sync sync : {Sync::step, Sync::async}) {
    Config c = config_of(corpus, str("run", static_cast<int>(sync)), sync, 4);
    c.data.dev = corpus.config("").data.dev;
    c.data.batch_frames = 100;
    c.training.epochs = 30;
    c.training.validate_every_steps = 0;
    c.training.log_every_steps = 10;
    c.optimizer.kind = OptimizerOptions::adamw;
    c.optimizer.learning_rate = 0.02;
    require_success(train_on(3, c));
    const double wer = state_of(c.training.checkpoint_dir)["best_metric"];
    INFO("sync " << static_cast<int>(sync) << ": WER " << wer);
    CHECK(wer <= 0.1);
    if (sync != Sync::async) continue;
    // All ranks count: one that the system lets run at another time than the others meets nobody.
    double averaged = 0;
    for (int rank = 0; rank < 3; ++rank) {
      averaged += steps_of(c.training.checkpoint_dir, rank).back()["averaged"].get<double>();
    }
    CHECK(averaged > 0);
  }
}

TEST_CASE("bad data on one rank stop all of them") {
  TrainingCorpus corpus;
  const std::string bad = corpus.spoil_longest();
  Config c = config_of(corpus, "bad", Sync::async, 3);
  c.data.sorta_grad = true;  // it comes last in the first epoch
  const RankOutcome outcome = train_on(3, c);
  for (const auto& e : outcome.errors) CHECK_THAT(message_of(e), Contains(bad));
  const auto kept = list_checkpoints(c.training.checkpoint_dir);
  REQUIRE_FALSE(kept.empty());
  const auto state = state_of(c.training.checkpoint_dir);
  CHECK(state["epoch"] == 0);
}

TEST_CASE("gradients that are never finite stop all ranks, in each mode") {
  const TrainingCorpus corpus;
  for (Sync sync : {Sync::step, Sync::async}) {
    Config c = config_of(corpus, str("run", static_cast<int>(sync)), sync, 3);
    c.optimizer.learning_rate = 1e30;
    c.optimizer.clip_norm = 0;
    c.training.epochs = 100;
    c.training.non_finite_limit = 4;
    const RankOutcome outcome = train_on(2, c);
    for (const auto& e : outcome.errors) {
      CHECK_THAT(message_of(e), Contains("steps in a row had a gradient that is not finite"));
    }
  }
}

TEST_CASE("nobody waits for a rank that sleeps, and it catches up by taking over", "[slow]") {
  constexpr int asleep_at = 30, meanwhile = 150;  // updates of the others while it sleeps
  std::mutex mutex;
  std::vector<nlohmann::json> last(3);
  std::array<std::atomic<int>, 3> updates{};
  run_ranks(3, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    const Ranks ranks(*group, std::chrono::seconds(20));
    Session session(small_model, small_options());
    AsyncRanks async(session.rank_model(), ranks, 1, {.every = 1, .max_staleness = 20});
    RandomBatch random({5, 4, 4}, 3, 4);
    const BatchView batch = random.view(session.training_graph(), 4, 1);
    std::vector<double> ballot(2);
    for (int i = 0; i < 300; ++i) {
      if (rank == 1 && i == asleep_at) {
        // If they waited for it, they would until it gives up.
        const std::array<int, 2> before{updates[0], updates[2]};
        const auto made = [&](size_t other) {
          return updates[2 * other] - before[other] >= std::min(meanwhile, 300 - before[other]);
        };
        const Deadline end = within(std::chrono::seconds(20));
        while (!(made(0) && made(1)) && CommClock::now() < end) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        RANK_CHECK(made(0) && made(1));
      }
      std::fill(ballot.begin(), ballot.end(), 0.0);
      async.enqueue({&batch, 1});
      async.enqueue_update({});
      while (session.in_flight() > 0) session.collect();
      async.meet({false, ballot});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++updates[static_cast<size_t>(rank)];
    }
    async.finish({false, ballot});
    const std::lock_guard lock(mutex);
    nlohmann::json values;
    for (const auto& [name, value] : async.log_values()) values[name] = value;
    last[static_cast<size_t>(rank)] = values;
  });
  INFO(last[0].dump() << "\n" << last[1].dump() << "\n" << last[2].dump());
  CHECK(last[1]["taken_over"].get<double>() >= 1);
  for (size_t rank : {0u, 2u}) CHECK(last[rank]["averaged"].get<double>() > 30);
}

TEST_CASE("settings that do not go together are refused before anything is written") {
  const TrainingCorpus corpus;
  const auto refusal = [&](const std::function<void(Config&)>& change) {
    Config c = config_of(corpus, "refused", Sync::async, 4);
    change(c);
    const std::string message = message_of(train_on(1, c).errors.at(0));
    CHECK_FALSE(std::filesystem::exists(c.training.checkpoint_dir));
    return message;
  };
  CHECK_THAT(refusal([](Config& c) { c.parallel.deterministic = Deterministic::world_invariant; }),
             Contains("\"world_invariant\" and parallel.sync = \"async\" do not go together"));
  CHECK_THAT(refusal([](Config& c) { c.parallel.pipeline = 2; }),
             Contains("parallel.pipeline and ") && Contains("parallel.sync = \"async\""));
  CHECK_THAT(refusal([](Config& c) { c.parallel.divide_optimizer = true; }),
             Contains("parallel.divide_optimizer and parallel.sync = \"async\" do not go"));
  CHECK_THAT(refusal([](Config& c) { c.lr.type = LearningRateType::plateau; }),
             Contains("lr.type = \"plateau\" and parallel.sync = \"async\" do not go together"));
}
