#include "engine/train/onnx/export_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/pool/pooling.h"
#include "kernels/pool2d/pooling2d.h"

namespace rondo::onnx {
namespace {

using Dims = std::vector<int64_t>;

class Exporter {
 public:
  Exporter(Model& model, const Graph& graph, const SafetensorsFile& weights, Lifetime lifetime)
      : streams_(lifetime == Lifetime::streams),
        model_(model),
        graph_(graph),
        weights_(weights),
        names_(graph.values.size()),
        lengths_(graph.levels.size()),
        there_(graph.levels.size()) {}

  Exported run(const Name& features, const Name& lengths) {
    lengths_[0] = lengths;
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& v = graph_.values[i];
      if (v.role == ValueRole::input && v.shape.axis == Axis::frames) names_[i] = features;
    }
    for (const Node& node : graph_.nodes) {
      if (node.op == "ctc" || node.op == "cross_entropy" || node.op == "mse") {
        const ValueId out = node.inputs.at(0);
        const Shape& shape = graph_.shape(out);
        return {name_of(out), shape.axis == Axis::frames ? lengths_of(shape.level) : Name()};
      }
      add(node);
    }
    RONDO_CHECK(false, "a graph without a loss");
  }

 private:
  // ---- What is looked up

  const Name& name_of(ValueId id) const {
    const Name& name = names_.at(static_cast<size_t>(id));
    RONDO_CHECK(!name.empty(), "value ", graph_.value(id).name, " has not been exported");
    return name;
  }
  void set(const Node& node, Name name, size_t output = 0) {
    names_.at(static_cast<size_t>(node.outputs.at(output))) = std::move(name);
  }
  int64_t cols(ValueId id) const { return graph_.shape(id).cols; }
  int level(ValueId id) const { return graph_.shape(id).level; }

  const StoredTensor& tensor(ValueId id) const { return weights_.at(graph_.value(id).name); }

  // A parameter as its file has it, but of these dimensions.
  Name weight(ValueId id, const Dims& dims) {
    const StoredTensor& t = tensor(id);
    return model_.constant(t.name, dims, t.as<float>());
  }

  // Lengths at a level, made of its parent's when they are needed first.
  Name lengths_of(int level) {
    Name& made = lengths_.at(static_cast<size_t>(level));
    if (!made.empty()) return made;
    const Level& l = graph_.levels.at(static_cast<size_t>(level));
    RONDO_CHECK(l.column == 0, "columns of pixels have no lengths of their own");
    Name from = lengths_of(l.parent);
    if (!l.whole) from = model_.node("Add", {from, model_.integers({l.factor - 1})});
    made = model_.node("Div", {from, model_.integers({l.factor})});
    return made;
  }
  bool is_of_columns(int level) const {
    return graph_.levels.at(static_cast<size_t>(level)).column > 0;
  }

  // Which frames of a level are there, as `x` has them, made when it is needed first.
  Name there(const Name& x, int level) {
    Name& made = there_.at(static_cast<size_t>(level));
    if (made.empty()) made = frames_there(model_, x, lengths_of(level));
    return made;
  }
  Name mask(const Name& x, int level) { return as_numbers(model_, there(x, level)); }
  // With zeros behind the end of each sequence.
  Name masked(const Name& x, int level) {
    if (is_of_columns(level)) return x;  // all of one length
    return model_.node("Where", {there(x, level), x, model_.scalar(0)});
  }

  // ---- Shapes

  Name reshape(const Name& x, std::initializer_list<int64_t> dims) {
    return model_.node("Reshape", {x, model_.integers(dims)});
  }
  Name transpose(const Name& x, Dims order) {
    return model_.node("Transpose", {x}, {{"perm", std::move(order)}});
  }
  // [N, T, height * channels] <-> [N, channels, height, T]
  Name to_image(const Name& x, int64_t height, int64_t channels) {
    return transpose(reshape(x, {0, 0, height, channels}), {0, 3, 2, 1});
  }
  Name to_frames(const Name& image, int64_t height, int64_t channels) {
    return reshape(transpose(image, {0, 3, 2, 1}), {0, 0, height * channels});
  }

  // Frames behind the last so that windows of `factor` divide [N, T, columns].
  Name padded_to_windows(const Name& x, int64_t factor) {
    const Name frames = model_.node("Slice", {model_.node("Shape", {x}), model_.integers({1}),
                                              model_.integers({2}), model_.integers({0})});
    const Name missing =
        model_.node("Mod", {model_.node("Neg", {frames}), model_.integers({factor})});
    const Name none = model_.integers({0});
    const Name pads =
        model_.node("Concat", {none, none, none, none, missing, none}, {{"axis", int64_t{0}}});
    return model_.node("Pad", {x, pads, model_.scalar(0)});
  }

  [[noreturn]] static void refuse_stream(const std::string& what, const char* does) {
    fail_input(what, " ", does, ": it cannot stream");
  }

  // ---- Operators

  void add(const Node& node) {
    using Add = void (Exporter::*)(const Node&);
    static const std::map<std::string, Add, std::less<>> all = {
        {"linear", &Exporter::add_linear},
        {"lstm", &Exporter::add_lstm},
        {"stack_frames", &Exporter::add_stack},
        {"reverse_frames", &Exporter::add_reverse},
        {"conv", &Exporter::add_conv},
        {"pool2d", &Exporter::add_pool2d},
        {"layer_norm", &Exporter::add_layer_norm},
        {"group_norm", &Exporter::add_group_norm},
        {"pointwise", &Exporter::add_pointwise},
        {"pool", &Exporter::add_pool},
        {"log_softmax", &Exporter::add_log_softmax},
        {"columns", &Exporter::add_columns},
        {"images", &Exporter::add_images}};
    const auto found = all.find(node.op);
    if (found == all.end()) fail_input("a layer that is '", node.op, "' has no form in ONNX yet");
    (this->*found->second)(node);
  }

  void add_linear(const Node& node) {
    const int64_t out = graph_.shape(node.inputs[1]).rows, in = graph_.shape(node.inputs[1]).cols;
    // ONNX wants [in, out].
    const std::span<const float> w = tensor(node.inputs[1]).as<float>();
    std::vector<float> turned(w.size());
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < in; ++i)
        turned[static_cast<size_t>(i * out + o)] = w[static_cast<size_t>(o * in + i)];
    Name y = model_.node(
        "MatMul",
        {name_of(node.inputs[0]), model_.constant(tensor(node.inputs[1]).name, {in, out}, turned)});
    if (node.inputs[2] != no_value) y = model_.node("Add", {y, weight(node.inputs[2], {out})});
    set(node, y);
  }

  // Gates of ONNX stand in the order i, o, f, c; ours are i, f, g (its c), o. `blocks` rows each.
  static std::vector<float> in_gate_order(std::span<const float> ours) {
    constexpr size_t order[] = {0, 3, 1, 2};
    const size_t block = ours.size() / 4;
    std::vector<float> out;
    for (const size_t gate : order) {
      const auto from = ours.subspan(gate * block, block);
      out.insert(out.end(), from.begin(), from.end());
    }
    return out;
  }

  void add_lstm(const Node& node) {
    const Attributes& a = node.attributes;
    const int64_t directions = a.integer("directions"), hidden = a.integer("hidden");
    const int64_t in = a.integer("input");
    const std::string layer = graph_.value(node.inputs.at(3)).name;
    if (a.integer("projection") > 0)
      fail_input(layer, ": an LSTM with a projection has no form in ONNX");
    RONDO_CHECK(node.inputs[1] == no_value && node.inputs[2] == no_value, layer, " has states");
    std::vector<float> w, r, b;
    for (int64_t d = 0; d < directions; ++d) {
      const auto at = static_cast<size_t>(3 + 4 * d);
      const auto append = [](std::vector<float>& to, const std::vector<float>& more) {
        to.insert(to.end(), more.begin(), more.end());
      };
      append(w, in_gate_order(tensor(node.inputs[at]).as<float>()));
      append(r, in_gate_order(tensor(node.inputs[at + 1]).as<float>()));
      append(b, in_gate_order(tensor(node.inputs[at + 2]).as<float>()));
      b.resize(b.size() + static_cast<size_t>(4 * hidden));  // of the recurrent product: none
    }
    const bool columns = is_of_columns(level(node.inputs[0]));
    const bool remembers = streams_ && !columns;
    if (remembers && directions == 2) refuse_stream(layer, "reads in both directions");
    const Name lengths = columns ? Name()
                                 : model_.node("Cast", {lengths_of(level(node.inputs[0]))},
                                               {{"to", static_cast<int64_t>(ElementType::i32)}});
    std::vector<Name> inputs = {
        transpose(name_of(node.inputs[0]), {1, 0, 2}),
        model_.constant(layer, {directions, 4 * hidden, in}, w),
        model_.constant(layer + "_recurrent", {directions, 4 * hidden, hidden}, r),
        model_.constant(layer + "_bias", {directions, 8 * hidden}, b), lengths};
    const std::string state = layer.substr(0, layer.rfind(".weight_ih"));
    const std::vector<onnx::Dimension> dims = {int64_t{1}, std::string("N"), hidden};
    if (remembers) {
      inputs.push_back(model_.input(state + ".h", ElementType::f32, dims));
      inputs.push_back(model_.input(state + ".c", ElementType::f32, dims));
    }
    const std::vector<Name> out =
        model_.nodes("LSTM", inputs,
                     {{"hidden_size", hidden},
                      {"direction", std::string(directions == 2 ? "bidirectional" : "forward")}},
                     3);
    if (remembers) {
      model_.output(out[1], state + ".h.next", ElementType::f32, dims);
      model_.output(out[2], state + ".c.next", ElementType::f32, dims);
    }
    // [T, D, N, H] -> [N, T, D H]; [D, N, H] -> [N, D H].
    set(node, reshape(transpose(out[0], {2, 0, 1, 3}), {0, 0, directions * hidden}));
    Name last = reshape(transpose(out[1], {1, 0, 2}), {0, directions * hidden});
    if (columns) last = model_.node("Reshape", {last, shape_of_frames(directions * hidden)});
    set(node, last, 1);
  }

  // [N, T, columns], of the image that was taken apart last.
  Name shape_of_frames(int64_t columns) {
    const Name ends =
        model_.node("Slice", {model_.node("Shape", {whole_image_}), model_.integers({0}),
                              model_.integers({2}), model_.integers({0})});
    return model_.node("Concat", {ends, model_.integers({columns})}, {{"axis", int64_t{0}}});
  }

  void add_columns(const Node& node) {
    const int64_t height = node.attributes.integer("height");
    whole_image_ = name_of(node.inputs[0]);
    set(node, reshape(whole_image_, {-1, height, cols(node.inputs[0]) / height}));
  }
  void add_images(const Node& node) {
    set(node,
        model_.node("Reshape", {name_of(node.inputs[0]), shape_of_frames(cols(node.outputs[0]))}));
  }

  void add_stack(const Node& node) {
    const int64_t factor = node.attributes.integer("factor");
    const Name x = masked(name_of(node.inputs[0]), level(node.inputs[0]));
    set(node, reshape(padded_to_windows(x, factor), {0, -1, cols(node.outputs[0])}));
  }

  void add_reverse(const Node& node) {
    if (streams_) refuse_stream("a layer", "reads backwards");
    set(node,
        model_.node("ReverseSequence", {name_of(node.inputs[0]), lengths_of(level(node.inputs[0]))},
                    {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}}));
  }

  void add_conv(const Node& node) {
    const Attributes& a = node.attributes;
    const auto of = [&](const char* key) { return a.integer(key); };
    const int64_t out = graph_.shape(node.inputs[1]).rows, groups = of("groups");
    const int64_t taps = of("kernel") * of("kernel_rows");
    const int64_t in = graph_.shape(node.inputs[1]).cols / taps;  // of a group
    const int64_t height = std::max<int64_t>(of("height"), 1);
    const int64_t out_height = std::max<int64_t>(of("out_height"), 1);
    // So many behind that ceil(length / stride) come out.
    const int64_t right = of("dilation") * (of("kernel") - 1) - of("left");
    const int64_t below = of("row_dilation") * (of("kernel_rows") - 1) - of("above");
    const std::string layer = graph_.value(node.inputs[1]).name;
    Name x = masked(name_of(node.inputs[0]), level(node.inputs[0]));
    int64_t left = of("left");
    if (streams_ && right > 0) refuse_stream(layer, "looks at frames that are still to come");
    if (streams_ && left > 0) {
      x = after_past(x, layer.substr(0, layer.rfind(".weight")), left, cols(node.inputs[0]));
      left = 0;
    }
    const Name y = model_.node("Conv",
                               {to_image(x, height, in * groups),
                                weight(node.inputs[1], {out, in, of("kernel_rows"), of("kernel")}),
                                weight(node.inputs[2], {out})},
                               {{"kernel_shape", Dims{of("kernel_rows"), of("kernel")}},
                                {"strides", Dims{of("row_stride"), of("stride")}},
                                {"dilations", Dims{of("row_dilation"), of("dilation")}},
                                {"group", groups},
                                {"pads", Dims{of("above"), left, below, right}}});
    set(node, to_frames(y, out_height, out));
  }

  // The frames of a stream behind those that came before, of which the last are remembered.
  Name after_past(const Name& x, const std::string& layer, int64_t frames, int64_t columns) {
    const std::vector<onnx::Dimension> dims = {std::string("N"), frames, columns};
    const Name past = model_.input(layer + ".past", ElementType::f32, dims);
    const Name all = model_.node("Concat", {past, x}, {{"axis", int64_t{1}}});
    const Name last = model_.node(
        "Slice", {all, model_.integers({-frames}),
                  model_.integers({std::numeric_limits<int64_t>::max()}), model_.integers({1})});
    model_.output(last, layer + ".past.next", ElementType::f32, dims);
    return all;
  }

  void add_pool2d(const Node& node) {
    const Attributes& a = node.attributes;
    const int64_t height = a.integer("height"), rows = a.integer("rows");
    const int64_t columns = a.integer("columns"), channels = cols(node.inputs[0]) / height;
    const int from = level(node.inputs[0]);
    const bool greatest = static_cast<Pooling2d>(a.integer("pooling")) == Pooling2d::greatest;
    const std::vector<Attribute> window = {{"kernel_shape", Dims{rows, columns}},
                                           {"strides", Dims{rows, columns}}};
    const Name x = name_of(node.inputs[0]);
    const Name share = mask(x, from);
    const auto image_of = [&](const Name& frames, int64_t h, int64_t c) {
      return to_image(padded_to_windows(frames, columns), h, c);
    };
    Name y;
    if (greatest) {
      // What is not there is less than anything: x - (1 - mask) * much, of zeros where it is not.
      const Name absent = model_.node("Sub", {model_.scalar(1), padded_to_windows(share, columns)});
      const Name least =
          model_.node("Mul", {absent, model_.scalar(std::numeric_limits<float>::lowest())});
      const Name known = model_.node("Add", {padded_to_windows(masked(x, from), columns), least});
      y = model_.node("MaxPool", {to_image(known, height, channels)}, window);
    } else {
      // The mean of zeros too, by the share that is there.
      const Name all =
          model_.node("AveragePool", {image_of(masked(x, from), height, channels)}, window);
      const std::vector<Attribute> of_mask = {{"kernel_shape", Dims{1, columns}},
                                              {"strides", Dims{1, columns}}};
      const Name part = model_.node("AveragePool", {image_of(share, 1, 1)}, of_mask);
      // Behind the end there is nothing to divide by.
      y = model_.node("Div", {all, model_.node("Max", {part, model_.scalar(1e-6F)})});
    }
    set(node, to_frames(y, height / rows, channels));
  }

  void add_layer_norm(const Node& node) {
    const int64_t n = cols(node.inputs[0]);
    set(node, model_.node("LayerNormalization",
                          {name_of(node.inputs[0]), weight(node.inputs[1], {n}),
                           weight(node.inputs[2], {n})},
                          {{"axis", int64_t{-1}},
                           {"epsilon", static_cast<float>(node.attributes.real("epsilon"))}}));
  }

  void add_group_norm(const Node& node) {
    if (streams_)
      refuse_stream(graph_.value(node.inputs[1]).name, "normalises over the whole sequence");
    const int64_t height = node.attributes.integer("height");
    const int64_t groups = node.attributes.integer("groups");
    const int64_t channels = cols(node.inputs[0]) / height;
    const int at = level(node.inputs[0]);
    const auto apart = [&](const Name& x) {
      return reshape(x, {0, 0, height, groups, channels / groups});
    };
    const Name x = name_of(node.inputs[0]);
    // [N, T, 1, 1, 1], and how many numbers a group of each sequence has: [N, 1, 1, 1, 1].
    const Name share = reshape(mask(x, at), {0, 0, 1, 1, 1});
    const Name frames = model_.node("Cast", {reshape(lengths_of(at), {-1, 1, 1, 1, 1})},
                                    {{"to", static_cast<int64_t>(ElementType::f32)}});
    const Name count =
        model_.node("Mul", {frames, model_.scalar(static_cast<float>(height * channels / groups))});
    const auto mean = [&](const Name& of) {
      const Name sum = model_.node("ReduceSum", {of, model_.integers({1, 2, 4})});
      return model_.node("Div", {sum, count});
    };
    const Name known = apart(masked(x, at));
    const Name centred = model_.node("Mul", {model_.node("Sub", {known, mean(known)}), share});
    const Name variance = mean(model_.node("Mul", {centred, centred}));
    const auto epsilon = static_cast<float>(node.attributes.real("epsilon"));
    const Name deviation =
        model_.node("Sqrt", {model_.node("Add", {variance, model_.scalar(epsilon)})});
    const Name y = reshape(model_.node("Div", {centred, deviation}), {0, 0, height, channels});
    const Name scaled = model_.node("Mul", {y, weight(node.inputs[1], {channels})});
    set(node, reshape(model_.node("Add", {scaled, weight(node.inputs[2], {channels})}),
                      {0, 0, height * channels}));
  }

  void add_pointwise(const Node& node) {
    const Name x = name_of(node.inputs[0]);
    switch (static_cast<PointwiseFunction>(node.attributes.integer("function"))) {
      case PointwiseFunction::copy:
        return set(node, x);
      case PointwiseFunction::relu:
        return set(node, model_.node("Relu", {x}));
      case PointwiseFunction::tanh:
        return set(node, model_.node("Tanh", {x}));
      case PointwiseFunction::sigmoid:
        return set(node, model_.node("Sigmoid", {x}));
      case PointwiseFunction::add:
        return set(node, model_.node("Add", {x, name_of(node.inputs[1])}));
      case PointwiseFunction::bias:
        return set(node, model_.node("Add", {x, weight(node.inputs[1], {cols(node.inputs[0])})}));
      case PointwiseFunction::gelu:
        break;
    }
    // x (1 + erf(x / sqrt(2))) / 2
    const Name erf = model_.node(
        "Erf", {model_.node("Mul", {x, model_.scalar(static_cast<float>(std::sqrt(0.5)))})});
    const Name half = model_.node("Mul", {x, model_.scalar(0.5F)});
    set(node, model_.node("Mul", {half, model_.node("Add", {erf, model_.scalar(1)})}));
  }

  void add_pool(const Node& node) {
    if (streams_) refuse_stream("the model", "says one thing of a whole sequence");
    const int at = level(node.inputs[0]);
    const Name x = name_of(node.inputs[0]);
    const Name lengths = lengths_of(at);
    Name share = mask(x, at);  // of each frame in the result
    if (static_cast<Pooling>(node.attributes.integer("pooling")) == Pooling::last) {
      const Name before = model_.node("Sub", {lengths, model_.integers({1})});
      share = model_.node("Sub", {share, as_numbers(model_, frames_there(model_, x, before))});
    } else {
      const Name n = model_.node("Cast", {reshape(lengths, {-1, 1, 1})},
                                 {{"to", static_cast<int64_t>(ElementType::f32)}});
      share = model_.node("Div", {share, n});
    }
    set(node,
        model_.node("ReduceSum", {model_.node("Mul", {masked(x, at), share}), model_.integers({1})},
                    {{"keepdims", int64_t{0}}}));
  }

  void add_log_softmax(const Node& node) {
    set(node, model_.node("LogSoftmax", {name_of(node.inputs[0])}, {{"axis", int64_t{-1}}}));
  }

  const bool streams_;
  Model& model_;
  const Graph& graph_;
  const SafetensorsFile& weights_;
  std::vector<Name> names_;            // of values
  std::vector<Name> lengths_, there_;  // by level
  Name whole_image_;
};

}  // namespace

Name frames_there(Model& model, const Name& like, const Name& lengths) {
  const Name frames = model.node("Gather", {model.node("Shape", {like}), model.integers({1})},
                                 {{"axis", int64_t{0}}});
  const Name ones = model.node("Expand", {model.integers({1}), frames});
  const Name end = model.node("CumSum", {ones, model.integers({0})});  // 1, 2, ...
  const Name late =
      model.node("Greater", {model.node("Reshape", {end, model.integers({1, -1, 1})}),
                             model.node("Reshape", {lengths, model.integers({-1, 1, 1})})});
  return model.node("Not", {late});
}

Name as_numbers(Model& model, const Name& truth) {
  return model.node("Cast", {truth}, {{"to", static_cast<int64_t>(ElementType::f32)}});
}

Exported export_graph(Model& model, const Graph& graph, const SafetensorsFile& weights,
                      const Name& features, const Name& lengths, Lifetime lifetime) {
  return Exporter(model, graph, weights, lifetime).run(features, lengths);
}

}  // namespace rondo::onnx
