#include "engine/train/model/model_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include "engine/config/layer_types.h"
#include "engine/config/metric.h"
#include "engine/io/checkpoint.h"
#include "engine/io/crc32c.h"
#include "engine/io/descriptor.h"
#include "engine/io/json.h"
#include "engine/io/stage_index.h"
#include "engine/rank_model.h"
#include "engine/train/model/int8_tensors.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr const char* format_name = "rondo-model-1";

const std::string& field(const StringMap& metadata, const char* key, const std::string& where) {
  const auto it = metadata.find(key);
  if (it == metadata.end()) {
    fail_input(where, ": is not a rondo model: its metadata lack '", key, "'");
  }
  return it->second;
}

int64_t positive(const StringMap& metadata, const char* key, const std::string& where) {
  const std::string& text = field(metadata, key, where);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value <= 0 || value > 1 << 24) {
    fail_input(where, ": metadata '", key, "' is '", text, "', expected a number of columns");
  }
  return value;
}

template <class T>
T json_field(const StringMap& metadata, const char* key, const std::string& where) {
  const std::string& text = field(metadata, key, where);
  try {
    return Json::parse(text).get<T>();
  } catch (const JsonError&) {
    fail_input(where, ": metadata '", key, "' is not a JSON list of the expected kind");
  }
}

std::string origin_text(const ModelOrigin& origin) {
  Json j = Json::object({{"version", origin.version}, {"updates", origin.updates}});
  if (std::isfinite(origin.metric)) {
    j["dev"] = Json::object({{name_of(origin.chosen_by), origin.metric}});
  }
  if (origin.averaged > 0) {
    j["averaged"] = origin.averaged;
    if (std::isfinite(origin.loss)) j["dev_loss"] = origin.loss;
  }
  return j.dump_replacing();
}

ModelOrigin origin_from(const std::string& text, const std::string& where) {
  ModelOrigin origin;
  const auto wrong = [&] {
    fail_input(where, ": metadata 'trained' does not say what trained it and how long");
  };
  try {
    const Json j = Json::parse(text);
    origin.version = j.at("version").get<std::string>();
    origin.updates = j.at("updates").get<int64_t>();
    if (const Json* averaged = j.find("averaged")) origin.averaged = averaged->get<int64_t>();
    if (const Json* loss = j.find("dev_loss")) origin.loss = loss->get<double>();
    if (const Json* dev = j.find("dev")) {
      for (const auto& [name, value] : dev->members()) {
        const auto metric = metric_named(name);
        if (!metric) wrong();
        origin.chosen_by = *metric;
        origin.metric = value.get<double>();
      }
    }
  } catch (const JsonError&) {
    wrong();
  }
  return origin;
}

}  // namespace

std::string class_text(std::span<const std::string> classes, int64_t index) {
  return classes.empty() ? std::to_string(index) : classes[static_cast<size_t>(index)];
}

StringMap ModelDescription::to_metadata() const {
  StringMap m;
  m["format"] = format_name;
  m["config"] = to_toml(config);
  m["features"] = std::to_string(sizes.features);
  m["outputs"] = std::to_string(sizes.outputs);
  m["alphabet"] = Json(alphabet).dump();
  if (!classes.empty()) m["classes"] = Json(classes).dump();
  m["mean"] = Json(mean).dump();
  m["inverse_std"] = Json(inverse_std).dump();
  if (int8) m["weights"] = "int8";
  if (!origin.version.empty() || origin.averaged > 0) m["trained"] = origin_text(origin);
  return m;
}

ModelDescription ModelDescription::from_metadata(const StringMap& metadata,
                                                 const std::string& where) {
  if (field(metadata, "format", where) != format_name) {
    fail_input(where, ": format '", metadata.at("format"), "', expected '", format_name, "'");
  }
  ModelDescription d;
  StoredConfig stored =
      parse_stored_config(field(metadata, "config", where), where + " (its configuration)");
  d.config = std::move(stored.config);
  d.ignored = std::move(stored.ignored);
  d.sizes.features = positive(metadata, "features", where);
  d.sizes.outputs = positive(metadata, "outputs", where);
  d.alphabet = json_field<std::vector<std::string>>(metadata, "alphabet", where);
  if (metadata.contains("classes")) {
    d.classes = json_field<std::vector<std::string>>(metadata, "classes", where);
    if (!d.classes.empty() && static_cast<int64_t>(d.classes.size()) != d.sizes.outputs) {
      fail_input(where, ": has the names of ", d.classes.size(), " classes, expected those of its ",
                 d.sizes.outputs, " outputs");
    }
  }
  if (const auto weights = metadata.find("weights"); weights != metadata.end()) {
    d.int8 = weights->second == "int8";
    if (!d.int8)
      fail_input(where, ": metadata 'weights' is '", weights->second, "', expected 'int8'");
  }
  d.mean = json_field<std::vector<float>>(metadata, "mean", where);
  d.inverse_std = json_field<std::vector<float>>(metadata, "inverse_std", where);
  if (const auto trained = metadata.find("trained"); trained != metadata.end()) {
    d.origin = origin_from(trained->second, where);
  }
  const auto features = static_cast<size_t>(d.sizes.features);
  const bool global = d.config.features.cmvn == Cmvn::global;
  if (d.mean.size() != (global ? features : 0) || d.inverse_std.size() != d.mean.size()) {
    fail_input(where, ": normalisation of ", d.mean.size(), " and ", d.inverse_std.size(),
               " columns, expected ", global ? features : 0);
  }
  return d;
}

namespace {

// A configuration with what a model is, and nothing else of it.
Config model_part(const Config& config) {
  Config part;
  part.task = config.task;
  part.features = config.features;
  part.text = config.text;
  part.model = config.model;
  return part;
}

// The layers but for dropout, which only training has.
std::vector<LayerConfig> weighted_layers(const ModelConfig& model) {
  std::vector<LayerConfig> layers = expand_layers(model);
  std::erase_if(layers, [](const LayerConfig& l) { return l.type().name == "dropout"; });
  return layers;
}

}  // namespace

Config config_of_model(const std::string& path) {
  const SafetensorsFile file = open_model(path, nullptr);
  if (!file.metadata().contains("config")) return {};
  return model_part(ModelDescription::from_metadata(file.metadata(), file.name()).config);
}

std::vector<std::string> differing_from_model(const Config& stored, const Config& wanted) {
  const Config a = model_part(stored);
  Config b = model_part(wanted);
  b.features.dither = a.features.dither;
  b.text = a.text;
  if (weighted_layers(a.model) == weighted_layers(b.model)) {  // however they are written
    ModelConfig same = a.model;
    same.pooling = b.model.pooling;
    same.outputs = b.model.outputs;
    b.model = same;
  }
  return config_differences(a, b);
}

namespace {

constexpr const char* checksum_key = "checksum";

// The same for every order of tensors in the file.
struct Checksum {
  uint32_t value = 0;

  explicit Checksum(const StringMap& metadata) {
    for (const auto& [key, text] : metadata) {
      if (key == checksum_key) continue;
      add(key);
      add(text);
    }
  }
  void add(std::string_view text) {
    value = crc32c(text, value);
    value = crc32c(std::string_view("\0", 1), value);
  }
  void add(const std::string& name, std::span<const std::byte> bytes) {
    add(name);
    value = crc32c(bytes, value);
  }
};

std::string hex(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

// As a file has it; as it stands when it is no number, which is damage too.
std::string hex_of_decimal(const std::string& text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? hex(value) : "'" + text + "'";
}

// `meant`: what the stored tensors stand for.
void save(const std::string& path, std::span<const TensorToWrite> stored,
          std::span<const TensorToWrite> meant, const ModelDescription& description) {
  // Where the run wrote says nothing of the model: the same run in another directory writes the
  // same file.
  ModelDescription anywhere = description;
  const TrainingConfig usual;
  anywhere.config.training.checkpoint_dir = usual.checkpoint_dir;
  anywhere.config.training.log = usual.log;
  anywhere.config.training.tensorboard = usual.tensorboard;
  StringMap metadata = anywhere.to_metadata();
  Checksum sum(metadata);
  std::map<std::string, const TensorToWrite*> by_name;
  for (const TensorToWrite& t : meant) by_name[t.name] = &t;
  std::vector<std::byte> bytes;
  for (const auto& [name, t] : by_name) {
    size_t size = size_of(t->dtype);
    for (int64_t n : t->shape) size *= static_cast<size_t>(n);
    bytes.resize(size);
    t->data ? copy_bytes(bytes.data(), t->data, size) : t->fill(0, bytes);
    sum.add(name, bytes);
  }
  metadata[checksum_key] = str(sum.value);
  write_safetensors(std::filesystem::path(path), stored, metadata);
}

SafetensorsFile find_model(const std::string& path, std::vector<std::string>* warnings) {
  namespace fs = std::filesystem;
  constexpr const char* file = "model.safetensors";
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status))
    fail_input(path, ": no such model file or checkpoint directory", looked_for(path));
  if (!fs::is_directory(status)) return SafetensorsFile(path);
  if (fs::exists(fs::path(path) / "manifest.json", error)) {
    return open_weights(open_checkpoint(path));
  }
  if (fs::exists(fs::path(path) / file, error)) return SafetensorsFile(fs::path(path) / file);
  const auto checkpoint = open_latest(path);
  if (!checkpoint) fail_input(path, ": holds no model and no checkpoint");
  if (warnings) {
    for (const std::string& w : checkpoint->warnings()) warnings->push_back(w);
  }
  return open_weights(*checkpoint);
}

}  // namespace

void save_model(const std::string& path, const Session& session,
                const ModelDescription& description) {
  save_model(path, weights_to_write(session.parameters()), description);
}

void save_model(const std::string& path, std::span<const TensorToWrite> tensors,
                const ModelDescription& description) {
  if (!description.int8) return save(path, tensors, tensors, description);
  const Int8Tensors rounded(tensors, path);
  save(path, rounded.stored(), rounded.meant(), description);
}

SafetensorsFile open_model(const std::string& path, std::vector<std::string>* warnings) {
  SafetensorsFile file = find_model(path, warnings);
  if (const auto stage = file.metadata().find(stage_key); stage != file.metadata().end()) {
    fail_input(file.name(), ": holds stage ", stage->second,
               " of a model alone; name its checkpoint directory instead");
  }
  require_checksum(file);
  return file;
}

void require_checksum(const SafetensorsFile& file) {
  const auto stored = file.metadata().find(checksum_key);
  if (stored == file.metadata().end()) return;
  Checksum sum(file.metadata());
  std::map<std::string, const StoredTensor*> by_name;
  for (const StoredTensor& t : file.tensors()) by_name[t.name] = &t;
  for (const auto& [name, t] : by_name) sum.add(name, t->bytes);
  if (stored->second != str(sum.value)) {
    fail_input(file.name(), ": is damaged: the CRC-32C of its content is ", hex(sum.value),
               ", expected ", hex_of_decimal(stored->second),
               "; the checkpoint-* directories of its run may still be good");
  }
}

void require_finite(const SafetensorsFile& file) {
  for (const StoredTensor& t : file.tensors()) {
    if (t.dtype != DType::f32) continue;
    const std::span<const float> values = t.as<float>();
    const auto bad =
        std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
    if (bad == values.end()) continue;
    fail_input(file.name(), ": tensor '", t.name, "' holds ", *bad, " at element ",
               bad - values.begin(),
               ", expected finite weights; its training went out of range (a ",
               "lower optimizer.lr helps, or training.clip)");
  }
}

std::vector<std::string> files_of_model(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    const fs::path& file = at->path();
    const std::string extension = file.extension().string();
    if (extension == ".safetensors" || extension == ".json" || extension == ".toml" ||
        file.filename() == "log.jsonl") {
      files.push_back(file.string());
    }
  }
  return files;
}

}  // namespace rondo
