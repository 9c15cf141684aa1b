#include "engine/train/model/kraken_model.h"

#include <algorithm>
#include <deque>

#include "engine/config/vgsl.h"
#include "engine/io/json.h"
#include "engine/text/alphabet.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

constexpr const char* meta_key = "kraken_meta";
constexpr int kraken_padding = 16;  // pixels of paper on either side of a line

const char* const box_remark =
    "was trained on lines in boxes, which kraken makes level before it reads them (bbox); rondo "
    "reads a line as it is";

const char* const backward_remark =
    "has an LSTM that is to read backwards (Lrx); kraken reads it forwards all the same, and so "
    "does "
    "rondo here";

// Convolutions there pad by half of what a window reaches over.
bool pads_alike(int kernel, int dilation) { return dilation * (kernel - 1) % 2 == 0; }

// ---- reading ----

class Reader {
 public:
  explicit Reader(const SafetensorsFile& file) : file_(file) {}

  ForeignModel read() {
    choose();
    const std::string vgsl = text("vgsl");
    spec_ = parse_vgsl(vgsl, file_.name() + " (its vgsl)");
    if (spec_.output.empty()) fail("has no output layer of characters (O1c) in its vgsl");
    read_codec();
    describe();
    int index = 0;
    for (size_t i = 0; i < spec_.layers.size(); ++i)
      read_layer(spec_.layers[i], str(prefix_, ".nn.", spec_.names[i]),
                 str(spec_.layers[i].type().prefix, index++));
    copy(str(prefix_, ".nn.", spec_.output, ".lin.weight"), "output.weight", {spec_.classes, -1});
    copy(str(prefix_, ".nn.", spec_.output, ".lin.bias"), "output.bias", {1, spec_.classes});
    return std::move(model_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_input(file_.name(), ": ", parts...);
  }

  // The member of "kraken_meta" that recognises text.
  void choose() {
    Json all;
    try {
      all = Json::parse(file_.metadata().at(meta_key));
    } catch (const JsonError& e) {
      fail("its metadata '", meta_key, "' are no JSON: ", e.what());
    }
    if (!all.is_object()) fail("its metadata '", meta_key, "' are no JSON object");
    std::string found;
    for (const auto& [prefix, model] : all.members()) {
      const Json* kind = model.find("_model");
      const Json* tasks = model.find("_tasks");
      const bool reads = tasks && tasks->is_array() &&
                         std::any_of(tasks->elements().begin(), tasks->elements().end(),
                                     [](const Json& task) { return task.is("recognition"); });
      if (reads && kind && kind->is("TorchVGSLModel")) {
        prefix_ = prefix;
        meta_ = model;
        return;
      }
      found += str(found.empty() ? "" : ", ", kind ? kind->dump_replacing() : "null");
    }
    fail("holds ", found.empty() ? "no model" : found,
         "; expected a TorchVGSLModel that recognises text");
  }

  std::string text(const char* name) const {
    const Json* value = meta_.find(name);
    if (!value || !value->is_string())
      fail("its description of the model has no text '", name, "'");
    return value->get<std::string>();
  }

  // {character: [label]}, or the text of that.
  void read_codec() {
    const Json* stored = meta_.find("codec");
    Json codec = stored ? *stored : Json();
    try {
      if (codec.is_string()) codec = Json::parse(codec.get<std::string>());
    } catch (const JsonError& e) {
      fail("its codec is no JSON: ", e.what());
    }
    if (!codec.is_object()) fail("has no codec, which says what its classes are");
    std::vector<std::string> symbols(static_cast<size_t>(spec_.classes) - 1);
    for (const auto& [symbol, labels] : codec.members()) {
      if (!labels.is_array() || labels.size() != 1 || !labels.at(size_t{0}).is_unsigned())
        fail("its codec writes '", symbol, "' as ", labels.dump_replacing(),
             ", expected one label for each character");
      const auto label = labels.at(size_t{0}).get<uint64_t>();
      if (label == 0 || label > symbols.size())
        fail("its codec gives '", symbol, "' the label ", label, ", expected 1 to ",
             symbols.size());
      if (!symbols[label - 1].empty())
        fail("its codec gives '", symbols[label - 1], "' and '", symbol, "' the same label");
      symbols[label - 1] = symbol;
    }
    const auto unused = std::find(symbols.begin(), symbols.end(), std::string());
    if (unused != symbols.end())
      fail("its codec has no character for the class ", unused - symbols.begin() + 1);
    try {
      static_cast<void>(Alphabet(symbols));
    } catch (const InputError& e) {
      fail("its codec cannot be an alphabet: ", e.what());
    }
    model_.description.alphabet = symbols;
  }

  void describe() {
    ModelDescription& d = model_.description;
    FeaturesConfig& f = d.config.features;
    f.type = FeatureType::image;
    f.height = spec_.height;
    f.padding = kraken_padding;
    f.contrast = false;
    f.cmvn = Cmvn::none;
    d.config.model.layer = spec_.layers;
    d.config.model.input_height = spec_.height;
    d.sizes = {spec_.height, spec_.classes};
    for (LayerConfig& layer : d.config.model.layer) {
      if (layer.type().name == "pool2d") layer.set("whole", true);
      if (layer.type().name == "lstm" && layer.flag("backward")) {
        layer.set("backward", false);
        model_.remarks.emplace_back(backward_remark);
      }
    }
    const Json* boxes = meta_.find("seg_type");
    if (boxes && boxes->is("bbox")) model_.remarks.emplace_back(box_remark);
    const Json* mode = meta_.find("one_channel_mode");
    if (mode && mode->is("1"))
      model_.remarks.emplace_back("was trained on images in black and white; give it such");
  }

  // `shape`: -1 for any size.
  const StoredTensor& stored(const std::string& name, const std::vector<int64_t>& shape) const {
    const StoredTensor& t = file_.at(name);
    bool fits = t.dtype == DType::f32 && t.shape.size() == shape.size();
    for (size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] < 0 || t.shape[i] == shape[i];
    if (!fits) {
      std::string wanted;
      for (int64_t n : shape) wanted += str(wanted.empty() ? "" : ", ", n < 0 ? "any" : str(n));
      fail("tensor '", name, "' is ", t.describe(), ", expected f32[", wanted, "]");
    }
    return t;
  }

  void add(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    model_.tensors.push_back({name, std::move(shape), std::move(values)});
  }
  // A bias becomes a row of a matrix.
  void copy(const std::string& from, const std::string& to, std::vector<int64_t> shape) {
    const bool is_row = shape.front() == 1 && shape.size() == 2;
    const StoredTensor& t = stored(from, is_row ? std::vector{shape[1]} : shape);
    const auto values = t.as<float>();
    add(to, is_row ? shape : t.shape, {values.begin(), values.end()});
  }

  void read_layer(const LayerConfig& layer, const std::string& from, const std::string& to) {
    const std::string& type = layer.type().name;
    if (type == "conv2d") {
      read_convolution(layer, from, to, {"kernel_height", "kernel_width"},
                       {"dilation_height", "dilation_width"});
    } else if (type == "conv") {
      read_convolution(layer, from, to, {"kernel"}, {"dilation"});
    } else if (type == "lstm" || type == "lstm_height") {
      read_lstm(layer, from + ".layer", type == "lstm" ? to + ".0" : to);
    } else if (type == "group_norm") {
      for (const char* part : {".weight", ".bias"}) {
        const StoredTensor& t = stored(from + ".layer" + part, {-1});
        const auto values = t.as<float>();
        add(to + part, {1, t.shape[0]}, {values.begin(), values.end()});
      }
    }
  }

  void read_convolution(const LayerConfig& layer, const std::string& from, const std::string& to,
                        const std::vector<const char*>& kernels,
                        const std::vector<const char*>& dilations) {
    std::vector<int64_t> shape = {layer.integer("channels"), -1};
    if (kernels.size() == 1) shape.push_back(1);
    for (size_t i = 0; i < kernels.size(); ++i) {
      const int kernel = layer.integer(kernels[i]);
      if (!pads_alike(kernel, layer.integer(dilations[i])))
        fail("has a convolution with a kernel of ", kernel,
             ", after which kraken's lines are shorter; expected odd ones");
      shape.push_back(kernel);
    }
    const StoredTensor& t = stored(from + ".co.weight", shape);
    const auto values = t.as<float>();
    shape[1] = t.shape[1];
    if (kernels.size() == 1) shape.erase(shape.begin() + 2);
    add(to + ".weight", shape, {values.begin(), values.end()});
    copy(from + ".co.bias", to + ".bias", {1, layer.integer("channels")});
  }

  void read_lstm(const LayerConfig& layer, const std::string& from, const std::string& to) {
    const int64_t hidden = layer.integer("hidden");
    for (const char* suffix : {"", "_reverse"}) {
      if (*suffix && !layer.flag("bidirectional")) break;
      copy(from + ".weight_ih_l0" + suffix, to + ".weight_ih" + suffix, {4 * hidden, -1});
      copy(from + ".weight_hh_l0" + suffix, to + ".weight_hh" + suffix, {4 * hidden, hidden});
      // Two biases that are only ever added.
      const auto a = stored(from + ".bias_ih_l0" + suffix, {4 * hidden}).as<float>();
      const auto b = stored(from + ".bias_hh_l0" + suffix, {4 * hidden}).as<float>();
      std::vector<float> sum;
      for (size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i]);
      add(to + ".bias" + suffix, {1, 4 * hidden}, std::move(sum));
    }
  }

  const SafetensorsFile& file_;
  std::string prefix_;
  Json meta_;
  VgslModel spec_;
  ForeignModel model_;
};

// ---- writing ----

class Writer {
 public:
  explicit Writer(const SafetensorsFile& file)
      : file_(file), description_(ModelDescription::from_metadata(file.metadata(), file.name())) {}

  std::vector<std::string> write(const std::string& path) {
    require_lines();
    const FeaturesConfig& f = description_.config.features;
    spec_ = str("[1,", f.height, ",0,1");
    layers_ = expand_layers(description_.config.model);
    for (at_ = 0; at_ < layers_.size(); ++at_) add_layer();
    fold();
    const std::string output = name("O");
    spec_ += str(" O{", output, "}1c", description_.sizes.outputs, "]");
    put(output + ".lin.weight", "output.weight", {description_.sizes.outputs, -1});
    put(output + ".lin.bias", "output.bias", {description_.sizes.outputs});
    write_safetensors(path, tensors_, {{meta_key, meta().dump()}});
    return std::move(remarks_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_input(file_.name(), ": ", parts...);
  }

  void require_lines() {
    const Config& c = description_.config;
    if (c.task != Task::ctc || c.features.type != FeatureType::image)
      fail("reads no lines of text, so it cannot be written for kraken");
    if (c.features.direction != LineDirection::rightwards || c.features.ink == Ink::light)
      fail(
          "reads lines from right to left, downwards, or in light ink, which kraken would not give "
          "it; expected features.direction = \"ltr\" and dark ink");
    if (c.features.cmvn != Cmvn::none)
      fail(
          "normalises each column's values (features.cmvn), which kraken does not; train with "
          "features.cmvn=none, and best with features.contrast=false features.padding=",
          kraken_padding, " as well");
    if (c.features.contrast)
      remarks_.emplace_back(
          "stretches the contrast of a line (features.contrast), which kraken does not");
    if (c.features.padding != kraken_padding)
      remarks_.push_back(str("expects ", c.features.padding, " columns of paper on either side ",
                             "(features.padding); kraken gives ", kraken_padding,
                             " unless it is told otherwise (--pad)"));
  }

  Json meta() const {
    Json codec = Json::object();
    int64_t label = 0;
    for (const std::string& symbol : description_.alphabet) codec[symbol] = Json::array({++label});
    Json model = Json::object({{"_kraken_min_version", "5.0.0"},
                               {"_tasks", Json::array({"recognition"})},
                               {"_model", "TorchVGSLModel"},
                               {"accuracy", Json::array()},
                               {"metrics", Json::array()},
                               {"seg_type", "baselines"},
                               {"one_channel_mode", "L"},
                               {"legacy_polygons", false},
                               {"codec", codec},
                               {"vgsl", spec_}});
    return Json::object({{prefix, model}});
  }

  std::string name(const char* kind) { return str(kind, "_", count_++); }
  const LayerConfig& layer() const { return layers_[at_]; }
  const std::string& type() const { return layers_[at_].type().name; }
  std::string own() const { return str(layers_[at_].type().prefix, at_); }

  // Columns of pixels become the channels of frames.
  void fold() {
    if (!image_) return;
    spec_ += str(" S{", name("S"), "}1(1x0)1,3");
    image_ = false;
  }

  void put(const std::string& to, const std::string& from, std::vector<int64_t> shape) {
    const StoredTensor& t = file_.at(from);
    if (t.dtype != DType::f32) fail("tensor '", from, "' is ", t.describe(), ", expected f32");
    int64_t known = 1;
    for (int64_t n : shape) known *= n < 0 ? 1 : n;
    if (known == 0 || t.numel() % known != 0) fail("tensor '", from, "' is ", t.describe());
    for (int64_t& n : shape) n = n < 0 ? t.numel() / known : n;
    tensors_.push_back({str(prefix, ".nn.", to), DType::f32, shape, t.bytes.data()});
  }

  void add_layer() {
    for (const char* of_images : {"conv2d", "pool2d", "lstm_height"}) {
      if (type() == of_images) untouched_ = false;
    }
    if (type() == "conv2d") {
      add_convolution(
          layer().integer("kernel_height"), layer().integer("kernel_width"),
          str(layer().integer("stride_height"), ",", layer().integer("stride_width"), ",",
              layer().integer("dilation_height"), ",", layer().integer("dilation_width")),
          layer().integer("dilation_height"), layer().integer("dilation_width"));
    } else if (type() == "conv") {
      if (layer().choice<ConvContext>("context") != ConvContext::both)
        fail("has a convolution over the past or the future alone, which kraken has not");
      fold();
      const int dilation = layer().integer("dilation");
      add_convolution(1, layer().integer("kernel"),
                      str("1,", layer().integer("stride"), ",1,", dilation), 1, dilation);
    } else if (type() == "pool2d") {
      add_pooling();
    } else if (type() == "dropout") {
      const bool channels =
          layer().choice<layers::DropoutOver>("over") == layers::DropoutOver::channels;
      add_dropout(layer().real("rate"), channels ? 2 : 1);
    } else if (type() == "group_norm") {
      // What no layer has made an image is frames here, whose values are channels.
      if (untouched_) fold();
      const std::string block = name("Gn");
      spec_ += str(" Gn{", block, "}", layer().integer("groups"));
      for (const char* part : {".weight", ".bias"})
        put(block + ".layer" + part, own() + part, {-1});
    } else if (type() == "lstm") {
      add_lstm();
    } else if (type() == "lstm_height") {
      const bool summary = layer().flag("summary");
      const std::string block = name("L");
      spec_ += str(" L", layer().flag("bidirectional") ? "b" : "f", summary ? "ys{" : "y{", block,
                   "}", layer().integer("hidden"));
      if (summary) image_ = false;
      put_lstm(block, own());
    } else {
      fail("has a layer of type '", type(), "' in that place, which kraken has not");
    }
  }

  void add_convolution(int height, int width, const std::string& steps, int dilation_height,
                       int dilation_width) {
    if (!pads_alike(height, dilation_height) || !pads_alike(width, dilation_width))
      fail("has a convolution with a kernel of ", height, " x ", width,
           ", after which kraken's lines would be shorter; expected odd ones");
    const int64_t channels = layer().integer("channels");
    const std::string from = own(), block = name("C");
    put(block + ".co.weight", from + ".weight", {channels, -1, height, width});
    put(block + ".co.bias", from + ".bias", {channels});
    const std::string next =
        at_ + 1 < layers_.size() ? layers_[at_ + 1].type().name : std::string();
    if (type() == "conv2d" && layer().integer("groups") > 1)
      fail("has a convolution in groups, which kraken has not");
    const char* activation = next == "relu" ? "r" : next == "tanh" ? "t" : "l";
    if (*activation != 'l') ++at_;
    spec_ += str(" C", activation, "{", block, "}", height, ",", width, ",", channels, ",", steps);
  }

  void add_pooling() {
    if (layer().choice<Pooling2d>("pooling") != Pooling2d::greatest)
      fail("has a pooling by the mean, which kraken has not");
    if (!layer().flag("whole") && remarks_of_pooling_++ == 0)
      remarks_.emplace_back(
          "makes a frame of the pixels that are left at the end of a line (pool2d, whole = false), "
          "which kraken drops; the last character may be read otherwise");
    spec_ += str(" Mp{", name("Mp"), "}", layer().integer("height"), ",", layer().integer("width"));
  }

  void add_dropout(double rate, int dimension) {
    spec_ += str(" Do{", name("Do"), "}", fixed_text(rate, 9), ",", dimension);
  }

  void add_lstm() {
    if (layer().integer("projection") > 0 || layer().flag("residual"))
      fail("has an LSTM with a projection or residuals, which kraken has not");
    if (layer().flag("backward"))
      fail("has an LSTM that reads backwards alone, which kraken has not: it reads Lrx forwards");
    fold();
    for (int l = 0; l < layer().integer("layers"); ++l) {
      const std::string block = name("L");
      spec_ += str(" L", layer().flag("bidirectional") ? "b" : "f", "x{", block, "}",
                   layer().integer("hidden"));
      put_lstm(block, str(own(), ".", l));
      if (l + 1 < layer().integer("layers") && layer().real("dropout") > 0)
        add_dropout(layer().real("dropout"), 1);
    }
  }

  void put_lstm(const std::string& block, const std::string& from) {
    const int64_t hidden = layer().integer("hidden");
    for (const char* suffix : {"", "_reverse"}) {
      if (*suffix && !layer().flag("bidirectional")) break;
      const std::string to = block + ".layer.";
      put(to + "weight_ih_l0" + suffix, from + ".weight_ih" + suffix, {4 * hidden, -1});
      put(to + "weight_hh_l0" + suffix, from + ".weight_hh" + suffix, {4 * hidden, hidden});
      put(to + "bias_ih_l0" + suffix, from + ".bias" + suffix, {4 * hidden});
      zeros_.emplace_back(static_cast<size_t>(4 * hidden));
      tensors_.push_back({str(prefix, ".nn.", to, "bias_hh_l0", suffix),
                          DType::f32,
                          {4 * hidden},
                          zeros_.back().data()});
    }
  }

  static constexpr const char* prefix = "rondo";

  const SafetensorsFile& file_;
  const ModelDescription description_;
  std::string spec_;
  std::vector<LayerConfig> layers_;
  size_t at_ = 0;
  int count_ = 0, remarks_of_pooling_ = 0;
  bool image_ = true;
  bool untouched_ = true;  // no layer has made an image of the features
  std::vector<TensorToWrite> tensors_;
  std::deque<std::vector<float>> zeros_;
  std::vector<std::string> remarks_;
};

}  // namespace

bool is_kraken_model(const SafetensorsFile& file) { return file.metadata().contains(meta_key); }

ForeignModel read_kraken_model(const SafetensorsFile& file) { return Reader(file).read(); }

std::vector<std::string> write_kraken_model(const std::string& path, const SafetensorsFile& model) {
  return Writer(model).write(path);
}

}  // namespace rondo
