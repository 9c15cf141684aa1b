#include "engine/train/build_model.h"

#include "kernels/base/error.h"

namespace rondo {
namespace {

ValueId add_layer(Graph& g, ValueId x, const LayerConfig& layer, const std::string& name) {
  switch (layer.type) {
    case LayerType::lstm: {
      layers::LstmOptions o;
      o.hidden = layer.hidden;
      o.layers = layer.layers;
      o.bidirectional = layer.bidirectional;
      o.projection = layer.projection;
      o.dropout = layer.dropout;
      o.residual = layer.residual;
      return layers::lstm(g, x, name, o);
    }
    case LayerType::linear: {
      const ValueId y = layers::linear(g, x, name, layer.size);
      return layer.residual && g.shape(y) == g.shape(x) ? layers::add(g, y, x) : y;
    }
    case LayerType::conv: {
      layers::ConvOptions o;
      o.channels = layer.channels;
      o.kernel = layer.kernel;
      o.stride = layer.stride;
      o.dilation = layer.dilation;
      o.context = layer.context;
      return layers::conv(g, x, name, o);
    }
    case LayerType::layer_norm:
      return layers::layer_norm(g, x, name);
    case LayerType::stack:
      return layers::stack_frames(g, x, layer.factor);
    case LayerType::dropout:
      return layers::dropout(g, x, name, layer.rate);
    case LayerType::relu:
      return layers::relu(g, x);
    case LayerType::tanh:
      return layers::tanh(g, x);
    case LayerType::sigmoid:
      return layers::sigmoid(g, x);
  }
  RONDO_CHECK(false, "unknown layer type");
}

const char* name_of(LayerType type) {
  switch (type) {
    case LayerType::lstm:
      return "lstm";
    case LayerType::linear:
      return "linear";
    case LayerType::conv:
      return "conv";
    case LayerType::layer_norm:
      return "norm";
    case LayerType::stack:
      return "stack";
    case LayerType::dropout:
      return "dropout";
    case LayerType::relu:
      return "relu";
    case LayerType::tanh:
      return "tanh";
    case LayerType::sigmoid:
      return "sigmoid";
  }
  return "?";
}

}  // namespace

ModelFunction build_model(const ModelConfig& model, Task task, const ModelSizes& sizes) {
  RONDO_CHECK(sizes.features > 0 && sizes.outputs > 0, "a model of ", sizes.features,
              " features and ", sizes.outputs, " outputs");
  return [model, task, sizes](Graph& g) {
    ValueId x = layers::input_frames(g, features_input, sizes.features);
    int index = 0;
    for (const LayerConfig& layer : expand_layers(model)) {
      x = add_layer(g, x, layer, str(name_of(layer.type), index++));
    }
    if (task != Task::ctc) {
      x = model.pooling == Pooling::last ? layers::last_frame(g, x) : layers::mean_pool(g, x);
    }
    const ValueId out = layers::linear(g, x, "output", sizes.outputs);
    switch (task) {
      case Task::ctc:
        return Outputs{layers::ctc_loss(g, out), out};
      case Task::classify:
        return Outputs{layers::cross_entropy(g, out, targets_input), out};
      case Task::regress:
        return Outputs{layers::mean_squared_error(g, out, targets_input), out};
    }
    RONDO_CHECK(false, "unknown task");
  };
}

int64_t subsampling_of(const ModelConfig& model) {
  int64_t factor = 1;
  for (const LayerConfig& layer : expand_layers(model)) {
    if (layer.type == LayerType::stack) factor *= layer.factor;
    if (layer.type == LayerType::conv) factor *= layer.stride;
  }
  return factor;
}

OptimizerOptions optimizer_options(const Config& config) {
  OptimizerOptions o;
  switch (config.optimizer.type) {
    case OptimizerType::sgd:
      o.kind = OptimizerOptions::sgd;
      break;
    case OptimizerType::adam:
      o.kind = OptimizerOptions::adam;
      break;
    case OptimizerType::adamw:
      o.kind = OptimizerOptions::adamw;
      break;
  }
  o.learning_rate = config.optimizer.lr;
  o.momentum = config.optimizer.momentum;
  o.nesterov = config.optimizer.nesterov;
  o.beta1 = config.optimizer.beta1;
  o.beta2 = config.optimizer.beta2;
  o.epsilon = config.optimizer.eps;
  o.weight_decay = config.optimizer.weight_decay;
  o.clip_norm = config.training.clip;
  o.ema_decay = config.training.ema;
  return o;
}

SessionOptions session_options(const Config& config, DeviceId device) {
  SessionOptions o;
  o.device = device.kind;
  o.device_index = device.index;
  o.threads = config.training.threads;
  o.seed = config.training.seed;
  o.compute = config.training.dtype;
  o.optimizer = optimizer_options(config);
  o.tbptt = config.training.tbptt;
  return o;
}

}  // namespace rondo
