#include "engine/train/model/pytorch_model.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <variant>
#include <vector>

#include "engine/config/layer_types.h"
#include "engine/graph/parameters.h"
#include "engine/io/json.h"
#include "engine/train/model/build_model.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr const char* layers_key = "layers";
constexpr const char* own_format_key = "rondo_format";  // programs expect "pt" as "format"

// A tensor of ours and what PyTorch calls it.
struct Pair {
  std::string ours, theirs;
  std::string second;      // a bias that PyTorch adds to it; empty: none
  bool is_vector = false;  // [1, n] here, [n] there
};

// The layers of a model by either program's names.
class Layers {
 public:
  explicit Layers(const ModelDescription& d) {
    int index = 0;
    for (const LayerConfig& layer : expand_layers(d.config.model)) {
      const std::string own = str(layer.type().prefix, index++);
      if (layer.type().name == "lstm") {
        add_lstms(layer, own);
      } else {
        add_layer(layer, own);
      }
    }
    Json output = Json::object({{"type", "linear"}, {"size", d.sizes.outputs}});
    add_weights(output, "output", "output");
    list_.push_back(output);
  }

  const std::vector<Pair>& pairs() const { return pairs_; }
  const Json& list() const { return list_; }

 private:
  static Json option_json(const LayerOption& option, const LayerValue& value) {
    if (const auto* flag = std::get_if<bool>(&value)) return *flag;
    if (const auto* integer = std::get_if<int>(&value)) return *integer;
    if (const auto* real = std::get_if<double>(&value)) return *real;
    return option.choices.at(std::get<size_t>(value));
  }
  static Json options_of(LayerConfig layer) {
    Json j = Json::object({{"type", layer.type().name}});
    for (size_t i = 0; i < layer.type().options.size(); ++i) {
      const LayerOption& option = layer.type().options[i];
      j[option.name] = option_json(option, layer.values()[i]);
    }
    return j;
  }
  std::string next_name() { return str("layers.", count_++); }

  void add_lstm_weights(const std::string& own, const std::string& name, bool both, bool projects) {
    for (const char* suffix : {"", "_reverse"}) {
      if (*suffix && !both) break;
      const auto theirs = [&](const char* part) { return str(name, ".", part, "_l0", suffix); };
      pairs_.push_back({str(own, ".weight_ih", suffix), theirs("weight_ih"), {}});
      pairs_.push_back({str(own, ".weight_hh", suffix), theirs("weight_hh"), {}});
      pairs_.push_back({str(own, ".bias", suffix), theirs("bias_ih"), theirs("bias_hh"), true});
      if (projects) pairs_.push_back({str(own, ".weight_hr", suffix), theirs("weight_hr"), {}});
    }
  }

  // Each of the layers on top of each other is one of PyTorch's.
  void add_lstms(const LayerConfig& layer, const std::string& own) {
    const int n = layer.integer("layers");
    for (int l = 0; l < n; ++l) {
      LayerConfig one = layer;
      one.set("layers", 1).set("dropout", 0.0);
      Json j = options_of(one);
      j["name"] = next_name();
      add_lstm_weights(str(own, ".", l), j.at("name").get<std::string>(),
                       layer.flag("bidirectional"), layer.integer("projection") > 0);
      list_.push_back(j);
      if (l + 1 < n && layer.real("dropout") > 0)
        list_.push_back(Json::object({{"type", "dropout"}, {"rate", layer.real("dropout")}}));
    }
  }

  void add_layer(const LayerConfig& layer, const std::string& own) {
    const std::string& type = layer.type().name;
    Json j = options_of(layer);
    if (type == "lstm_height") {
      j["name"] = next_name();
      add_lstm_weights(own, j.at("name").get<std::string>(), layer.flag("bidirectional"), false);
    } else if (type == "linear" || type == "conv" || type == "conv2d" || type == "layer_norm" ||
               type == "group_norm") {
      add_weights(j, own, next_name());
    }
    list_.push_back(j);
  }

  // The scale of a norm is a vector there.
  void add_weights(Json& j, const std::string& own, const std::string& name) {
    j["name"] = name;
    const bool is_norm = j.at("type").get<std::string>().ends_with("_norm");
    pairs_.push_back({own + ".weight", name + ".weight", {}, is_norm});
    pairs_.push_back({own + ".bias", name + ".bias", {}, true});
  }

  std::vector<Pair> pairs_;
  Json list_ = Json::array();
  int count_ = 0;
};

std::vector<int64_t> shape_there(const Pair& p, const StoredTensor& t) {
  return p.is_vector ? std::vector<int64_t>{t.numel()} : t.shape;
}

// Columns, or channels, that a layer reads.
int64_t input_of(const Json& layer, const StoredTensor& weight) {
  const int64_t groups =
      layer.at("type").get<std::string>() == "conv2d" ? layer.at("groups").get<int64_t>() : 1;
  return weight.shape.size() < 2 ? weight.numel() : weight.shape[1] * groups;
}

}  // namespace

bool is_pytorch_model(const SafetensorsFile& file) {
  const std::vector<StoredTensor>& all = file.tensors();
  return file.find("output.weight") != nullptr &&
         std::any_of(all.begin(), all.end(),
                     [](const StoredTensor& t) { return t.name.starts_with("layers."); });
}

void write_pytorch_model(const std::string& path, const SafetensorsFile& model) {
  const ModelDescription d = ModelDescription::from_metadata(model.metadata(), model.name());
  const Layers layers(d);
  std::vector<TensorToWrite> tensors;
  std::deque<std::vector<float>> zeros;
  std::map<std::string, const StoredTensor*> weights;  // of layers, by their name there
  for (const Pair& p : layers.pairs()) {
    const StoredTensor& t = model.at(p.ours);
    const size_t dot = p.theirs.rfind('.');
    weights.emplace(p.theirs.substr(0, dot), &t);  // the first is the weight
    tensors.push_back({p.theirs, t.dtype, shape_there(p, t), t.bytes.data()});
    if (p.second.empty()) continue;
    zeros.emplace_back(static_cast<size_t>(t.numel()));
    tensors.push_back({p.second, DType::f32, shape_there(p, t), zeros.back().data()});
  }
  Json list = Json::array();
  for (Json layer : layers.list().elements()) {
    if (layer.contains("name"))
      layer["input"] = input_of(layer, *weights.at(layer.at("name").get<std::string>()));
    list.push_back(layer);
  }
  StringMap metadata = d.to_metadata();
  metadata[own_format_key] = metadata["format"];
  metadata["format"] = "pt";
  metadata[layers_key] = list.dump();
  write_safetensors(std::filesystem::path(path), tensors, metadata);
}

ForeignModel read_pytorch_model(const SafetensorsFile& file, const SafetensorsFile& like) {
  ForeignModel model;
  StringMap metadata = like.metadata();
  if (const auto own = metadata.find(own_format_key); own != metadata.end())
    metadata["format"] = own->second;
  model.description = ModelDescription::from_metadata(metadata, like.name());
  const Graph graph = inference_graph(model.description);
  const Layers layers(model.description);
  std::vector<std::string> known;
  for (const Pair& p : layers.pairs()) {
    const Value& value = graph.value(graph.find(p.ours));
    Parameters::Entry own;
    own.rows = value.shape.rows;
    own.cols = value.shape.cols;
    own.taps = value.taps;
    own.tap_rows = value.tap_rows;
    const std::vector<int64_t> shape = own.shape();
    const std::vector<int64_t> there = p.is_vector ? std::vector<int64_t>{own.numel()} : shape;
    const std::span<const float> values = file.at(p.theirs, DType::f32, there).as<float>();
    ForeignModel::Tensor t{p.ours, shape, {values.begin(), values.end()}};
    known.push_back(p.theirs);
    if (!p.second.empty()) {
      known.push_back(p.second);
      const std::span<const float> more = file.at(p.second, DType::f32, there).as<float>();
      for (size_t i = 0; i < t.values.size(); ++i) t.values[i] += more[i];
    }
    model.tensors.push_back(std::move(t));
  }
  for (const StoredTensor& t : file.tensors()) {
    if (std::find(known.begin(), known.end(), t.name) == known.end()) {
      fail_input(file.name(), ": tensor '", t.name, "' is none of the model's, which ", like.name(),
                 " describes");
    }
  }
  return model;
}

}  // namespace rondo
