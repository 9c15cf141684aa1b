// What the tests of sequences cut in time share: models, and what one rank and several give for
// them, on the cpu and on simulated devices.
#pragma once

#include <cmath>
#include <mutex>
#include <vector>

#include "comm/group/process_group.h"
#include "comm/in_process/run_ranks.h"
#include "engine/session.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"
#include "tests/engine/sequence_rank.h"

namespace rondo::test {

inline constexpr int32_t classes = 5;

inline Outputs unidirectional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::stack_frames(g, x, 2);
  x = layers::lstm(g, x, "encoder",
                   {.hidden = 19, .layers = 3, .dropout = 0.3, .layer_norm = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

inline Outputs bidirectional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "lower", {.hidden = 16, .layers = 2, .bidirectional = true});
  x = layers::stack_frames(g, x, 3);
  x = layers::dropout(g, x, "dropout", 0.2);
  x = layers::lstm(g, x, "upper", {.hidden = 12, .bidirectional = true, .projection = 7});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

inline Outputs framewise(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .bidirectional = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::cross_entropy(g, logits, "targets"), logits};
}

template <bool last>
Outputs pooled(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::stack_frames(g, x, 2);
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .bidirectional = true});
  x = last ? layers::last_frame(g, x) : layers::mean_pool(g, x);
  x = layers::dropout(g, layers::tanh(g, layers::linear(g, x, "head", 7)), "dropout", 0.2);
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::cross_entropy(g, logits, "targets"), logits};
}

struct Result {
  std::vector<double> losses;  // by batch and sequence
  std::vector<double> gradients;
  LossTotals totals;
};

// A model's training graph and parameters on a device; the reference kernels in f64.
struct Setup {
  Outputs outputs;  // before the graph, whose making sets it
  Graph graph;
  Device& device;
  Stream stream;
  ThreadPool pool{1};
  Context context;
  Parameters parameters;

  explicit Setup(const ModelFunction& model, DType compute = DType::f32, Device& d = cpu_device())
      : graph(training_graph(model, compute, outputs)),
        device(d),
        stream(d.make_stream()),
        context{backend_of(d, compute), &d, &stream, &pool},
        parameters(graph, d) {
    parameters.initialize(4);
    clear();
  }
  void clear() {
    const TensorView g = parameters.gradients();
    device.fill_bytes(stream, g.data, 0, g.bytes());
    stream.synchronize();
  }
  // Padding of the flat array does not matter: it is zero.
  std::vector<double> gradients() {
    const TensorView g = parameters.gradients();
    return g.dtype == DType::f64 ? read<double>(g) : read<float>(g);
  }

 private:
  static Backend backend_of(const Device& d, DType compute) {
    if (&d != &cpu_device()) return Backend::sim;
    return compute == DType::f64 ? Backend::ref : Backend::cpu;
  }
  template <class T>
  std::vector<double> read(const TensorView& view) {
    std::vector<T> values(static_cast<size_t>(view.numel()));
    device.copy(stream, values.data(), view.data, view.bytes());
    stream.synchronize();
    return {values.begin(), values.end()};
  }
  static Graph training_graph(const ModelFunction& model, DType compute, Outputs& outputs) {
    Graph g;
    g.compute = compute;
    outputs = model(g);
    g.keep(outputs.loss);
    append_backward(g, outputs.loss);
    return g;
  }
};

// The whole batches, one after the other, without sharding.
inline Result run_whole(const ModelFunction& model, DType compute,
                        const std::vector<BatchView>& batches, Device& device = cpu_device()) {
  Setup s(model, compute, device);
  Result r;
  const auto add = [&](const auto& losses) {
    for (const auto loss : losses) {
      r.losses.push_back(static_cast<double>(loss));
      if (std::isfinite(loss)) r.totals.loss += static_cast<double>(loss);
    }
  };
  for (const BatchView& batch : batches) {
    BoundGraph bound(s.graph, s.context, batch.extent(), s.parameters);
    bound.load(batch);
    bound.run();
    const auto n = static_cast<size_t>(bound.live_rows(s.graph.shape(s.outputs.loss)));
    std::vector<double> wide(n);
    std::vector<float> narrow(n);
    if (compute == DType::f64) {
      bound.read(s.outputs.loss, wide.data(), n * sizeof(double));
      add(wide);
    } else {
      bound.read(s.outputs.loss, narrow.data(), n * sizeof(float));
      add(narrow);
    }
  }
  r.gradients = s.gradients();
  return r;
}

// Ranks that share the sequences, each with a device of the kind: the sums of what they give after
// `rounds` runs of the same batches.
inline Result run_sharded(const ModelFunction& model, DType compute, int ranks,
                          const std::vector<BatchView>& batches, int rounds = 1,
                          Device& device = cpu_device()) {
  std::mutex mutex;
  Result r;
  run_ranks(ranks, [&](int rank, Transport& transport) {
    Setup s(model, compute, device);
    const auto group = make_ring_group(transport);
    SequenceRank sequence(s.graph, s.outputs.loss, s.context, *group, {0, ranks}, s.parameters);
    for (int round = 0; round < rounds; ++round) {
      s.clear();
      sequence.run(batches, std::chrono::seconds(60));
    }
    const std::lock_guard lock(mutex);
    const std::vector<double> mine = s.gradients();
    r.gradients.resize(mine.size());
    for (size_t i = 0; i < mine.size(); ++i) r.gradients[i] += mine[i];
    r.totals.loss += sequence.totals().loss;
    r.totals.sequences += sequence.totals().sequences;
    r.totals.frames += sequence.totals().frames;
    r.totals.infeasible += sequence.totals().infeasible;
    if (rank > 0) return;
    for (size_t m = 0; m < batches.size(); ++m) {
      r.losses.insert(r.losses.end(), sequence.losses(m).begin(), sequence.losses(m).end());
    }
  });
  return r;
}

// Sequence by sequence instead of all at once: what the order of sums may change.
struct Apart {
  std::vector<BatchSlice> parts;
  std::vector<BatchView> views;

  Apart(const BatchView& whole, const Graph& shape) {
    std::vector<FrameRange> nothing;
    for (int32_t length : whole.layout->lengths) nothing.push_back({length, length});
    for (size_t n = 0; n < nothing.size(); ++n) {
      std::vector<FrameRange> one = nothing;
      one[n].begin = 0;
      parts.emplace_back(whole, shape, one, 1);
    }
    for (const BatchSlice& part : parts) views.push_back(part.view());
  }
};

inline double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    if (!(d <= worst)) worst = std::isnan(d) ? INFINITY : d;
  }
  return worst;
}

inline Graph shape_of(const ModelFunction& model, DType compute) {
  Graph g;
  g.compute = compute;
  model(g);
  return g;
}

}  // namespace rondo::test
