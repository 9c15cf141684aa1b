// A small CTC model with everything in it, and batches for it.
#pragma once

#include <vector>

#include "engine/session.h"
#include "tests/engine/gradient_check.h"

namespace rondo::test {

inline constexpr int32_t small_classes = 5;

// 6 features, two frames at a time, two bidirectional layers with dropout and layer norm.
inline ModelFunction small_model(int hidden) {
  return [hidden](Graph& g) {
    ValueId x = layers::input_frames(g, "features", 6);
    x = layers::stack_frames(g, x, 2);
    x = layers::lstm(
        g, x, "encoder",
        {.hidden = hidden, .layers = 2, .bidirectional = true, .dropout = 0.1, .layer_norm = true});
    const ValueId logits = layers::linear(g, x, "out", small_classes);
    return Outputs{.loss = layers::ctc_loss(g, logits), .prediction = logits};
  };
}

// Batch i is of the given lengths, the first of them i frames longer.
struct SmallBatches {
  std::vector<RandomBatch> storage;
  std::vector<BatchView> views;

  SmallBatches(int n, const std::vector<int32_t>& lengths) {
    Graph g;
    small_model(1)(g);
    storage.reserve(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) {
      const auto u = static_cast<unsigned>(i);
      std::vector<int32_t> longer = lengths;
      longer.front() += i;
      storage.emplace_back(longer, small_classes, u, 2);
      views.push_back(storage.back().view(g, small_classes, u));
      views.back().step_seed = u;
    }
  }
  SmallBatches(const SmallBatches&) = delete;  // the views are of its own storage
  SmallBatches& operator=(const SmallBatches&) = delete;

  BatchCapacity capacity() const {
    BatchCapacity c;
    for (const BatchView& v : views) c = BatchCapacity::merge(c, v.extent());
    return c;
  }
};

// The weights of a session whose memory the host can read.
inline std::vector<float> weights_of(const Session& s) {
  const TensorView w = s.parameters().weights();
  return {w.as<float>(), w.as<float>() + w.numel()};
}

}  // namespace rondo::test
