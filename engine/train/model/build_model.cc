#include "engine/train/model/build_model.h"

#include "engine/config/layer_types.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

ValueId add_layers(Graph& g, ValueId x, const ModelConfig& model) {
  int index = 0;
  for (const LayerConfig& layer : expand_layers(model)) {
    const LayerType& type = layer.type();
    x = type.build(g, x, str(type.prefix, index++), layer);
  }
  return x;
}

Outputs add_model(Graph& g, const ModelConfig& model, Task task, const ModelSizes& sizes) {
  ValueId x = add_layers(g, layers::input_frames(g, features_input, sizes.features), model);
  RONDO_CHECK(g.total_factor(g.shape(x).level) == subsampling_of(model), "layers make one of ",
              g.total_factor(g.shape(x).level), " frames, their types say ", subsampling_of(model));
  if (task != Task::ctc) {
    x = model.pooling == Pooling::last ? layers::last_frame(g, x) : layers::mean_pool(g, x);
  }
  const ValueId out = layers::linear(g, x, "output", sizes.outputs);
  switch (task) {
    case Task::ctc:
      return {layers::ctc_loss(g, out), out};
    case Task::classify:
      return {layers::cross_entropy(g, out, targets_input), out};
    case Task::regress:
      return {layers::mean_squared_error(g, out, targets_input), out};
  }
  RONDO_CHECK(false, "unknown task");
}

}  // namespace

ModelFunction build_model(const ModelConfig& model, Task task, const ModelSizes& sizes,
                          const TrainingConfig& training) {
  RONDO_CHECK(sizes.features > 0 && sizes.outputs > 0, "a model of ", sizes.features,
              " features and ", sizes.outputs, " outputs");
  if (model.input_height > 0 && model.input_height != sizes.features) {
    fail_input("the features have ", sizes.features,
               " values per frame (of images, features.height), expected ", model.input_height,
               ": model.input_height, or the second number of model.vgsl");
  }
  return [model, task, sizes, frozen = training.freeze_before](Graph& g) {
    const Outputs outputs = add_model(g, model, task, sizes);
    if (g.training && !frozen.empty()) freeze_before(g, frozen, "training.freeze_before");
    return outputs;
  };
}

ModelFunction model_in_use(const ModelDescription& d, DeviceId device) {
  const bool int8 = d.int8 && device.kind == DeviceKind::cpu;
  return [int8, build = build_model(d.config.model, d.config.task, d.sizes)](Graph& g) {
    g.int8 = int8 && g.compute == DType::f32 && !g.training;
    return build(g);
  };
}

Graph inference_graph(const ModelDescription& d, DeviceId device) {
  Graph graph;
  graph.compute = d.config.training.dtype;
  graph.training = false;
  model_in_use(d, device)(graph);
  return graph;
}

int64_t subsampling_of(const ModelConfig& model) {
  int64_t factor = 1;
  for (const LayerConfig& layer : expand_layers(model)) {
    const char* option = layer.type().frames_per_frame;
    if (option) factor *= layer.integer(option);
  }
  return factor;
}

int64_t output_frames_of(const ModelConfig& model, int64_t frames) {
  for (const LayerConfig& layer : expand_layers(model)) {
    const LayerType& type = layer.type();
    if (!type.frames_per_frame) continue;
    const int64_t factor = layer.integer(type.frames_per_frame);
    const bool drops_rest = type.drops_rest && layer.flag(type.drops_rest);
    frames = (frames + (drops_rest ? 0 : factor - 1)) / factor;
  }
  return frames;
}

SessionOptions session_options(const Config& config, DeviceId device) {
  SessionOptions o;
  o.device = device.kind;
  o.device_index = device.index;
  o.threads = config.training.threads;
  o.seed = config.training.seed;
  o.compute = config.training.dtype;
  o.optimizer = config.optimizer;
  o.tbptt = config.training.tbptt;
  // What is cut in time reads the logits.
  o.fuse_output_from = config.parallel.sequence > 1 ? 0 : config.training.fuse_output_from;
  return o;
}

}  // namespace rondo
