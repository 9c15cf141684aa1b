#include "engine/config/layer_types.h"

#include "engine/config/config.h"
#include "engine/layers/layers.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using namespace schema;

constexpr const char* residual_help = "add the input to the output where the sizes agree";

ValueId build_lstm(Graph& g, ValueId x, const std::string& name, const LayerConfig& layer) {
  return layers::lstm(g, x, name,
                      {.hidden = layer.integer("hidden"),
                       .layers = layer.integer("layers"),
                       .bidirectional = layer.flag("bidirectional"),
                       .projection = layer.integer("projection"),
                       .dropout = layer.real("dropout"),
                       .residual = layer.flag("residual"),
                       .backward = layer.flag("backward")});
}

ValueId build_linear(Graph& g, ValueId x, const std::string& name, const LayerConfig& layer) {
  const ValueId y = layers::linear(g, x, name, layer.integer("size"));
  return layer.flag("residual") && g.shape(y) == g.shape(x) ? layers::add(g, y, x) : y;
}

ValueId build_conv(Graph& g, ValueId x, const std::string& name, const LayerConfig& layer) {
  return layers::conv(g, x, name,
                      {.channels = layer.integer("channels"),
                       .kernel = layer.integer("kernel"),
                       .stride = layer.integer("stride"),
                       .dilation = layer.integer("dilation"),
                       .context = layer.choice<ConvContext>("context")});
}

ValueId build_conv2d(Graph& g, ValueId x, const std::string& name, const LayerConfig& layer) {
  return layers::conv2d(g, x, name,
                        {.channels = layer.integer("channels"),
                         .kernel_height = layer.integer("kernel_height"),
                         .kernel_width = layer.integer("kernel_width"),
                         .stride_height = layer.integer("stride_height"),
                         .stride_width = layer.integer("stride_width"),
                         .dilation_height = layer.integer("dilation_height"),
                         .dilation_width = layer.integer("dilation_width"),
                         .groups = layer.integer("groups")});
}

ValueId build_pool2d(Graph& g, ValueId x, const std::string& name, const LayerConfig& layer) {
  return layers::pool2d(g, x, name, layer.choice<Pooling2d>("pooling"), layer.integer("height"),
                        layer.integer("width"), layer.flag("whole"));
}

ValueId build_lstm_height(Graph& g, ValueId x, const std::string& name, const LayerConfig& layer) {
  return layers::lstm_height(g, x, name,
                             {.hidden = layer.integer("hidden"),
                              .bidirectional = layer.flag("bidirectional"),
                              .summarize = layer.flag("summary")});
}

ValueId build_layer_norm(Graph& g, ValueId x, const std::string& name, const LayerConfig&) {
  return layers::layer_norm(g, x, name);
}

ValueId build_group_norm(Graph& g, ValueId x, const std::string& name, const LayerConfig& layer) {
  return layers::group_norm(g, x, name, layer.integer("groups"));
}

ValueId build_stack(Graph& g, ValueId x, const std::string&, const LayerConfig& layer) {
  return layers::stack_frames(g, x, layer.integer("factor"));
}

ValueId build_dropout(Graph& g, ValueId x, const std::string& name, const LayerConfig& layer) {
  return layers::dropout(g, x, name, layer.real("rate"), layer.choice<layers::DropoutOver>("over"));
}

// A layer without parameters and options.
template <ValueId (*layer)(Graph&, ValueId)>
ValueId build_plain(Graph& g, ValueId x, const std::string&, const LayerConfig&) {
  return layer(g, x);
}

}  // namespace

std::span<const LayerType> layer_types() {
  static const LayerType rows[] = {
      {.name = "lstm",
       .prefix = "lstm",
       .help = "LSTM layers, one on top of the other",
       .options = {{"hidden", 256, from(1, 65536), "cells per direction"},
                   {"layers", 1, from(1, 100), "layers of the same size"},
                   {"bidirectional", true, any, "read in both directions"},
                   {"projection", 0, from(0, 65536), "projected outputs per direction; 0: none"},
                   {"dropout", 0.0, below_one, "rate between these layers"},
                   {"residual", false, any, residual_help},
                   {"backward", false, any,
                    "read from the last frame to the first; with bidirectional = false"}},
       .build = build_lstm},
      {.name = "linear",
       .prefix = "linear",
       .help = "a weighted sum of the inputs, and a bias",
       .options = {{"size", 256, from(1, 1 << 24), "outputs"},
                   {"residual", false, any, residual_help}},
       .build = build_linear},
      {.name = "conv",
       .prefix = "conv",
       .help = "a convolution over time",
       .options = {{"channels", 256, from(1, 65536), "outputs"},
                   {"kernel", 5, from(1, 1024), "frames that an output is made of"},
                   {"stride", 1, from(1, 64), "so many frames become one"},
                   {"dilation", 1, from(1, 1024), "frames from one of the kernel to the next"},
                   {"context",
                    static_cast<size_t>(ConvContext::both),
                    any,
                    "the kernel's frames lie before and behind the output's own, or on one side "
                    "alone; only \"past\" can stream",
                    {"both", "past", "future"}}},
       .build = build_conv,
       .frames_per_frame = "stride"},
      {.name = "conv2d",
       .prefix = "conv2d",
       .help = "a convolution over height and time of images, whose columns of pixels are frames",
       .options =
           {{"channels", 32, from(1, 65536), "outputs per pixel"},
            {"kernel_height", 3, from(1, 1024),
             "pixels that an output is made of, along the "
             "height"},
            {"kernel_width", 3, from(1, 1024), "the same, along time"},
            {"stride_height", 1, from(1, 64), "so many rows of pixels become one"},
            {"stride_width", 1, from(1, 64), "so many frames become one"},
            {"dilation_height", 1, from(1, 1024), "rows from one of the kernel to the next"},
            {"dilation_width", 1, from(1, 1024), "frames from one of the kernel to the next"},
            {"groups", 1, from(1, 65536),
             "groups of channels, on either side, that have nothing to do with each other; as "
             "many as channels: each by itself (depthwise)"}},
       .build = build_conv2d,
       .frames_per_frame = "stride_width"},
      {.name = "pool2d",
       .prefix = "pool2d",
       .help = "one pixel of an image for all in a window; windows lie side by side",
       .options = {{"pooling",
                    static_cast<size_t>(Pooling2d::greatest),
                    any,
                    "the greatest value of each channel, or the mean",
                    {"max", "mean"}},
                   {"height", 2, from(1, 1024),
                    "rows of a window; what fills none at the bottom is dropped"},
                   {"width", 2, from(1, 64), "frames of a window; the last one has what is left"},
                   {"whole", false, any,
                    "frames that are left at the end and fill no window are dropped, as kraken and "
                    "Tesseract do"}},
       .build = build_pool2d,
       .frames_per_frame = "width",
       .drops_rest = "whole"},
      {.name = "lstm_height",
       .prefix = "lstm_height",
       .help = "an LSTM along the height of images, for each column of pixels by itself, from top "
               "to bottom",
       .options = {{"hidden", 64, from(1, 65536), "cells per direction"},
                   {"bidirectional", false, any, "read in both directions, without a summary"},
                   {"summary", true, any,
                    "the last output of a column becomes the frame's values; otherwise an image "
                    "comes out"}},
       .build = build_lstm_height},
      {.name = "layer_norm",
       .prefix = "norm",
       .help =
           "each frame's values to mean 0 and variance 1, then a scale and a shift that are learnt",
       .options = {},
       .build = build_layer_norm},
      {.name = "group_norm",
       .prefix = "group_norm",
       .help = "the values of some channels, over all pixels and frames of a sequence, to mean 0 "
               "and variance 1, then a scale and a shift per channel that are learnt",
       .options = {{"groups", 32, from(1, 65536),
                    "of so many groups of channels each by itself; divides the channels"}},
       .build = build_group_norm},
      {.name = "stack",
       .prefix = "stack",
       .help = "neighbouring frames side by side as one",
       .options = {{"factor", 2, from(1, 64), "so many frames become one"}},
       .build = build_stack,
       .frames_per_frame = "factor"},
      {.name = "dropout",
       .prefix = "dropout",
       .help = "values set to zero at random, in training alone",
       .options = {{"rate", 0.1, below_one, "share of values set to zero"},
                   {"over",
                    static_cast<size_t>(layers::DropoutOver::values),
                    any,
                    "each value by itself, or a channel in all pixels and frames of a sequence",
                    {"values", "channels"}}},
       .build = build_dropout},
      {.name = "relu",
       .prefix = "relu",
       .help = "max(x, 0) of each value",
       .options = {},
       .build = build_plain<layers::relu>},
      {.name = "tanh",
       .prefix = "tanh",
       .help = "tanh(x) of each value",
       .options = {},
       .build = build_plain<layers::tanh>},
      {.name = "sigmoid",
       .prefix = "sigmoid",
       .help = "1 / (1 + exp(-x)) of each value",
       .options = {},
       .build = build_plain<layers::sigmoid>},
      {.name = "gelu",
       .prefix = "gelu",
       .help = "x times the share of the normal distribution below x, of each value (GELU)",
       .options = {},
       .build = build_plain<layers::gelu>},
  };
  return rows;
}

namespace {

const LayerType& type_called(std::string_view name) {
  for (const LayerType& type : layer_types()) {
    if (type.name == name) return type;
  }
  RONDO_CHECK(false, "no layer type '", name, "'");
}

}  // namespace

LayerConfig::LayerConfig(const LayerType& type) : type_(&type) {
  for (const LayerOption& option : type.options) values_.push_back(option.initial);
}

LayerConfig::LayerConfig(std::string_view type) : LayerConfig(type_called(type)) {}

const LayerValue& LayerConfig::find(std::string_view option) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (type_->options[i].name == option) return values_[i];
  }
  RONDO_CHECK(false, "a layer of type '", type_->name, "' has no option '", option, "'");
}

template <class T>
const T& LayerConfig::held(std::string_view option) const {
  const T* value = std::get_if<T>(&find(option));
  RONDO_CHECK(value, "the option '", option, "' of a layer of type '", type_->name,
              "' has another type");
  return *value;
}

bool LayerConfig::flag(std::string_view option) const { return held<bool>(option); }
int LayerConfig::integer(std::string_view option) const { return held<int>(option); }
double LayerConfig::real(std::string_view option) const { return held<double>(option); }
size_t LayerConfig::place(std::string_view option) const { return held<size_t>(option); }

LayerConfig& LayerConfig::set(std::string_view option, LayerValue value) {
  const LayerValue& present = find(option);
  RONDO_CHECK(present.index() == value.index(), "the option '", option, "' of a layer of type '",
              type_->name, "' has another type");
  values_[static_cast<size_t>(&present - values_.data())] = value;
  return *this;
}

std::vector<LayerConfig> expand_layers(const ModelConfig& model) {
  if (!model.layer.empty()) return model.layer;
  std::vector<LayerConfig> layers;
  if (model.subsample > 1) layers.emplace_back("stack").set("factor", model.subsample);
  for (int i = 0; i < model.layers; ++i) {
    layers.emplace_back("lstm")
        .set("hidden", model.hidden)
        .set("bidirectional", model.bidirectional)
        .set("projection", model.projection)
        .set("residual", model.residual);
    if (model.layer_norm) layers.emplace_back("layer_norm");
    if (model.dropout > 0) layers.emplace_back("dropout").set("rate", model.dropout);
  }
  return layers;
}

}  // namespace rondo
