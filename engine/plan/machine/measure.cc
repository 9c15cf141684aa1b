#include "engine/plan/machine/measure.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "comm/group/process_group.h"
#include "comm/in_process/run_ranks.h"
#include "engine/graph/plan.h"
#include "engine/session.h"
#include "kernels/base/cpu/cgroup.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

constexpr int64_t features = 40;

struct MeasuredShape {
  int hidden, layers, directions, classes, subsample, frames, sequences;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Every size with every other would take too long: sizes are drawn, with the arithmetic of a step
// bounded, always the same ones.
std::vector<MeasuredShape> shapes_to_measure(bool quick) {
  const int hidden[] = {32, 64, 96, 128, 192, 256, 384, 512}, classes[] = {12, 32, 80, 400};
  const int frames[] = {20, 40, 80, 160, 320, 640}, sequences[] = {1, 2, 4, 8, 16, 32, 64};
  std::mt19937 random(20);
  const auto draw = [&random](const auto& values) { return values[random() % std::size(values)]; };
  std::vector<MeasuredShape> shapes;
  const size_t wanted = quick ? 6 : 64;
  const double most = quick ? 2e8 : 6e10;
  while (shapes.size() < wanted) {
    const MeasuredShape s{
        draw(hidden),   1 + static_cast<int>(random() % 3), 1 + static_cast<int>(random() % 2),
        draw(classes),  1 + static_cast<int>(random() % 3), draw(frames),
        draw(sequences)};
    const double flops = 6.0 * s.frames * s.sequences * s.layers * s.directions * 4.0 * s.hidden *
                         (s.hidden + s.hidden * s.directions);
    if (flops <= most) shapes.push_back(s);
  }
  return shapes;
}

// A batch of equal lengths, with a label for every third frame of the output.
struct UniformBatch {
  PackedHost layout;
  std::vector<int32_t> labels, offsets = {0};
  std::vector<float> data;
  BatchView::Input input;
  BatchView view;

  explicit UniformBatch(const MeasuredShape& s) {
    std::mt19937 random(7);
    const std::vector<int32_t> lengths(static_cast<size_t>(s.sequences), s.frames);
    layout = build_packed(lengths);
    for (int n = 0; n < s.sequences; ++n) {
      for (int i = 0; i < labels_of(s); ++i) {
        labels.push_back(1 + static_cast<int32_t>(random() % static_cast<unsigned>(s.classes - 1)));
      }
      offsets.push_back(static_cast<int32_t>(labels.size()));
    }
    std::normal_distribution<float> normal;
    data.resize(static_cast<size_t>(s.frames) * static_cast<size_t>(s.sequences) * features);
    for (float& x : data) x = normal(random);
    input = {"features", data.data(), data.size() * sizeof(float)};
    view.layout = &layout;
    view.labels = labels;
    view.label_offsets = offsets;
    view.inputs = {&input, 1};
  }
  static int labels_of(const MeasuredShape& s) { return s.frames / s.subsample / 3; }
};

ModelFunction model_of(const MeasuredShape& s) {
  return [s](Graph& g) {
    ValueId x = layers::input_frames(g, "features", features);
    if (s.subsample > 1) x = layers::stack_frames(g, x, s.subsample);
    layers::LstmOptions options;
    options.hidden = s.hidden;
    options.layers = s.layers;
    options.bidirectional = s.directions == 2;
    options.dropout = s.layers > 1 ? 0.1 : 0;
    x = layers::lstm(g, x, "encoder", options);
    const ValueId logits = layers::linear(g, x, "output", s.classes);
    return Outputs{layers::ctc_loss(g, logits), logits};
  };
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Sample sample_of(std::string_view op, DType dtype, const NodeWork& work, double seconds,
                 int shape) {
  // A clock's tick, where a node did nothing measurable.
  return {str(op, "/", name_of(dtype)), work, std::max(seconds, 1e-8), shape};
}

void measure_shape(const MeasuredShape& s, DType compute, const Context& context, int repetitions,
                   int shape, std::vector<Sample>& samples) {
  Graph g;
  g.compute = compute;
  const Outputs outputs = model_of(s)(g);
  append_backward(g, outputs.loss);
  UniformBatch batch(s);
  Parameters parameters(g, *context.device);
  parameters.initialize(1);
  Plan plan(g, context, batch.view.extent(), parameters);
  std::vector<std::vector<double>> times(plan.node_count());
  Update update({}, parameters, context);
  std::vector<double> loads, updates;
  for (int i = -1; i < repetitions; ++i) {  // the first run warms up
    // As in training: the caches hold what the batch has left there.
    const double begin = now();
    const TensorView gradients = parameters.gradients();
    context.device->fill_bytes(*context.stream, gradients.data, 0, gradients.bytes());
    const double clear = now() - begin;
    double last = now();
    plan.load(batch.view);
    if (i >= 0) loads.push_back(now() - last);
    last = now();
    plan.run([&](size_t node) {
      const double t = now();
      if (i >= 0) times[node].push_back(t - last);
      last = t;
    });
    last = now();
    update.apply(1);
    if (i >= 0) updates.push_back(clear + now() - last);
  }
  const BatchShape batch_shape{static_cast<double>(s.sequences), static_cast<double>(s.frames),
                               static_cast<double>(UniformBatch::labels_of(s))};
  for (size_t n = 0; n < times.size(); ++n) {
    if (!plan.memory().needed[n]) continue;
    const Node& node = plan.node(n);
    samples.push_back(sample_of(node.op, dtype_of(g, node),
                                work_of(g, node, batch_shape, core_cache_bytes()), median(times[n]),
                                shape));
  }
  if (compute != DType::f32) return;
  samples.push_back(sample_of("load", DType::f32, load_work(g, batch_shape), median(loads), shape));
  samples.push_back(sample_of("optimizer", DType::f32,
                              update_work(parameters.trainable(), update_arrays({})),
                              median(updates), shape));
}

std::vector<Sample> measure_as_rank(const MeasureOptions& options, bool tells) {
  const auto shapes = shapes_to_measure(options.quick);
  ThreadPool pool(options.threads);
  Stream stream = cpu_device().make_stream();
  const Context context{Backend::cpu, &cpu_device(), &stream, &pool};
  std::vector<Sample> samples;
  const int total = static_cast<int>(shapes.size() * options.dtypes.size());
  int shape = 0;
  for (DType dtype : options.dtypes) {
    for (const MeasuredShape& s : shapes) {
      if (tells && options.progress) options.progress(shape, total);
      measure_shape(s, dtype, context, options.repetitions, shape++, samples);
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

double core_cache_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? static_cast<double>(bytes) : 1024.0 * 1024;
}

}  // namespace rondo::plan
