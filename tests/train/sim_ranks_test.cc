// The trainer on ranks of simulated GPUs.
#include <cmath>

#include "comm/group/staged_group.h"
#include "comm/in_process/run_ranks.h"
#include "engine/io/checkpoint.h"
#include "engine/reduce/ranks.h"
#include "engine/train/trainer.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;

namespace {

std::vector<float> trained(int ranks, DeviceKind kind, const Config& config,
                           StartFrom start = StartFrom::scratch) {
  std::FILE* const nowhere = std::fopen("/dev/null", "w");
  const RankOutcome outcome = run_ranks_and_collect(ranks, [&](int, Transport& transport) {
    const auto group = make_ring_group(transport);
    GroupOptions g;
    g.id = 1;
    std::unique_ptr<DeviceGroup> sums;
    if (kind == DeviceKind::sim) {
      sums =
          make_staged_group(sim_device(), make_ring_group(transport, g), std::chrono::seconds(60));
    }
    TrainerOptions o;
    o.start = start;
    o.device = kind;
    o.group = ranks > 1 ? group.get() : nullptr;
    o.sums = sums.get();
    o.out = nowhere;
    train(config, o);
  });
  std::fclose(nowhere);
  rethrow_cause(outcome);
  return weights_of(config.training.checkpoint_dir);
}

Config sim_config(const TrainingCorpus& corpus, const std::string& name, int64_t steps) {
  Config c = corpus.config(name);
  c.training.max_steps = steps;
  c.training.validate_every_steps = 0;
  c.optimizer.ema_decay = 0.9;
  c.optimizer.kind = OptimizerOptions::adamw;
  c.optimizer.learning_rate = 0.01;
  return c;
}

double greatest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(d <= difference)) difference = d;
  }
  return difference;
}

}  // namespace

TEST_CASE("ranks on simulated GPUs train as ranks on CPUs do, and go on where they stood",
          "[slow]") {
  const TrainingCorpus corpus(40, 3);
  const auto config = [&](const std::string& name, int64_t steps) {
    Config c = sim_config(corpus, name, steps);
    c.training.accumulation = 2;
    return c;
  };
  const std::vector<float> cpu = trained(2, DeviceKind::cpu, config("cpu", 6));
  const std::vector<float> sim = trained(2, DeviceKind::sim, config("sim", 6));
  const double difference = greatest_difference(cpu, sim);
  INFO("difference " << difference);
  CHECK(difference <= 2e-4);
  trained(2, DeviceKind::sim, config("parts", 3));
  CHECK(trained(2, DeviceKind::sim, config("parts", 6), StartFrom::checkpoint) == sim);
}

TEST_CASE("world_invariant: the same bits from any number of simulated GPUs", "[slow]") {
  const TrainingCorpus corpus(40, 3);
  const auto config = [&](const std::string& name) {
    Config c = sim_config(corpus, name, 5);
    c.training.accumulation = 2;
    c.parallel.deterministic = Deterministic::world_invariant;
    c.parallel.batch_parts = 4;
    return c;
  };
  const std::vector<float> one = trained(1, DeviceKind::sim, config("one"));
  for (int ranks = 2; ranks <= 4; ++ranks) {
    INFO(ranks << " ranks");
    CHECK(one == trained(ranks, DeviceKind::sim, config(str("ranks", ranks))));
  }
  CHECK(greatest_difference(one, trained(1, DeviceKind::cpu, config("cpu"))) <= 2e-4);
}

TEST_CASE("a divided optimizer gives simulated GPUs the bits of a whole one", "[slow]") {
  const TrainingCorpus corpus(40, 3);
  const auto config = [&](const std::string& name, int64_t steps, bool divided) {
    Config c = sim_config(corpus, name, steps);
    c.training.accumulation = 2;
    c.optimizer.clip_norm = 0;
    c.parallel.divide_optimizer = divided;
    return c;
  };
  for (int ranks : {2, 3}) {
    INFO(ranks << " ranks");
    const auto whole = trained(ranks, DeviceKind::sim, config(str("whole", ranks), 6, false));
    const auto divided = trained(ranks, DeviceKind::sim, config(str("divided", ranks), 6, true));
    CHECK(whole == divided);
    const std::string parts = str("parts", ranks);
    trained(ranks, DeviceKind::sim, config(parts, 3, true));
    CHECK(trained(ranks, DeviceKind::sim, config(parts, 6, true), StartFrom::checkpoint) == whole);
  }
}

TEST_CASE("ranks of simulated GPUs that do not wait average", "[slow]") {
  const TrainingCorpus corpus(40, 3);
  // Without a barrier no two runs are the same; what is shown is that weights arrive.
  Config c = sim_config(corpus, "async", 0);
  c.training.epochs = 2;
  c.training.log_every_steps = 1;
  c.parallel.sync = Sync::async;
  c.parallel.sync_every = 1;
  trained(2, DeviceKind::sim, c);
  const std::string log = bytes_of(std::filesystem::path(c.training.checkpoint_dir) / "log.jsonl");
  const size_t last = log.rfind("\"averaged\":");
  REQUIRE(last != std::string::npos);
  CHECK(std::stoi(log.substr(last + 11)) > 0);
}

TEST_CASE("bad data on one rank stop all simulated GPUs after the last good update", "[slow]") {
  for (bool divided : {false, true}) {
    TrainingCorpus corpus(40, 3);
    const std::string bad = corpus.spoil_longest();
    Config c = sim_config(corpus, "bad", 0);  // from short to long: only the last update is missing
    c.data.dev.clear();
    c.parallel.divide_optimizer = divided;
    CHECK_THROWS_WITH(trained(3, DeviceKind::sim, c), Catch::Matchers::Contains(bad));
    const auto kept = list_checkpoints(c.training.checkpoint_dir);
    REQUIRE(kept.size() == 1);
    CHECK(kept.back().step >= 3);
  }
}

TEST_CASE("pipelines over simulated devices in one process train as one device does", "[slow]") {
  const TrainingCorpus corpus(40, 3);
  const auto config = [&](const std::string& name, int pipeline, int data, int64_t steps) {
    Config c = sim_config(corpus, name, steps);
    c.model.layers = 2;
    c.optimizer.clip_norm = 0.3;
    c.parallel.pipeline = pipeline;
    c.parallel.data = data;
    c.parallel.micro_batches = pipeline > 1 ? 2 : 0;
    if (pipeline > 1) c.parallel.placement = "1,2";
    return c;
  };
  const auto on_sim = [&](int ranks, const Config& c, StartFrom start = StartFrom::scratch) {
    require_success(train_on(ranks, c, start, [](int, Config&, TrainerOptions& o) {
      o.device = DeviceKind::sim;
      o.devices = [transport = o.transport](const std::vector<int>& members, uint16_t id) {
        GroupOptions g;
        g.members = members;
        g.id = id;
        return make_staged_group(sim_device(), make_ring_group(*transport, g),
                                 std::chrono::seconds(60));
      };
    }));
    return stored(newest(c.training.checkpoint_dir), "");
  };
  const std::vector<float> alone = on_sim(1, config("alone", 1, 0, 6));
  // One device whose sums are in other orders.
  double control = 0;
  for (int shards : {2, 3}) {
    Config c = config("control" + std::to_string(shards), 1, 0, 6);
    c.parallel.deterministic = Deterministic::world_invariant;
    c.parallel.batch_parts = shards;
    control = std::max(control, greatest_difference(on_sim(1, c), alone));
  }
  REQUIRE(control > 0);
  REQUIRE(control < 1e-2);
  INFO("control " << control);
  CHECK(greatest_difference(on_sim(2, config("two", 2, 1, 6)), alone) <= 2 * control);
  const std::vector<float> four = on_sim(4, config("four", 2, 2, 6));
  CHECK(greatest_difference(four, alone) <= 2 * control);
  Config divided = config("divided", 2, 2, 6);
  divided.parallel.divide_optimizer = true;
  CHECK(on_sim(4, divided) == four);
  // What they save, they go on from; other devices too.
  on_sim(2, config("parts", 2, 1, 3));
  CHECK(on_sim(2, config("parts", 2, 1, 6), StartFrom::checkpoint) ==
        stored(newest(corpus.folder.path("two")), ""));
  on_sim(2, config("moved", 2, 1, 3));
  require_success(train_on(1, config("moved", 1, 0, 6), StartFrom::checkpoint));
  const double moved = greatest_difference(stored(newest(corpus.folder.path("moved")), ""), alone);
  CHECK(moved <= 2e-4);
}
