// Stages of pipelines on simulated GPUs launch no more steps than their micro-batches need.

#include "comm/in_process/run_ranks.h"
#include "engine/rank_model.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;

Outputs stacked(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "a", {.hidden = 8, .bidirectional = true, .layer_norm = true});
  x = layers::lstm(g, x, "b", {.hidden = 8});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// What the passes of an update gave, and what they took on all ranks.
struct Pass {
  std::vector<std::vector<float>> losses;  // by micro-batch
  double norm = 0;
  int64_t pieces = 0, launches = 0, allocations = 0;
};

// Two stages on simulated GPUs, whose weights stay as they are.
std::vector<Pass> passes_of_stages(int sequence,
                                   const std::vector<std::vector<BatchView>>& updates) {
  std::vector<Pass> all;
  BatchCapacity capacity;
  for (const auto& u : updates) {
    for (const BatchView& b : u) capacity = BatchCapacity::merge(capacity, b.extent());
  }
  SessionOptions o;
  o.device = DeviceKind::sim;
  o.threads = 1;
  o.seed = 4;
  o.optimizer.kind = OptimizerOptions::sgd;
  o.optimizer.learning_rate = 0;
  run_ranks(2 * sequence, [&](int, Transport& transport) {
    const auto group = make_ring_group(transport);
    const Ranks world(*group, std::chrono::seconds(20));
    RankGrid grid(transport, {1, 2, sequence}, std::chrono::seconds(20));
    SplitSettings p;
    p.micro_batches = 2;
    p.placement = "2,2";
    RankModel trainer(stacked, o, p, world, grid, capacity);
    for (const auto& micro_batches : updates) {
      group->barrier().wait();
      const SimCounters before = sim_counters();
      group->barrier().wait();
      const std::vector<float> losses = trainer.accumulate(micro_batches, true).losses;
      trainer.context().stream->synchronize();
      group->barrier().wait();
      const SimCounters after = sim_counters();
      group->barrier().wait();
      // Of the first micro-batch, then of the second; on the rank that has them.
      const auto middle =
          losses.begin() + (losses.empty() ? 0 : micro_batches[0].layout->extent.sequences);
      Pass pass{{{losses.begin(), middle}, {middle, losses.end()}},
                trainer.update().gradient_norm,
                after.pieces - before.pieces,
                after.launches - before.launches,
                after.allocations - before.allocations};
      if (grid.stage_rank() == 1 && grid.shard() == 0) all.push_back(std::move(pass));
    }
  });
  return all;
}

}  // namespace

// A recorded time loop has as many launches as its capacity has frames.
TEST_CASE("short batches of stages on simulated GPUs run in graphs of their own",
          "[slow][pipeline]") {
  Graph g;
  stacked(g);
  RandomBatch large({60, 50}, classes, 1), small(std::vector<int32_t>(5, 12), classes, 2);
  const BatchView views[] = {large.view(g, classes, 1), small.view(g, classes, 2)};
  const std::vector<BatchView> both_large = {views[0], views[0]}, both_small = {views[1], views[1]},
                               mixed = {views[1], views[0]};
  const int sequence = GENERATE(1, 2);
  CAPTURE(sequence);
  const std::vector<Pass> only_large = passes_of_stages(sequence, {both_large});
  const std::vector<Pass> only_small = passes_of_stages(sequence, {both_small});
  // As it is, recorded, launched, of each kind in turn.
  std::vector<std::vector<BatchView>> updates;
  for (int i = 0; i < 3; ++i) updates.insert(updates.end(), {both_large, both_small, mixed});
  const std::vector<Pass> got = passes_of_stages(sequence, updates);
  REQUIRE(got.size() == 9);
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].losses[0] == (i % 3 == 0 ? only_large : only_small)[0].losses[0]);
    CHECK(got[i].losses[1] == (i % 3 == 1 ? only_small : only_large)[0].losses[1]);
    if (i % 3 < 2) CHECK(got[i].norm == (i % 3 == 0 ? only_large : only_small)[0].norm);
    CHECK(got[i].norm == got[i % 3].norm);
    CHECK(got[i].pieces == got[i % 3].pieces);
    CHECK(got[i].allocations == 0);
    // A forward and a backward pass of two micro-batches on two stages. Of each of two shards, six
    // time loops of three directions, CTC's two halves, and what is between them: on the first
    // stage the norm of a layer, its gradient, and weight gradients; on the second nodes in front
    // of CTC, behind it, and weight gradients.
    if (i >= 6) CHECK(got[i].launches == (sequence == 1 ? 2 * 2 + 2 : 2 * 2 * (6 + 2 + 3 + 3)));
  }
  // 60 steps and 16, of a product and the cells in each of two layers, forward and backward. Of
  // each shard 31, the most of 60 frames, and 16, and directions by themselves.
  const int64_t more = sequence == 1 ? (60 - 16) * 2 * 4 : 2 * (31 - 16) * 3 * 4;
  CHECK(got[0].pieces - got[1].pieces == 2 * more);
  CHECK(got[2].pieces - got[1].pieces == more);
}
