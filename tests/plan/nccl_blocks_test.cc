// Gradients' sums beside time loops that keep a GPU's multiprocessors.
#include <algorithm>

#include "kernels/lstm/lstm_blocks.h"
#include "kernels/lstm/lstm_prediction.h"
#include "tests/catch.h"
#include "tests/plan/simple_job.h"

using namespace rondo;
using namespace rondo::plan;
using namespace rondo::test;

namespace {

constexpr double frames = 100;

// Bidirectional layers of 512, on each of two ranks `sequences`.
Job wide_job(int layers, double sequences) {
  Job job;
  job.compute = DType::bf16;
  job.model = [=](Graph& g) {
    ValueId x = layers::input_frames(g, "features", 64);
    layers::LstmOptions o;
    o.hidden = 512;
    o.layers = layers;
    o.bidirectional = true;
    x = layers::lstm(g, x, "encoder", o);
    const ValueId logits = layers::linear(g, x, "output", 16);
    return Outputs{layers::ctc_loss(g, logits), logits};
  };
  job.batches = {{{2 * sequences, frames, 20}, 1}};
  return job;
}

// On each of two GPUs a layer's backward loop takes 1 s, its weight gradients `weights` seconds,
// and a second layer's sum `sum`.
Cluster two_gpus(double weights, double sum) {
  const auto count = [](int layers) {
    return static_cast<double>(Planner(wide_job(layers, 8), simple_cluster(1)).weights());
  };
  Cluster c = simple_cluster(2, {"link", false, 0, 4 * (count(2) - count(1)) / sum});
  c.device.kind = DeviceKind::cuda;
  c.device.costs = {{"other/f32", {}}, {"other/bf16", {}}};
  c.device.costs["lstm_backward/bf16"].step = 1 / frames;
  c.device.costs["lstm_weight_grad/bf16"].call = weights;
  c.device.multiprocessors = 132;
  c.device.sum_blocks = 24;
  c.device.sum_block_bandwidth = c.link.bandwidth / 24;
  return c;
}

// Seconds of the first layer's sum, which is the last.
double first_sum(const Cluster& c) {
  const double first = 2 * 4 * 512 * (64 + 512 + 1);
  return 4 * first / c.link.bandwidth;
}

}  // namespace

TEST_CASE("persistent LSTM kernels keep so many multiprocessors of an H200") {
  const auto hold = [](LstmPhase phase, int directions, int64_t hidden, int64_t sequences,
                       DType dtype = DType::bf16) {
    return lstm_hold(phase, {directions, 64, hidden, 0}, dtype, sequences, 132);
  };
  constexpr LstmPhase forward = LstmPhase::forward, backward = LstmPhase::backward;
  // Clusters of 16 blocks for each direction and 8 sequences, as long as 8 clusters hold all.
  CHECK(hold(backward, 2, 512, 8).multiprocessors == 32);
  CHECK(hold(backward, 2, 512, 32).multiprocessors == 128);
  CHECK(hold(backward, 2, 512, 64).multiprocessors == 128);   // 16 sequences each
  CHECK(hold(backward, 2, 512, 256).multiprocessors == 128);  // and the rest follows
  CHECK(hold(backward, 1, 512, 16).multiprocessors == 32);
  CHECK(hold(forward, 1, 256, 16).multiprocessors == 16);
  CHECK(hold(forward, 1, 200, 16).variant == "cluster_split");
  // The whole grid: 8 cells to a block, or 16.
  CHECK(hold(forward, 1, 1024, 16).multiprocessors == 128);
  CHECK(hold(backward, 2, 1024, 16).multiprocessors == 128);
  CHECK(hold(backward, 2, 640, 16).multiprocessors == 80);
  CHECK(hold(backward, 1, 1024, 16).variant == "grid_cluster");
  CHECK(hold(forward, 1, 512, 16, DType::f32).variant == "grid");
  CHECK(hold(forward, 2, 512, 16, DType::f32).multiprocessors == 128);
  // Launches per step.
  CHECK(hold(forward, 2, 1024, 16, DType::f32).multiprocessors == 0);
  CHECK(hold(forward, 1, 2048, 16).multiprocessors == 0);
  CHECK(lstm_hold(forward, {1, 64, 512, 256}, DType::bf16, 16, 132).multiprocessors == 0);
  // A persistent kernel would take these, and launches per step are quicker.
  CHECK(hold(backward, 2, 512, 1000).multiprocessors == 0);
  CHECK(hold(forward, 2, 1024, 256).multiprocessors == 0);
  CHECK(hold(forward, 2, 512, 64, DType::f32).multiprocessors == 128);
  CHECK(hold(backward, 2, 512, 64, DType::f32).multiprocessors == 0);
}

TEST_CASE("the multiprocessors that are kept are those of the variant that is chosen") {
  int persistent = 0, per_step = 0;
  for (const LstmPhase phase : {LstmPhase::forward, LstmPhase::backward}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const int64_t hidden : {1, 64, 200, 256, 400, 512, 640, 1024, 1025}) {
        for (const int64_t sequences : {1, 16, 32, 64, 256, 1000}) {
          for (const int directions : {1, 2}) {
            for (const int64_t multiprocessors : {132, 114, 64}) {
              const LstmDims dims = {directions, 64, hidden, 0};
              const std::string_view chosen =
                  lstm_quickest({phase, dims, dtype, sequences, LstmRun::both},
                                {90, static_cast<int>(multiprocessors)},
                                [](std::string_view) { return true; })
                      .variant;
              const LstmHold hold = lstm_hold(phase, dims, dtype, sequences, multiprocessors);
              INFO(name_of(dtype) << " H " << hidden << " N " << sequences << " D " << directions
                                  << ": " << chosen);
              const bool steps = chosen == "portable" || chosen == "fused";
              CHECK(hold.variant == (steps ? "" : chosen));
              CHECK((hold.multiprocessors > 0) == !steps);
              CHECK(hold.multiprocessors <= multiprocessors);
              ++(steps ? per_step : persistent);
            }
          }
        }
      }
    }
  }
  CHECK(persistent > 100);
  CHECK(per_step > 100);
}

TEST_CASE("loops that leave too little for a sum: each waits for the other") {
  // 32 sequences: 128 multiprocessors. The third layer's sum begins when the second's loop is over,
  // and the first's loop when that sum is.
  const double weights = 0.5;
  for (const double sum : {2.0, 0.25}) {
    const Cluster c = two_gpus(weights, sum);
    const Planner planner(wide_job(3, 32), c);
    CHECK(planner.held_multiprocessors({2}) == 128);
    const double turn = std::max(weights, sum);
    CHECK(planner.predict({2}).seconds == Approx(3 + weights + 2 * turn + first_sum(c)));
  }
}

TEST_CASE("sums run beside loops that leave enough") {
  const double weights = 0.5, sum = 2;
  const Cluster c = two_gpus(weights, sum);
  // 8 sequences: 32 multiprocessors.
  const Planner few(wide_job(3, 8), c);
  CHECK(few.held_multiprocessors({2}) == 32);
  CHECK(few.blocks_beside_loops({2}) == 0);
  CHECK(few.predict({2}).seconds == Approx(1 + weights + 2 * sum + first_sum(c)));
  // Four blocks are a sixth as fast.
  const Planner many(wide_job(3, 32), c);
  CHECK(many.blocks_beside_loops({2}) == 4);
  Split capped{2};
  capped.nccl_blocks = 4;
  CHECK(many.predict(capped).seconds == Approx(1 + weights + 6 * (2 * sum + first_sum(c))));
  CHECK(describe(capped) ==
        "data 2 x pipeline 1 x sequence 1, 1 micro-batch, at most 4 blocks of NCCL's");
  // Five are one too many.
  capped.nccl_blocks = 5;
  CHECK(many.predict(capped).seconds == Approx(3 + weights + 24 / 5.0 * (2 * sum + first_sum(c))));
  // A CPU's loops keep nothing.
  Cluster cpus = c;
  cpus.device.multiprocessors = cpus.device.sum_blocks = 0;
  const Planner on_cpus(wide_job(3, 32), cpus);
  CHECK(on_cpus.held_multiprocessors({2}) == 0);
  CHECK(on_cpus.predict({2}).seconds == few.predict({2}).seconds);
}

TEST_CASE("NCCL's blocks are capped where that is faster") {
  const auto blocks = [](int layers, double weights, double sum) {
    for (const Prediction& p : Planner(wide_job(layers, 32), two_gpus(weights, sum)).rank()) {
      if (p.split.data == 2) return p.split.nccl_blocks;
    }
    return -1;
  };
  // Sums hide behind the weight gradients; the last one, that nothing hides, would take longer.
  CHECK(blocks(3, 0.5, 0.25) == 0);
  CHECK(blocks(6, 0.01, 0.16) == 4);
}
