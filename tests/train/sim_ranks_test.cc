// The trainer on ranks of simulated GPUs.
#include <catch2/catch.hpp>
#include <cmath>

#include "comm/run_ranks.h"
#include "comm/staged_group.h"
#include "engine/io/checkpoint.h"
#include "engine/parallel/ranks.h"
#include "engine/train/trainer.h"
#include "kernels/simt/sim_device.h"
#include "tests/train/training_corpus.h"

using namespace rondo;
using rondo::test::TrainingCorpus;

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
  const std::string& directory = config.training.checkpoint_dir;
  const auto newest = checkpoint_path(directory, list_checkpoints(directory).back().generation);
  const SafetensorsFile file((newest / "model.safetensors").string());
  std::vector<float> all;
  for (const StoredTensor& tensor : file.tensors()) {
    const auto values = tensor.as<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("ranks on simulated GPUs train as ranks on CPUs do, and go on where they stood") {
  const TrainingCorpus corpus(40, 3);
  const auto config = [&](const std::string& name, int64_t steps) {
    Config c = corpus.config(name);
    c.training.max_steps = steps;
    c.training.validate_every_steps = 0;
    c.training.accumulation = 2;
    c.training.ema = 0.9;
    c.optimizer.type = OptimizerType::adamw;
    c.optimizer.lr = 0.01;
    return c;
  };
  const std::vector<float> cpu = trained(2, DeviceKind::cpu, config("cpu", 6));
  const std::vector<float> sim = trained(2, DeviceKind::sim, config("sim", 6));
  REQUIRE(sim.size() == cpu.size());
  double difference = 0;
  for (size_t i = 0; i < cpu.size(); ++i) {
    const double d = std::abs(static_cast<double>(cpu[i]) - sim[i]);
    if (!(d <= difference)) difference = d;
  }
  INFO("difference " << difference);
  CHECK(difference <= 2e-4);
  trained(2, DeviceKind::sim, config("parts", 3));
  CHECK(trained(2, DeviceKind::sim, config("parts", 6), StartFrom::checkpoint) == sim);
}
