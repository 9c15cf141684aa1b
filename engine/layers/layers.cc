#include "engine/layers/layers.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"
#include "kernels/base/hash.h"
#include "kernels/pool/pool.h"

namespace rondo::layers {
namespace {

ValueId cast_to_compute(Graph& g, ValueId x) {
  if (g.value(x).dtype == g.compute) return x;
  return g.add_node("cast", {x}, {{"dtype", static_cast<int64_t>(g.compute)}})[0];
}

DType input_dtype(const Graph& g) { return g.compute == DType::f64 ? DType::f64 : DType::f32; }

ValueId pointwise(Graph& g, PointwiseFunction f, std::vector<ValueId> inputs) {
  return g.add_node("pointwise", std::move(inputs), {{"function", static_cast<int64_t>(f)}})[0];
}

// Of a node of products: with operands of 8 bits where the graph says so.
Attributes of_products(const Graph& g, Attributes attributes) {
  return g.int8 ? attributes.with("int8", int64_t{1}) : attributes;
}

Init uniform(double bound) { return {Init::uniform, bound}; }

ValueId reverse(Graph& g, ValueId x) { return g.add_node("reverse_frames", {x})[0]; }

}  // namespace

ValueId input_frames(Graph& g, std::string name, int64_t cols) {
  return cast_to_compute(g, g.add_input(std::move(name), Shape::frames(0, cols), input_dtype(g)));
}

ValueId input_sequences(Graph& g, std::string name, int64_t cols) {
  return cast_to_compute(g, g.add_input(std::move(name), Shape::sequences(cols), input_dtype(g)));
}

ValueId linear(Graph& g, ValueId x, const std::string& name, int64_t out, bool bias) {
  const int64_t in = g.shape(x).cols;
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  const ValueId w = g.add_parameter(name + ".weight", out, in, uniform(bound));
  const ValueId b = bias ? g.add_parameter(name + ".bias", 1, out, {Init::constant, 0}) : no_value;
  return g.add_node("linear", {x, g.as_compute(w), b}, of_products(g, {}))[0];
}

LstmLayerResult lstm_layer(Graph& g, ValueId x, const std::string& name, const LstmOptions& o,
                           LstmState initial) {
  RONDO_CHECK(o.hidden > 0, "lstm '", name, "': hidden is ", o.hidden);
  RONDO_CHECK(o.projection >= 0, "lstm '", name, "': projection is ", o.projection);
  const int directions = o.bidirectional ? 2 : 1;
  const int64_t in = g.shape(x).cols, output = o.projection ? o.projection : o.hidden;
  const double bound = 1 / std::sqrt(static_cast<double>(o.hidden));
  std::vector<ValueId> inputs = {x, initial.h, initial.c};
  for (int d = 0; d < directions; ++d) {
    const std::string suffix = d ? "_reverse" : "";
    auto weight = [&](const char* what, int64_t rows, int64_t cols) {
      const auto init =
          uniform(what == std::string_view(".weight_ih") ? 1 / std::sqrt(static_cast<double>(cols))
                                                         : bound);
      return g.as_compute(g.add_parameter(name + what + suffix, rows, cols, init));
    };
    inputs.push_back(weight(".weight_ih", 4 * o.hidden, in));
    inputs.push_back(weight(".weight_hh", 4 * o.hidden, output));
    inputs.push_back(
        g.add_parameter(name + ".bias" + suffix, 1, 4 * o.hidden, {Init::lstm_bias, 1.0}));
    inputs.push_back(o.projection ? weight(".weight_hr", o.projection, o.hidden) : no_value);
  }
  const auto out = g.add_node("lstm", std::move(inputs),
                              of_products(g, {{"directions", int64_t{directions}},
                                              {"input", in},
                                              {"hidden", o.hidden},
                                              {"projection", o.projection}}));
  return {out[0], {out[1], out[2]}};
}

ValueId lstm(Graph& g, ValueId x, const std::string& name, const LstmOptions& o) {
  RONDO_CHECK(o.layers >= 1, "lstm '", name, "': ", o.layers, " layers");
  if (o.backward && o.bidirectional) {
    fail_input(name,
               ": an LSTM reads backwards, or in both directions; expected bidirectional = false "
               "with backward = true");
  }
  for (int l = 0; l < o.layers; ++l) {
    const std::string layer = str(name, ".", l);
    ValueId y = o.backward ? reverse(g, lstm_layer(g, reverse(g, x), layer, o).y)
                           : lstm_layer(g, x, layer, o).y;
    if (o.residual && g.shape(y) == g.shape(x)) y = add(g, y, x);
    if (o.layer_norm) y = layer_norm(g, y, layer + ".norm");
    if (l + 1 < o.layers) y = dropout(g, y, layer + ".dropout", o.dropout);
    x = y;
  }
  return x;
}

ValueId activation(Graph& g, ValueId x, PointwiseFunction function) {
  return pointwise(g, function, {x});
}

ValueId add(Graph& g, ValueId a, ValueId b) { return pointwise(g, PointwiseFunction::add, {a, b}); }

ValueId dropout(Graph& g, ValueId x, const std::string& name, double p, DropoutOver over) {
  RONDO_CHECK(p >= 0 && p < 1, "dropout '", name, "': p is ", p, ", expected [0, 1)");
  if (!g.training || p == 0) return x;
  const auto layer = static_cast<int64_t>(fnv1a(name) & 0x7fffffff);
  const Shape& shape = g.shape(x);
  const int64_t channels =
      over == DropoutOver::channels ? shape.cols / std::max<int64_t>(shape.height, 1) : 0;
  return g.add_node("dropout", {x}, {{"p", p}, {"layer", layer}, {"channels", channels}})[0];
}

ValueId layer_norm(Graph& g, ValueId x, const std::string& name, double epsilon) {
  const int64_t cols = g.shape(x).cols;
  const ValueId w = g.add_parameter(name + ".weight", 1, cols, {Init::constant, 1});
  const ValueId b = g.add_parameter(name + ".bias", 1, cols, {Init::constant, 0});
  return g.add_node("layer_norm", {x, w, b}, {{"epsilon", epsilon}})[0];
}

ValueId group_norm(Graph& g, ValueId x, const std::string& name, int groups, double epsilon) {
  RONDO_CHECK(groups >= 1, "group_norm '", name, "': ", groups, " groups");
  const Shape& shape = g.shape(x);
  const int64_t height = std::max<int64_t>(shape.height, 1), channels = shape.cols / height;
  if (channels % groups != 0) {
    fail_input(name, ": ", groups, " groups do not divide ", channels,
               " channels; expected as many channels in each group");
  }
  const ValueId w = g.add_parameter(name + ".weight", 1, channels, {Init::constant, 1});
  const ValueId b = g.add_parameter(name + ".bias", 1, channels, {Init::constant, 0});
  return g.add_node("group_norm", {x, w, b},
                    {{"epsilon", epsilon}, {"groups", int64_t{groups}}, {"height", height}})[0];
}

ValueId stack_frames(Graph& g, ValueId x, int factor) {
  RONDO_CHECK(factor >= 1, "stack_frames: factor ", factor);
  if (factor == 1) return x;
  const int level = g.add_level(g.shape(x).level, factor);
  return g.add_node("stack_frames", {x},
                    {{"factor", int64_t{factor}}, {"level", int64_t{level}}})[0];
}

namespace {
ValueId pool(Graph& g, ValueId x, Pooling kind) {
  return g.add_node("pool", {x}, {{"pooling", static_cast<int64_t>(kind)}})[0];
}
}  // namespace

ValueId last_frame(Graph& g, ValueId x) { return pool(g, x, Pooling::last); }
ValueId mean_pool(Graph& g, ValueId x) { return pool(g, x, Pooling::mean); }
ValueId log_softmax(Graph& g, ValueId x) { return g.add_node("log_softmax", {x})[0]; }

ValueId ctc_loss(Graph& g, ValueId logits, const CtcLossOptions& o) {
  return g.add_node("ctc", {logits},
                    {{"blank", int64_t{o.blank}},
                     {"zero_infinity", int64_t{o.zero_infinity}},
                     {"log_softmax_input", int64_t{o.log_softmax_input}}})[0];
}

ValueId cross_entropy(Graph& g, ValueId logits, const std::string& targets_name) {
  Shape s = g.shape(logits);
  s.cols = 1;
  const ValueId targets = g.add_input(targets_name, s, DType::i32);
  return g.add_node("cross_entropy", {logits, targets})[0];
}

ValueId mean_squared_error(Graph& g, ValueId prediction, const std::string& targets_name) {
  const ValueId targets = g.add_input(targets_name, g.shape(prediction), input_dtype(g));
  return g.add_node("mse", {prediction, targets})[0];
}

}  // namespace rondo::layers
