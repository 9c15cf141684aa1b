#include "engine/train/model_file.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/io/checkpoint.h"
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
    return nlohmann::json::parse(text).get<T>();
  } catch (const nlohmann::json::exception&) {
    fail_input(where, ": metadata '", key, "' is not a JSON list of the expected kind");
  }
}

}  // namespace

StringMap ModelDescription::to_metadata() const {
  StringMap m;
  m["format"] = format_name;
  m["config"] = to_toml(config);
  m["features"] = std::to_string(sizes.features);
  m["outputs"] = std::to_string(sizes.outputs);
  m["alphabet"] = nlohmann::json(alphabet).dump();
  m["mean"] = nlohmann::json(mean).dump();
  m["inverse_std"] = nlohmann::json(inverse_std).dump();
  return m;
}

ModelDescription ModelDescription::from_metadata(const StringMap& metadata,
                                                 const std::string& where) {
  if (field(metadata, "format", where) != format_name) {
    fail_input(where, ": format '", metadata.at("format"), "', expected '", format_name, "'");
  }
  ModelDescription d;
  d.config = parse_config(field(metadata, "config", where), where + " (its configuration)");
  d.sizes.features = positive(metadata, "features", where);
  d.sizes.outputs = positive(metadata, "outputs", where);
  d.alphabet = json_field<std::vector<std::string>>(metadata, "alphabet", where);
  d.mean = json_field<std::vector<float>>(metadata, "mean", where);
  d.inverse_std = json_field<std::vector<float>>(metadata, "inverse_std", where);
  const auto features = static_cast<size_t>(d.sizes.features);
  const bool global = d.config.features.cmvn == Cmvn::global;
  if (d.mean.size() != (global ? features : 0) || d.inverse_std.size() != d.mean.size()) {
    fail_input(where, ": normalisation of ", d.mean.size(), " and ", d.inverse_std.size(),
               " columns, expected ", global ? features : 0);
  }
  return d;
}

std::string find_model_file(const std::string& path, std::vector<std::string>* warnings) {
  namespace fs = std::filesystem;
  constexpr const char* file = "model.safetensors";
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) fail_input(path, ": no such model file or checkpoint directory");
  if (!fs::is_directory(status)) return path;
  if (fs::exists(fs::path(path) / "manifest.json", error)) {
    return open_checkpoint(path).path(file).string();
  }
  const fs::path best = fs::path(path) / file;  // the trainer keeps the best model here
  if (fs::exists(best, error)) return best.string();
  const auto checkpoint = open_latest(path);
  if (!checkpoint) fail_input(path, ": holds no checkpoint");
  if (warnings) {
    for (const std::string& w : checkpoint->warnings()) warnings->push_back(w);
  }
  return checkpoint->path(file).string();
}

}  // namespace rondo
