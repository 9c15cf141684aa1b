#include "engine/plan/measure.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "comm/group/process_group.h"
#include "comm/in_process/run_ranks.h"
#include "engine/graph/bound_graph.h"
#include "engine/graph/rules.h"
#include "engine/plan/model_layers.h"
#include "kernels/base/cpu/cgroup.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct UniformBatch {
  PackedHost layout;
  std::vector<int32_t> labels, offsets = {0};
  std::vector<float> data;
  BatchView::Input input;
  BatchView view;

  UniformBatch(const MeasuredModel& m, const Graph& graph) {
    std::mt19937 random(7);
    layout = build_packed(std::vector<int32_t>(static_cast<size_t>(m.sequences), m.frames));
    for (int n = 0; n < m.sequences; ++n) {
      for (int i = 0; i < m.labels(); ++i) {
        labels.push_back(1 + static_cast<int32_t>(random() % static_cast<unsigned>(m.classes - 1)));
      }
      offsets.push_back(static_cast<int32_t>(labels.size()));
    }
    std::normal_distribution<float> normal;
    data.resize(static_cast<size_t>(int64_t{m.frames} * m.sequences * m.features));
    for (float& x : data) x = normal(random);
    for (const Value& v : graph.values) {
      if (v.role == ValueRole::input) {
        input = {v.name, data.data(), data.size() * sizeof(float)};
      }
    }
    view.layout = &layout;
    view.labels = labels;
    view.label_offsets = offsets;
    view.inputs = {&input, 1};
  }
};

void measure_model(const MeasuredModel& m, DType compute, const Context& context, int repetitions,
                   int shape, std::vector<Sample>& samples) {
  Graph g;
  g.compute = compute;
  const Outputs outputs = m.model(g);
  append_backward(g, outputs.loss);
  const UniformBatch batch(m, g);
  Parameters parameters(g, *context.device);
  parameters.initialize(1);
  BoundGraph bound(g, context, batch.view.extent(), parameters);
  std::vector<std::vector<double>> times(bound.node_count());
  Update update({}, parameters, context);
  std::vector<double> loads, updates;
  for (int i = -1; i < repetitions; ++i) {  // the first run warms up
    // As in training: the caches hold what the batch has left there.
    double last = now();
    const auto since_last = [&last] {
      const double t = now();
      return t - std::exchange(last, t);
    };
    const TensorView gradients = parameters.gradients();
    context.device->fill_bytes(*context.stream, gradients.data, 0, gradients.bytes());
    const double clear = since_last();
    bound.load(batch.view);
    const double load = since_last();
    bound.run([&](size_t node) {
      const double seconds = since_last();
      if (i >= 0) times[node].push_back(seconds);
    });
    last = now();
    update.apply(1);
    if (i < 0) continue;
    loads.push_back(load);
    updates.push_back(clear + since_last());
  }
  const BatchShape of{static_cast<double>(m.sequences), static_cast<double>(m.frames),
                      static_cast<double>(m.labels())};
  const auto add = [&](std::string_view op, DType dtype, const NodeWork& work,
                       const std::vector<double>& seconds) {
    // A clock's tick, where a node did nothing measurable.
    samples.push_back({std::string(op), dtype, work, std::max(median(seconds), 1e-8), shape});
  };
  for (size_t n = 0; n < times.size(); ++n) {
    if (!bound.memory().needed[n]) continue;
    const Node& node = bound.node(n);
    add(node.op, dtype_of(g, node), rule_of(node.op).work(g, node, of), times[n]);
  }
  if (compute != DType::f32) return;
  add("load", DType::f32, load_work(g, of), loads);
  const double bytes = 4.0 * static_cast<double>(parameters.trainable()) * update_arrays({});
  add("optimizer", DType::f32, {.bytes = bytes}, updates);
}

std::vector<Sample> measure_as_rank(const MeasureOptions& options, bool tells) {
  ThreadPool pool(options.threads);
  Stream stream = cpu_device().make_stream();
  const Context context{Backend::cpu, &cpu_device(), &stream, &pool};
  std::vector<Sample> samples;
  const int total = static_cast<int>(options.models.size() * options.dtypes.size());
  int shape = 0;
  for (DType dtype : options.dtypes) {
    for (const MeasuredModel& m : options.models) {
      if (tells && options.progress) options.progress(shape, total);
      measure_model(m, dtype, context, options.repetitions, shape++, samples);
    }
  }
  return samples;
}

}  // namespace

std::vector<Sample> measure_nodes(const MeasureOptions& options) {
  // The others do the same work in the same order, about in step, and end with the first rank.
  std::vector<Sample> samples;
  run_ranks(options.ranks, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    group->barrier().wait();
    std::vector<Sample> own = measure_as_rank(options, rank == 0);
    if (rank == 0) samples = std::move(own);
    group->barrier().wait();
  });
  return samples;
}

double machine_memory_bytes() {
  const double all =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return std::min(all, cgroup_memory().value_or(all));
}

}  // namespace rondo::plan
