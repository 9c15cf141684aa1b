// Convolutions, and the layers of images.
#include <algorithm>
#include <cmath>

#include "engine/layers/layers.h"
#include "kernels/base/error.h"
#include "kernels/conv/conv.h"

namespace rondo::layers {
namespace {

int64_t height_of(const Shape& shape) { return shape.height == 0 ? shape.cols : shape.height; }

int level_after(Graph& g, ValueId x, int stride, bool whole = false) {
  const int from = g.shape(x).level;
  return stride == 1 ? from : g.add_level({.parent = from, .factor = stride, .whole = whole});
}

// `height` of x in pixels; 0: frames are no images.
ValueId convolution(Graph& g, ValueId x, const std::string& name, int64_t channels, int64_t height,
                    const ConvAxis& rows, const ConvAxis& time, int64_t groups = 1) {
  const int from = g.shape(x).level, to = level_after(g, x, time.stride);
  const int64_t in = g.shape(x).cols / std::max<int64_t>(height, 1);
  const int64_t taps = int64_t{rows.kernel} * time.kernel, terms = in / groups * taps;
  const double bound = 1 / std::sqrt(static_cast<double>(terms));
  const ValueId w = g.add_parameter(name + ".weight", channels, terms, {Init::uniform, bound});
  g.value(w).taps = taps;
  if (height > 0) g.value(w).tap_rows = rows.kernel;
  const ValueId b = g.add_parameter(name + ".bias", 1, channels, {Init::constant, 0});
  Attributes attributes = {{"kernel", int64_t{time.kernel}},
                           {"stride", int64_t{time.stride}},
                           {"dilation", int64_t{time.dilation}},
                           {"left", int64_t{time.before}},
                           {"kernel_rows", int64_t{rows.kernel}},
                           {"row_stride", int64_t{rows.stride}},
                           {"row_dilation", int64_t{rows.dilation}},
                           {"above", int64_t{rows.before}},
                           {"groups", groups},
                           {"height", height},
                           {"out_height", (height + rows.stride - 1) / rows.stride},
                           {"from", int64_t{from}},
                           {"to", int64_t{to}}};
  if (g.int8 && height == 0) attributes = attributes.with("int8", int64_t{1});
  return g.add_node("conv", {x, g.as_compute(w), b, no_value, no_value}, std::move(attributes))[0];
}

}  // namespace

ValueId conv(Graph& g, ValueId x, const std::string& name, const ConvOptions& o) {
  RONDO_CHECK(o.channels >= 1 && o.kernel >= 1 && o.stride >= 1 && o.dilation >= 1, "conv '", name,
              "': ", o.channels, " channels, kernel ", o.kernel, ", stride ", o.stride,
              ", dilation ", o.dilation);
  return convolution(g, x, name, o.channels, 0, {},
                     conv_axis(o.kernel, o.stride, o.dilation, o.context));
}

ValueId conv2d(Graph& g, ValueId x, const std::string& name, const Conv2dOptions& o) {
  RONDO_CHECK(o.channels >= 1 && o.kernel_height >= 1 && o.kernel_width >= 1 &&
                  o.stride_height >= 1 && o.stride_width >= 1 && o.dilation_height >= 1 &&
                  o.dilation_width >= 1,
              "conv2d '", name, "': ", o.channels, " channels, kernel ", o.kernel_height, " x ",
              o.kernel_width, ", stride ", o.stride_height, " x ", o.stride_width, ", dilation ",
              o.dilation_height, " x ", o.dilation_width);
  const int64_t height = height_of(g.shape(x)), in = g.shape(x).cols / height;
  if (o.groups < 1 || in % o.groups != 0 || o.channels % o.groups != 0) {
    fail_input(name, ": ", o.groups, " groups do not divide ", in, " channels of the input and ",
               o.channels, " of the output; expected as many channels in each group");
  }
  return convolution(g, x, name, o.channels, height,
                     conv_axis(o.kernel_height, o.stride_height, o.dilation_height),
                     conv_axis(o.kernel_width, o.stride_width, o.dilation_width), o.groups);
}

ValueId pool2d(Graph& g, ValueId x, const std::string& name, Pooling2d pooling, int height,
               int width, bool whole) {
  RONDO_CHECK(height >= 1 && width >= 1, "pool2d '", name, "': windows of ", height, " x ", width);
  const int64_t found = height_of(g.shape(x));
  if (height > found) {
    fail_input(
        name, ": windows ", height, " high find an image that is ", found,
        " high; expected fewer layers before it that make the image lower, or taller features");
  }
  return g.add_node("pool2d", {x},
                    {{"pooling", static_cast<int64_t>(pooling)},
                     {"height", found},
                     {"rows", int64_t{height}},
                     {"columns", int64_t{width}},
                     {"level", int64_t{level_after(g, x, width, whole)}}})[0];
}

ValueId lstm_height(Graph& g, ValueId x, const std::string& name, const HeightLstmOptions& o) {
  if (o.summarize && o.bidirectional) {
    fail_input(name,
               ": an LSTM along the height that reads both ways has no last output; expected "
               "bidirectional = false, or summary = false");
  }
  const Shape shape = g.shape(x);
  const int64_t height = height_of(shape);
  const int level = g.add_level({.parent = shape.level, .column = static_cast<int>(height)});
  const ValueId columns =
      g.add_node("columns", {x}, {{"level", int64_t{level}}, {"height", height}})[0];
  const LstmLayerResult result =
      lstm_layer(g, columns, name, {.hidden = o.hidden, .bidirectional = o.bidirectional});
  if (o.summarize) return result.final_state.h;
  return g.add_node("images", {result.y}, {{"level", int64_t{shape.level}}, {"height", height}})[0];
}

}  // namespace rondo::layers
