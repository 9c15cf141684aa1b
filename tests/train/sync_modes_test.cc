// parallel.sync: ranks that share every update, average now and then, or never wait.
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/sync/async_synchronizer.h"
#include "engine/sync/local_synchronizer.h"
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

std::vector<float> weights_in(Session& session) {
  const TensorView w = session.parameters().weights();
  return {w.as<float>(), w.as<float>() + w.numel()};
}

}  // namespace

TEST_CASE("block: the outer step is Nesterov's, on the difference since the last average") {
  Session session(small_model, small_options()), plain(small_model, small_options());
  const double rate = 0.8, momentum = 0.6;
  LocalSynchronizer sync(session, Ranks(), 3, {rate, momentum});
  sync.restart();
  RandomBatch batch({5, 4, 4}, 3, 4);
  std::vector<float> at = weights_in(session);
  std::vector<double> v(at.size());
  for (int round = 0; round < 4; ++round) {
    std::copy(at.begin(), at.end(), plain.parameters().weights().as<float>());
    for (int i = 0; i < 3; ++i) {
      const BatchView view = batch.view(session.training_graph(), 4, 1);
      plain.train_step(view);
      sync.accumulate(view, 0, true);
      sync.apply({});
      while (session.in_flight() > 0) session.collect();
      CHECK(sync.meet({}) == (i == 2));
    }
    const std::vector<float> inner = weights_in(plain), got = weights_in(session);
    for (size_t i = 0; i < at.size(); ++i) {
      const double d = static_cast<double>(inner[i]) - at[i];
      v[i] = momentum * v[i] + d;
      CHECK(got[i] == Approx(at[i] + rate * (d + momentum * v[i])).margin(1e-6));
    }
    at = got;
  }
}

TEST_CASE("an average after every step of SGD is the step of one shared batch") {
  // Each rank's batch of 60 frames; or the three of them as three batches of one update.
  const TrainingCorpus corpus(90, 2);
  Config local = config_of(corpus, "local", Sync::local, 1);
  local.model.dropout = 0;
  local.training.clip = 0;
  local.optimizer.momentum = 0;
  local.optimizer.weight_decay = 0;
  Config step = local;
  step.parallel.sync = Sync::step;
  step.training.accumulation = 3;
  step.training.checkpoint_dir = corpus.folder.path("step");
  require_success(train_on(3, local));
  require_success(train_on(1, step));
  const auto expected = weights_of(step.training.checkpoint_dir);
  const auto start = std::vector<float>(expected.size());
  const double apart = distance(weights_of(local.training.checkpoint_dir), expected);
  INFO(apart << " of " << distance(expected, start));
  // Rounding alone: with shares that are off by a tenth it is 1e-2.
  CHECK(apart <= 1e-5 * distance(expected, start));
  CHECK(state_of(local.training.checkpoint_dir)["step"] ==
        state_of(step.training.checkpoint_dir)["step"]);
}

TEST_CASE("the learning rate has fallen with the last update, however ranks share the batches") {
  // Five batches of two in each epoch, which neither ranks nor accumulation divide.
  std::vector<ColumnUtterance> alike(10);
  for (size_t i = 0; i < alike.size(); ++i) alike[i] = {4, static_cast<double>(i)};
  const ColumnCorpus corpus(alike);
  for (const Sync sync : {Sync::step, Sync::local, Sync::block, Sync::async}) {
    for (const int ranks : {2, 3}) {
      for (const int accumulation : {1, 2}) {
        const std::string mode = sync_names[static_cast<size_t>(sync)];
        CAPTURE(mode, ranks, accumulation);
        Config c = corpus.config(str(mode, ranks, accumulation));
        c.data.batch_frames = 8;
        c.data.sorta_grad = false;
        c.training.accumulation = accumulation;
        c.schedule.type = ScheduleType::linear;
        c.schedule.final_factor = 0.25;
        c.parallel.sync = sync;
        c.parallel.sync_every = 2;
        require_success(train_on(ranks, c));
        // Of this rank: by themselves each has its own batches.
        const int together = accumulation * (sync == Sync::step ? 1 : ranks);
        const auto updates =
            static_cast<size_t>(c.training.epochs * ((5 + together - 1) / together));
        const auto rates = values_of(log_events(c.training.checkpoint_dir, "step"), "lr");
        REQUIRE(rates.size() == updates);
        CHECK(rates.front() < c.optimizer.lr);
        CHECK(rates.back() == Approx(0.25 * c.optimizer.lr));
        CHECK(state_of(c.training.checkpoint_dir).at("expected_steps") == updates);
      }
    }
  }
}

TEST_CASE("local and block: the same bits from runs that were cut anywhere ranks meet") {
  const TrainingCorpus corpus(130, 7);
  for (Sync sync : {Sync::local, Sync::block}) {
    const std::string name = sync == Sync::local ? "local" : "block";
    const auto config = [&](const std::string& directory, int64_t steps) {
      Config c = config_of(corpus, name + directory, sync, 3);
      c.data.dev = corpus.config("").data.dev;
      c.training.max_steps = steps;
      c.training.epochs = 100;
      c.training.validate_every_steps = 7;
      c.training.accumulation = 2;
      c.training.ema = 0.9;
      c.optimizer.type = OptimizerType::adamw;
      c.optimizer.lr = 0.01;
      return c;
    };
    require_success(train_on(3, config("whole", 31)));
    // Validation makes the ranks of the whole run meet there too.
    require_success(train_on(3, config("parts", 14)));
    require_success(train_on(3, config("parts", 31), StartFrom::checkpoint));
    const std::filesystem::path whole = newest(corpus.folder.path(name + "whole"));
    const std::filesystem::path parts = newest(corpus.folder.path(name + "parts"));
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const SafetensorsFile a((whole / file).string()), b((parts / file).string());
      REQUIRE(a.tensors().size() == b.tensors().size());
      for (const StoredTensor& t : a.tensors()) {
        INFO(name << " " << file << " " << t.name);
        CHECK(std::ranges::equal(t.bytes, b.at(t.name).bytes));
      }
      const bool outer = sync == Sync::block && file[0] == 'o';
      CHECK((a.find("outer_momentum") != nullptr) == outer);
    }
    // Another number of ranks, or another way to work together, goes on as well.
    require_success(train_on(2, config("parts", 40), StartFrom::checkpoint));
    Config other = config("parts", 50);
    other.parallel.sync = Sync::step;
    require_success(train_on(1, other, StartFrom::checkpoint));
    CHECK(state_of(other.training.checkpoint_dir)["step"] == 50);
  }
}

TEST_CASE("ranks that draw their own batches share out each epoch") {
  const TrainingCorpus corpus(37, 2);
  Config one = config_of(corpus, "one", Sync::step, 1);
  require_success(train_on(1, one));
  const auto batches = steps_of(one.training.checkpoint_dir).size();
  CHECK(batches % 4 != 0);  // so that some ranks have nothing to do at the end of an epoch
  for (Sync sync : {Sync::local, Sync::block, Sync::async}) {
    Config c = config_of(corpus, str("run", static_cast<int>(sync)), sync, 2);
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
}

TEST_CASE("staleness and divergence are logged where ranks average") {
  const TrainingCorpus corpus(100, 2);
  const Config c = config_of(corpus, "run", Sync::local, 5);
  require_success(train_on(2, c));
  const auto steps = steps_of(c.training.checkpoint_dir, 1);
  REQUIRE(steps.size() > 12);
  CHECK(steps[3]["staleness"] == 0);
  CHECK(steps[5]["staleness"] == 5);
  CHECK(steps[5]["divergence"].get<double>() > 0);
  CHECK(steps[5]["divergence"].get<double>() < 0.5);
}

TEST_CASE("a model learns, in each mode") {
  const TrainingCorpus corpus(120, 24);
  for (Sync sync : {Sync::step, Sync::local, Sync::block, Sync::async}) {
    Config c = config_of(corpus, str("run", static_cast<int>(sync)), sync, 4);
    c.data.dev = corpus.config("").data.dev;
    c.data.batch_frames = 100;
    c.training.epochs = 30;
    c.training.validate_every_steps = 0;
    c.training.log_every_steps = 10;
    c.optimizer.type = OptimizerType::adamw;
    c.optimizer.lr = 0.02;
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

TEST_CASE("bad data on one rank stop all of them, in each mode") {
  TrainingCorpus corpus;
  const std::string bad = corpus.spoil_longest();
  for (Sync sync : {Sync::local, Sync::block, Sync::async}) {
    Config c = config_of(corpus, str("bad", static_cast<int>(sync)), sync, 3);
    c.data.sorta_grad = true;  // it comes last in the first epoch
    const RankOutcome outcome = train_on(3, c);
    for (const auto& e : outcome.errors) CHECK_THAT(message_of(e), Contains(bad));
    const auto kept = list_checkpoints(c.training.checkpoint_dir);
    REQUIRE_FALSE(kept.empty());
    const auto state = state_of(c.training.checkpoint_dir);
    CHECK(state["epoch"] == 0);
    if (sync != Sync::async) CHECK(state["step"].get<int>() % 3 == 0);
  }
}

TEST_CASE("gradients that are never finite stop all ranks, in each mode") {
  const TrainingCorpus corpus;
  for (Sync sync : {Sync::step, Sync::local, Sync::async}) {
    Config c = config_of(corpus, str("run", static_cast<int>(sync)), sync, 3);
    c.optimizer.lr = 1e30;
    c.training.clip = 0;
    c.training.epochs = 100;
    c.training.non_finite_limit = 4;
    const RankOutcome outcome = train_on(2, c);
    for (const auto& e : outcome.errors) {
      CHECK_THAT(message_of(e), Contains("steps in a row had a gradient that is not finite"));
    }
  }
}

TEST_CASE("nobody waits for a rank that sleeps, and it catches up by taking over") {
  constexpr int asleep_at = 30, meanwhile = 150;  // updates of the others while it sleeps
  std::mutex mutex;
  std::vector<nlohmann::json> last(3);
  std::array<std::atomic<int>, 3> updates{};
  run_ranks(3, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    const Ranks ranks(*group, std::chrono::seconds(20));
    Session session(small_model, small_options());
    AsyncSynchronizer sync(session, ranks, {.every = 1, .max_staleness = 20});
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
      sync.accumulate(batch, 0, true);
      sync.apply({});
      while (session.in_flight() > 0) session.collect();
      sync.meet({false, false, ballot, 1});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++updates[static_cast<size_t>(rank)];
    }
    sync.finish({false, true, ballot, 1});
    const std::lock_guard lock(mutex);
    nlohmann::json values;
    for (const LogValue& v : sync.log_values()) values[v.name] = v.value;
    last[static_cast<size_t>(rank)] = values;
  });
  INFO(last[0].dump() << "\n" << last[1].dump() << "\n" << last[2].dump());
  CHECK(last[1]["taken_over"].get<double>() >= 1);
  for (size_t rank : {0u, 2u}) CHECK(last[rank]["averaged"].get<double>() > 30);
}

TEST_CASE("settings that do not go together are refused before anything is written") {
  const TrainingCorpus corpus;
  const auto refusal = [&](const std::function<void(Config&)>& change) {
    Config c = config_of(corpus, "refused", Sync::local, 4);
    change(c);
    const std::string message = message_of(train_on(1, c).errors.at(0));
    CHECK_FALSE(std::filesystem::exists(c.training.checkpoint_dir));
    return message;
  };
  CHECK_THAT(refusal([](Config& c) { c.parallel.deterministic = Deterministic::world_invariant; }),
             Contains("\"world_invariant\" and parallel.sync = \"local\" do not go together"));
  CHECK_THAT(refusal([](Config& c) { c.parallel.pipeline = 2; }),
             Contains("a pipeline (parallel.pipeline, ") && Contains("parallel.sync = \"local\""));
  CHECK_THAT(refusal([](Config& c) { c.parallel.shard_optimizer = true; }),
             Contains("parallel.shard_optimizer and parallel.sync = \"local\" do not go"));
  CHECK_THAT(
      refusal([](Config& c) {
        c.parallel.sync = Sync::async;
        c.schedule.type = ScheduleType::plateau;
      }),
      Contains("schedule.type = \"plateau\" and parallel.sync = \"async\" do not go together"));
}
