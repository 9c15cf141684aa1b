// Finite differences against append_backward(), in f64 with the reference kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/graph/bound_graph.h"
#include "engine/layers/layers.h"
#include "kernels/base/cpu/parallel.h"

namespace rondo::test {

// A ragged batch of random features, labels and targets, owning its memory.
struct RandomBatch {
  PackedHost layout;
  std::vector<int32_t> labels, label_offsets = {0};
  std::map<std::string, std::vector<double>> wide;
  std::map<std::string, std::vector<float>> narrow;
  std::map<std::string, std::vector<int32_t>> ints;
  std::vector<BatchView::Input> inputs;

  // Labels in [1, classes); each label sequence short enough to be feasible.
  RandomBatch(std::vector<int32_t> lengths, int32_t classes, unsigned seed, int subsampling = 1) {
    std::mt19937 random(seed);
    layout = build_packed(lengths);
    for (int32_t length : lengths) {
      const int32_t frames = (length + subsampling - 1) / subsampling;
      const int32_t n = frames / 2;
      for (int32_t i = 0; i < n; ++i) {
        labels.push_back(1 + static_cast<int32_t>(random() % static_cast<unsigned>(classes - 1)));
      }
      label_offsets.push_back(static_cast<int32_t>(labels.size()));
    }
  }

  // Fills every input of the graph with random numbers of its dtype (i32: classes).
  BatchView view(const Graph& g, int32_t classes, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    inputs.clear();
    for (const Value& v : g.values) {
      if (v.role != ValueRole::input) continue;
      const int64_t rows =
          v.shape.axis == Axis::frames ? layout.extent.rows : layout.extent.sequences;
      const auto n = static_cast<size_t>(rows * v.shape.cols);
      std::vector<double> values(n);
      for (double& x : values) x = uniform(random);
      if (v.dtype == DType::f64) {
        wide[v.name] = values;
        inputs.push_back({wide.find(v.name)->first, wide[v.name].data(), n * 8});
      } else if (v.dtype == DType::f32) {
        narrow[v.name].assign(values.begin(), values.end());
        inputs.push_back({narrow.find(v.name)->first, narrow[v.name].data(), n * 4});
      } else {
        auto& store = ints[v.name];
        store.resize(n);
        for (int32_t& c : store) {
          c = static_cast<int32_t>(random() % static_cast<unsigned>(classes));
        }
        inputs.push_back({ints.find(v.name)->first, store.data(), n * 4});
      }
    }
    return {&layout, labels, label_offsets, inputs, 99};
  }
};

// Compares every `stride`-th parameter's gradient with central differences; returns the largest
// |difference| / (1 + |gradient|) and how many were compared.
struct GradientCheck {
  double worst = 0;
  int compared = 0;
  std::string where;
};

inline GradientCheck check_gradients(const std::function<ValueId(Graph&)>& model,
                                     std::vector<int32_t> lengths, int32_t classes,
                                     int subsampling = 1, int stride = 1) {
  Graph g;
  g.compute = DType::f64;
  const ValueId loss = model(g);
  append_backward(g, loss);
  Stream stream = cpu_device().make_stream();
  ThreadPool pool(1);
  const Context context{Backend::ref, &cpu_device(), &stream, &pool};
  Parameters parameters(g, cpu_device());
  parameters.initialize(3);
  // Away from symmetric starting points (zero biases, unit gains).
  std::mt19937 random(5);
  std::uniform_real_distribution<double> jitter(-0.3, 0.3);
  const TensorView weights = parameters.weights();
  for (const auto& e : parameters.entries()) {
    for (int64_t i = 0; i < e.numel(); ++i) weights.as<double>()[e.offset + i] += jitter(random);
  }
  RandomBatch batch(std::move(lengths), classes, 7, subsampling);
  const BatchView view = batch.view(g, classes, 11);
  BatchCapacity capacity = view.extent();
  capacity.packed.rows += 5;  // spare rows must not matter
  capacity.packed.sequences += 1;
  BoundGraph bound(g, context, capacity, parameters);
  bound.load(view);
  const auto total = static_cast<size_t>(bound.live_rows(g.shape(loss)) * g.shape(loss).cols);
  std::vector<double> losses(total);
  auto run = [&] {
    bound.run();
    bound.read(loss, losses.data(), losses.size() * 8);
    double sum = 0;
    for (double l : losses) sum += l;
    return sum;
  };
  const TensorView gradients = parameters.gradients();
  std::fill_n(gradients.as<double>(), gradients.numel(), 0.0);
  run();
  const std::vector<double> analytic(gradients.as<double>(),
                                     gradients.as<double>() + gradients.numel());
  GradientCheck result;
  constexpr double step = 1e-5;
  for (const auto& e : parameters.entries()) {
    for (int64_t i = 0; i < e.numel(); i += stride) {
      double& w = weights.as<double>()[e.offset + i];
      const double saved = w;
      w = saved + step;
      const double up = run();
      w = saved - step;
      const double down = run();
      w = saved;
      const double numeric = (up - down) / (2 * step);
      const double exact = analytic[static_cast<size_t>(e.offset + i)];
      const double error = std::abs(numeric - exact) / (1 + std::abs(exact));
      ++result.compared;
      if (!(error <= result.worst)) {
        result.worst = error;
        result.where = str(e.name, "[", i, "]: finite difference ", numeric, ", backward ", exact);
      }
    }
  }
  return result;
}

}  // namespace rondo::test
