// Data parallel training of a small model on simulated GPUs.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/group/device_group.h"
#include "engine/rank_model.h"
#include "engine/reduce/device_bucket_sums.h"
#include "engine/session.h"
#include "tests/engine/gradient_check.h"

namespace rondo::test {

inline Outputs device_ranks_model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::linear(g, x, "in", 10);
  x = layers::lstm(g, x, "lower", {.hidden = 8, .bidirectional = true});
  const ValueId logits = layers::linear(g, x, "out", 5);
  return {layers::ctc_loss(g, logits), logits};
}

inline SessionOptions device_ranks_options() {
  SessionOptions o;
  o.device = DeviceKind::sim;
  o.threads = 1;
  o.seed = 4;
  o.optimizer.kind = OptimizerOptions::adamw;
  o.optimizer.learning_rate = 0.02;
  o.optimizer.clip_norm = 1;
  return o;
}

// By step, then by rank.
inline std::vector<RandomBatch> device_ranks_batches(int ranks, int steps) {
  std::vector<RandomBatch> batches;
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      batches.emplace_back(std::vector<int32_t>{9 + rank, 7, 4 + step % 2}, 5,
                           static_cast<unsigned>(10 * step + rank));
    }
  }
  return batches;
}

inline std::vector<float> weights_of(Session& session) {
  const TensorView w = session.parameters().weights();
  return {w.as<float>(), w.as<float>() + w.numel()};
}

// One rank's weights after so many steps, each of two batches of accumulation. The last rank has no
// share of the last batches. The host runs ahead of the device as far as a session lets it.
inline std::vector<float> train_device_rank(ProcessGroup& control, DeviceGroup& sums, int steps,
                                            int64_t bucket_bytes) {
  Graph g;
  device_ranks_model(g);
  const int ranks = control.size(), rank = control.rank();
  auto batches = device_ranks_batches(ranks, 2 * steps);
  Session session(device_ranks_model, device_ranks_options());
  DeviceBucketSums gradients(control, sums, session.context(),
                             session.rank_model().executed_graph(), session.parameters(),
                             bucket_bytes, 1);
  session.set_sums(&gradients);
  const PackedHost nothing = build_packed({});
  const auto settle = [&](size_t left) {
    while (session.in_flight() > left) session.collect();
  };
  for (int step = 0; step < steps; ++step) {
    for (int half = 0; half < 2; ++half) {
      const auto index = static_cast<size_t>((2 * step + half) * ranks + rank);
      BatchView view = batches[index].view(g, 5, static_cast<unsigned>(index));
      if (half == 1) gradients.last_batch();
      if (half == 1 && rank > 0 && rank == ranks - 1) {
        view.layout = &nothing;
      }
      session.enqueue(view);
    }
    gradients.votes()[0] = rank;
    session.enqueue_update();
    RONDO_CHECK(gradients.votes()[0] == ranks * (ranks - 1) / 2, "wrong votes");
    settle(Session::most_in_flight - 3);
  }
  settle(1);
  const StepResult& last = session.collect();
  // Three sequences in each of the two batches, but for the last rank's second one.
  RONDO_CHECK(last.sequences == 6 * ranks - (ranks > 1 ? 3 : 0), last.sequences, " sequences");
  session.set_sums(nullptr);
  return weights_of(session);
}

}  // namespace rondo::test
