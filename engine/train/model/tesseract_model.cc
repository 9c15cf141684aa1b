#include "engine/train/model/tesseract_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "engine/config/layer_types.h"
#include "engine/text/alphabet.h"
#include "engine/text/reading_order.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

enum Component : size_t { network_component = 17, characters_component = 21, codes_component = 22 };
constexpr const char* component_name(Component c) {
  return c == network_component ? "network" : c == characters_component ? "characters" : "codes";
}

constexpr int32_t most_components = 1024;
constexpr int deepest = 8;         // layers within layers; Tesseract's have three
constexpr int32_t widest = 65536;  // inputs or outputs of a layer

// What is left of a component, from front to back.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string where)
      : all_(bytes.size()), left_(bytes), where_(std::move(where)) {}

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_input(where_, ", byte ", all_ - left_.size(), ": ", parts...);
  }
  std::span<const std::byte> take(uint64_t count, const char* what) {
    if (count > left_.size())
      fail("found ", left_.size(), " bytes, expected ", count, " more, for ", what);
    const auto found = left_.first(static_cast<size_t>(count));
    left_ = left_.subspan(static_cast<size_t>(count));
    return found;
  }
  template <class T>
  T number(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  int32_t within(int32_t low, int32_t high, const char* what) {
    const auto value = number<int32_t>(what);
    if (value < low || value > high)
      fail("found ", value, " as ", what, ", expected ", low, " to ", high);
    return value;
  }
  std::string text(const char* what) {
    const auto bytes = take(number<uint32_t>(what), what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool at_end() const { return left_.empty(); }

 private:
  size_t all_;
  std::span<const std::byte> left_;
  std::string where_;
};

// ---- the network as it is stored ----

struct Weights {
  int64_t rows = 0, cols = 0;  // the last column is the bias
  std::vector<float> values;   // [rows, cols]
  float at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * cols + col)]; }
};

struct Layer {
  std::string type;
  int32_t inputs = 0, outputs = 0;
  int32_t height = 0;            // of images: Input
  int32_t along = 0, down = 0;   // Convolve: pixels on each side; Maxpool: of a window
  std::vector<Layer> children;   // Series, the Parallels, and the reversals
  std::vector<Weights> weights;  // LSTMs: cell input, input, forget and output gate
};

bool is_any_of(const std::string& what, std::initializer_list<const char*> those) {
  return std::any_of(those.begin(), those.end(), [&](const char* one) { return what == one; });
}

class LayerReader {
 public:
  explicit LayerReader(Cursor& in) : in_(in) {}

  Layer read(int depth = 0) {
    if (depth > deepest) in_.fail("found layers within layers more than ", deepest, " deep");
    Layer layer;
    if (in_.number<int8_t>("the kind of a layer") != 0)
      in_.fail("found a layer of a kind without a name, as Tesseract 3 wrote them");
    layer.type = in_.text("the kind of a layer");
    const bool training = in_.number<int8_t>("whether a layer is in training") == 1;
    in_.number<int8_t>("whether a layer has gradients");
    const auto flags = in_.number<int32_t>("the flags of a layer");
    layer.inputs = in_.within(0, widest, "the inputs of a layer");
    layer.outputs = in_.within(0, widest, "the outputs of a layer");
    in_.number<int32_t>("the number of weights");
    in_.text("the name of a layer");
    if (training)
      in_.fail(
          "found a layer that is in training; expected a finished model, as lstmtraining "
          "--stop_training writes it");
    read_rest(layer, flags, depth);
    return layer;
  }

 private:
  void read_rest(Layer& layer, int32_t flags, int depth) {
    constexpr int32_t own_learning_rates = 64;
    if (is_any_of(layer.type,
                  {"Series", "Parallel", "ParBidiLSTM", "XYTranspose", "RTLReversed"})) {
      const int32_t count = in_.within(1, 1000, "the number of layers in a layer");
      for (int32_t i = 0; i < count; ++i) layer.children.push_back(read(depth + 1));
      if (flags & own_learning_rates)
        in_.take(uint64_t{4} * in_.number<uint32_t>("learning rates"), "learning rates");
    } else if (layer.type == "Input") {
      in_.within(1, 1, "the images at a time");
      layer.height = in_.within(4, 1024, "the height of the images");
      in_.within(0, 0, "the width of the images, which is any");
      in_.within(1, 1, "the channels of the images");
      in_.number<int32_t>("the kind of loss");
    } else if (layer.type == "Convolve") {
      layer.along = in_.within(0, 15, "half the width of a kernel");
      layer.down = in_.within(0, 15, "half the height of a kernel");
    } else if (layer.type == "Maxpool") {
      layer.along = in_.within(1, 64, "the width of a window");
      layer.down = in_.within(1, 64, "the height of a window");
    } else if (is_any_of(layer.type, {"LSTM", "SummLSTM"})) {
      in_.number<int32_t>("the inputs of the gates");
      for (int gate = 0; gate < 4; ++gate)
        layer.weights.push_back(read_weights(layer.outputs, layer.inputs + layer.outputs + 1));
    } else if (is_any_of(layer.type, {"Softmax", "Tanh", "Relu", "Logistic", "Linear"})) {
      layer.weights.push_back(read_weights(layer.outputs, layer.inputs + 1));
    } else {
      in_.fail("found a layer of the kind '", layer.type, "', which is not read");
    }
  }

  Weights read_weights(int64_t rows, int64_t cols) {
    enum : uint8_t { bytes = 1, doubles = 128 };
    const auto mode = in_.number<uint8_t>("how weights are stored");
    if (!(mode & doubles)) in_.fail("found weights in the format before Tesseract 4");
    const auto found_rows = in_.number<uint32_t>("rows of weights");
    const auto found_cols = in_.number<uint32_t>("columns of weights");
    if (found_rows != rows || found_cols != cols)
      in_.fail("found ", found_rows, " x ", found_cols, " weights, expected ", rows, " x ", cols);
    const auto count = static_cast<uint64_t>(rows * cols);
    Weights w{rows, cols, {}};
    if (mode & bytes) {
      in_.take(1, "weights");  // of an element that is nowhere
      const auto stored = in_.take(count, "weights");
      const auto scales = in_.number<uint32_t>("scales of weights");
      if (scales < rows) in_.fail("found ", scales, " scales, expected ", rows);
      const auto scale = in_.take(uint64_t{8} * scales, "scales of weights");
      w.values.reserve(count);
      for (uint64_t i = 0; i < count; ++i) {
        const double s = double_at(scale, i / static_cast<uint64_t>(cols));
        w.values.push_back(static_cast<float>(static_cast<int8_t>(stored[i]) * s));
      }
    } else {
      in_.take(8, "weights");
      const auto stored = in_.take(8 * count, "weights");
      w.values.reserve(count);
      for (uint64_t i = 0; i < count; ++i)
        w.values.push_back(static_cast<float>(double_at(stored, i)));
    }
    if (!std::all_of(w.values.begin(), w.values.end(), [](float v) { return std::isfinite(v); }))
      in_.fail("found a weight that is no finite number before this place");
    return w;
  }

  static double double_at(std::span<const std::byte> bytes, uint64_t index) {
    double value;
    std::memcpy(&value, bytes.data() + 8 * index, sizeof value);
    return value;
  }

  Cursor& in_;
};

// ---- the same as a model of ours ----

class Converter {
 public:
  Converter(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  ForeignModel convert() {
    read_table();
    Cursor in = component(network_component);
    const Layer network = LayerReader(in).read();
    in.text("the network's description");
    in.number<int32_t>("flags of training");
    in.number<int32_t>("iterations");
    in.number<int32_t>("samples");
    blank_ = in.number<int32_t>("the class of no character");
    flatten(network);
    read_classes();
    convert_layers();
    describe();
    return std::move(model_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_input(name_, ": ", parts...);
  }

  void read_table() {
    Cursor in(bytes_, name_ + " (a model of Tesseract's)");
    const auto count =
        static_cast<size_t>(in.within(1, most_components, "the number of its components"));
    for (size_t i = 0; i < count; ++i) begins_.push_back(in.number<int64_t>("a component's place"));
  }

  // A component ends where the next one begins.
  Cursor component(Component which) const {
    const int64_t begin = which < begins_.size() ? begins_[which] : -1;
    const auto size = static_cast<int64_t>(bytes_.size());
    if (begin < 0)
      fail("has no ", component_name(which), " of an LSTM (component ", size_t{which},
           "), as models of Tesseract 3 or its training files; expected a model of Tesseract 4 or "
           "5");
    if (begin > size) fail("component ", size_t{which}, " begins at byte ", begin, " of ", size);
    int64_t end = size;
    for (const int64_t other : begins_) {
      if (other > begin) end = std::min(end, other);
    }
    return {bytes_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
            str(name_, " (its ", component_name(which), ")")};
  }

  void flatten(const Layer& layer) {
    if (layer.type != "Series") {
      layers_.push_back(&layer);
      return;
    }
    for (const Layer& child : layer.children) flatten(child);
  }

  // The texts of the characters, in their order.
  std::vector<std::string> read_characters() const {
    Cursor in = component(characters_component);
    std::vector<std::string> lines(1);
    while (!in.at_end()) {
      const auto c = in.number<char>("characters");
      if (c == '\n') {
        lines.emplace_back();
      } else {
        lines.back() += c;
      }
    }
    std::vector<std::string> texts;
    for (size_t i = 1; i < lines.size(); ++i) {
      if (lines[i].empty()) continue;
      texts.push_back(lines[i].substr(0, lines[i].find(' ')));
      if (texts.back() == "NULL") texts.back() = " ";
    }
    if (lines[0] != std::to_string(texts.size()))
      fail("its characters are ", texts.size(), " and said to be '", lines[0].substr(0, 24), "'");
    return texts;
  }

  // Which row of the output is which label. What is written for no character, as the marks of
  // joined and broken ones, has no row of its own. A character of several classes has one for each
  // of its code points.
  void read_classes() {
    const std::vector<std::string> characters = read_characters();
    Cursor in = component(codes_component);
    const int32_t classes = layers_.back()->outputs;
    if (blank_ < 0 || blank_ >= classes)
      fail("the class of no character is ", blank_, ", expected 0 to ", classes - 1);
    const auto count = in.number<uint32_t>("the number of codes");
    if (count != characters.size())
      fail("it has ", count, " codes for ", characters.size(), " characters");
    std::map<int32_t, std::string> texts;  // of classes
    for (const std::string& text : characters) {
      const bool first = in.number<int8_t>("whether a code is its own") != 0;
      std::vector<int32_t> codes;
      for (int32_t left = in.within(1, 9, "the length of a code"); left > 0; --left)
        codes.push_back(in.within(0, classes - 1, "a code"));
      const bool is_mark = text == "Joined" || text.starts_with("|Broken|");
      if (is_mark || !first || codes == std::vector<int32_t>{blank_}) continue;
      add_texts(text, codes, texts);
    }
    rows_ = {blank_};
    for (const auto& [code, text] : texts) {
      rows_.push_back(code);
      model_.description.alphabet.push_back(text);
    }
    int balance = 0;
    for (const std::string& symbol : model_.description.alphabet) {
      const char32_t c = code_points(symbol).front();
      balance += is_written_leftwards(c) - is_written_rightwards(c);
    }
    leftwards_ = balance > 0;
    try {
      static_cast<void>(Alphabet(model_.description.alphabet));
    } catch (const InputError& e) {
      fail("its characters cannot be an alphabet: ", e.what());
    }
  }

  // What each class of a character writes.
  void add_texts(const std::string& text, const std::vector<int32_t>& codes,
                 std::map<int32_t, std::string>& texts) const {
    std::vector<std::string> parts;
    try {
      parts = {to_nfc(text)};
      if (codes.size() > 1) {
        parts.clear();
        for (const char32_t c : code_points(text)) parts.push_back(to_nfc(to_utf8(c)));
      }
    } catch (const InputError& e) {
      fail("its characters cannot be an alphabet: ", e.what());
    }
    if (parts.size() != codes.size())
      fail("it writes '", text, "' in ", codes.size(),
           " classes, one after another; expected one for each of its ", parts.size(),
           " code points");
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto [known, is_new] = texts.try_emplace(codes[i], parts[i]);
      if (codes[i] == blank_ || (!is_new && known->second != parts[i]))
        fail("it has two characters for the class ", codes[i], ", the second is '", parts[i], "'");
    }
  }

  const Layer& layer() const { return *layers_[at_]; }
  void require_inputs(const Layer& l, int32_t found) const {
    if (l.inputs != found)
      fail("a layer '", l.type, "' has ", l.inputs, " inputs and finds ", found);
  }

  void convert_layers() {
    if (layers_.front()->type != "Input") fail("its network begins with no images");
    height_ = rows_high_ = layers_.front()->height;
    for (at_ = 1; at_ + 1 < layers_.size(); ++at_) {
      const std::string& type = layer().type;
      if (type == "Convolve") {
        add_convolution();
      } else if (type == "Maxpool") {
        add_pooling();
      } else if (type == "XYTranspose") {
        add_summary();
      } else {
        add_lstm();
      }
    }
    if (layers_.size() < 2 || layer().type != "Softmax" || layer().weights.empty())
      fail("its network ends with '", layers_.back()->type, "', expected a softmax of characters");
    require_frames();
    add_output();
  }

  LayerConfig& append(const char* type) {
    config_.emplace_back(type);
    return config_.back();
  }
  std::string name() const { return str(config_.back().type().prefix, config_.size() - 1); }
  void add(const std::string& tensor, std::vector<int64_t> shape, std::vector<float> values) {
    model_.tensors.push_back({tensor, std::move(shape), std::move(values)});
  }
  void require_image() const {
    if (!image_) fail("its network has a layer '", layer().type, "' after the lines are frames");
  }
  void require_frames() const {
    if (image_ && rows_high_ != 1)
      fail("its network has a layer '", layer().type, "' where the lines are still images");
  }

  // Tesseract has all pixels under a kernel in one row, column by column, and then a full layer.
  void add_convolution() {
    require_image();
    const Layer& l = layer();
    require_inputs(l, values_);
    ++at_;
    const char* activation = layer().type == "Tanh"       ? "tanh"
                             : layer().type == "Relu"     ? "relu"
                             : layer().type == "Logistic" ? "sigmoid"
                             : layer().type == "Linear"   ? ""
                                                          : nullptr;
    const int64_t across = 2 * l.along + 1, high = 2 * l.down + 1, from = l.inputs;
    const int64_t to = layer().outputs, taps = across * high * from;
    if (!activation || at_ + 1 >= layers_.size() || layer().inputs != taps || to < 1)
      fail("its network has a convolution without weights that fit it");
    LayerConfig& c = append("conv2d");
    c.set("channels", static_cast<int>(to));
    c.set("kernel_height", static_cast<int>(high));
    c.set("kernel_width", static_cast<int>(across));
    const Weights& w = layer().weights.front();
    std::vector<float> weight, bias;
    for (int64_t o = 0; o < to; ++o) {
      for (int64_t channel = 0; channel < from; ++channel) {
        for (int64_t y = 0; y < high; ++y) {
          for (int64_t x = 0; x < across; ++x) {
            const int64_t column = leftwards_ ? across - 1 - x : x;
            weight.push_back(w.at(o, (column * high + y) * from + channel));
          }
        }
      }
      bias.push_back(w.at(o, taps));
    }
    add(name() + ".weight", {to, from, high, across}, std::move(weight));
    add(name() + ".bias", {1, to}, std::move(bias));
    if (*activation) append(activation);
    values_ = static_cast<int32_t>(to);
  }

  void add_pooling() {
    require_image();
    if (layer().down > rows_high_) fail("its network pools more rows than a line has there");
    rows_high_ /= layer().down;
    LayerConfig& c = append("pool2d");
    c.set("height", layer().down);
    c.set("width", layer().along);
    c.set("whole", true);
  }

  void add_summary() {
    require_image();
    const Layer& l = layer();
    if (l.children.size() != 1 || l.children[0].type != "SummLSTM")
      fail("its network has an LSTM along the height that leaves more than its last output");
    LayerConfig& c = append("lstm_height");
    c.set("hidden", hidden_of(l.children[0]));
    c.set("bidirectional", false);
    add_gates(l.children[0], name(), "");
    image_ = false;
    values_ = l.children[0].outputs;
    swapped_half_ = 0;
  }

  int hidden_of(const Layer& l) const {
    if (l.outputs < 1) fail("its network has an LSTM without cells");
    return l.outputs;
  }

  void add_lstm() {
    require_frames();
    const Layer *forward = nullptr, *backward = nullptr;
    const auto place = [&](const Layer& l) {
      const bool reversed = l.type == "RTLReversed" && l.children.size() == 1;
      const Layer& inner = reversed ? l.children[0] : l;
      if (inner.type != "LSTM")
        fail("its network has a layer '", inner.type, "' in a place where none is read");
      (reversed ? backward : forward) = &inner;
    };
    if (is_any_of(layer().type, {"Parallel", "ParBidiLSTM"}) && layer().children.size() == 2) {
      place(layer().children[0]);
      place(layer().children[1]);
      if (!forward || !backward || forward->outputs != backward->outputs ||
          layer().children[0].type != "LSTM")
        fail("its network has parallel layers that are no LSTM in both directions");
    } else {
      place(layer());
    }
    if (leftwards_) std::swap(forward, backward);
    const int hidden = hidden_of(forward ? *forward : *backward);
    LayerConfig& c = append("lstm");
    c.set("hidden", hidden);
    c.set("bidirectional", forward && backward);
    c.set("backward", forward == nullptr);
    const std::string to = name() + ".0";
    add_gates(forward ? *forward : *backward, to, "");
    if (forward && backward) add_gates(*backward, to, "_reverse");
    // Only after all gates: they read what the layer before leaves.
    values_ = forward && backward ? 2 * hidden : hidden;
    swapped_half_ = leftwards_ && forward && backward ? hidden : 0;
    image_ = false;
  }

  // Where a layer's weights have the i-th value of the layer before.
  int64_t input_column(int64_t i) const {
    return swapped_half_ > 0 ? (i + swapped_half_) % values_ : i;
  }

  // Rows in the order input, forget, cell, output.
  void add_gates(const Layer& l, const std::string& to, const char* suffix) {
    require_inputs(l, values_);
    const int64_t hidden = l.outputs, in = l.inputs;
    std::vector<float> ih, hh, bias;
    for (const size_t gate : {1, 2, 0, 3}) {
      const Weights& w = l.weights[gate];
      for (int64_t row = 0; row < hidden; ++row) {
        for (int64_t i = 0; i < in; ++i) ih.push_back(w.at(row, input_column(i)));
        for (int64_t i = 0; i < hidden; ++i) hh.push_back(w.at(row, in + i));
        bias.push_back(w.at(row, in + hidden));
      }
    }
    add(to + ".weight_ih" + suffix, {4 * hidden, in}, std::move(ih));
    add(to + ".weight_hh" + suffix, {4 * hidden, hidden}, std::move(hh));
    add(to + ".bias" + suffix, {1, 4 * hidden}, std::move(bias));
  }

  void add_output() {
    const Layer& l = layer();
    require_inputs(l, values_);
    const Weights& w = l.weights.front();
    std::vector<float> weight, bias;
    for (const int32_t row : rows_) {
      for (int64_t i = 0; i < l.inputs; ++i) weight.push_back(w.at(row, input_column(i)));
      bias.push_back(w.at(row, l.inputs));
    }
    const auto classes = static_cast<int64_t>(rows_.size());
    add("output.weight", {classes, l.inputs}, std::move(weight));
    add("output.bias", {1, classes}, std::move(bias));
  }

  void describe() {
    ModelDescription& d = model_.description;
    FeaturesConfig& f = d.config.features;
    f.type = FeatureType::image;
    f.height = height_;
    f.padding = 0;
    f.scaling = LineScaling::tesseract;
    if (leftwards_) f.direction = LineDirection::leftwards;
    f.cmvn = Cmvn::global;
    // Ink is 0 to 1 here, and there from 1, which is paper, to -1.
    d.mean.assign(static_cast<size_t>(height_), 0.5f);
    d.inverse_std.assign(static_cast<size_t>(height_), -2.0f);
    d.config.model.layer = config_;
    d.config.model.input_height = height_;
    d.sizes = {height_, static_cast<int64_t>(rows_.size())};
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::vector<int64_t> begins_;
  int32_t blank_ = 0;
  std::vector<const Layer*> layers_;
  std::vector<int32_t> rows_;  // of the softmax, for the labels 0, 1, ...
  size_t at_ = 0;
  std::vector<LayerConfig> config_;
  int32_t height_ = 0, rows_high_ = 0;  // of the lines, and of the images at this place
  int32_t values_ = 1;                  // per pixel or frame, before the layer at hand
  int32_t swapped_half_ = 0;  // of these, which has its place exchanged with the other; 0: none
  // Whether it reads a script from right to left. Tesseract reads all lines from their left edge
  // and turns the text; here the network is mirrored, and the image.
  bool leftwards_ = false;
  bool image_ = true;
  ForeignModel model_;
};

}  // namespace

ForeignModel read_tesseract_model(std::span<const std::byte> bytes, const std::string& name) {
  return Converter(bytes, name).convert();
}

}  // namespace rondo
