// What the tests of sequences cut in time share: models, and what one rank gives for them.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/session.h"
#include "tests/engine/gradient_check.h"

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

struct Result {
  std::vector<double> losses;  // by batch and sequence
  std::vector<double> gradients;
  LossTotals totals;
};

// The gradients of one Parameters, without padding of the flat array mattering: it is zero.
inline std::vector<double> gradients_of(const Parameters& p) {
  const TensorView g = p.gradients();
  std::vector<double> out(static_cast<size_t>(g.numel()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = g.dtype == DType::f64 ? g.as<double>()[i] : static_cast<double>(g.as<float>()[i]);
  }
  return out;
}

struct Setup {
  Outputs outputs;  // before the graph, whose making sets it
  Graph graph;
  Stream stream = cpu_device().make_stream();
  ThreadPool pool{1};
  Context context;
  Parameters parameters;

  Setup(const ModelFunction& model, DType compute)
      : graph(training_graph(model, compute, outputs)),
        context{compute == DType::f64 ? Backend::ref : Backend::cpu, &cpu_device(), &stream, &pool},
        parameters(graph, cpu_device()) {
    parameters.initialize(4);
    const TensorView g = parameters.gradients();
    std::memset(g.data, 0, g.bytes());
  }

 private:
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
                        const std::vector<BatchView>& batches) {
  Setup s(model, compute);
  Result r;
  for (const BatchView& batch : batches) {
    Plan plan(s.graph, s.context, batch.extent(), s.parameters);
    plan.load(batch);
    plan.run();
    const auto n = static_cast<size_t>(plan.live_rows(s.graph.shape(s.outputs.loss)));
    const TensorView loss = plan.view(s.outputs.loss);
    for (size_t i = 0; i < n; ++i) {
      r.losses.push_back(compute == DType::f64 ? loss.as<double>()[i]
                                               : static_cast<double>(loss.as<float>()[i]));
      if (std::isfinite(r.losses.back())) r.totals.loss += r.losses.back();
    }
  }
  r.gradients = gradients_of(s.parameters);
  return r;
}

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
