#include "engine/io/checkpoint_manifest.h"

#include <charconv>
#include <cmath>

#include "engine/io/crc32c.h"
#include "engine/io/json.h"
#include "engine/io/moving.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr const char* format_name = "rondo checkpoint 1";
constexpr const char* seal_key = "  \"manifest_crc32c\": \"";
constexpr uint64_t max_manifest_bytes = 16 << 20;

std::string seal(std::string_view body) { return seal_key + hex32(crc32c(body)) + "\"\n}\n"; }

uint32_t parse_hex32(const std::string& text, const fs::path& path) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 8) {
    fail_input(path.string(), ": '", text, "' is not a checksum of 8 hexadecimal digits");
  }
  return value;
}

CheckpointManifest from_json(const Json& root, const fs::path& path) {
  CheckpointManifest manifest;
  if (!root.at("format").is(format_name)) {
    fail_input(path.string(), ": the format is ", root.at("format").dump(), ", expected \"",
               format_name, "\"");
  }
  manifest.info.generation = root.at("generation").get<uint64_t>();
  manifest.info.step = root.at("step").get<int64_t>();
  if (!root.at("metric").is_null()) manifest.info.score = Score(root.at("metric").get<double>());
  if (const Json* loss = root.find("loss"); loss && manifest.info.score) {
    manifest.info.score->loss = loss->get<double>();
  }
  for (const Json& file : root.at("files").elements()) {
    CheckpointFile entry;
    entry.name = file.at("name").get<std::string>();
    entry.size = file.at("size").get<uint64_t>();
    entry.crc = parse_hex32(file.at("crc32c").get<std::string>(), path);
    if (!valid_checkpoint_file(entry.name)) {
      fail_input(path.string(), ": '", entry.name, "' is not a plain file name");
    }
    manifest.files.push_back(std::move(entry));
  }
  return manifest;
}

}  // namespace

bool valid_checkpoint_file(const std::string& name) {
  return !name.empty() && name.front() != '.' && name != checkpoint_manifest_file &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

std::string format_checkpoint_manifest(const CheckpointManifest& manifest) {
  Json root;
  root["format"] = format_name;
  root["generation"] = manifest.info.generation;
  root["step"] = manifest.info.step;
  root["metric"] = nullptr;
  if (const auto& score = manifest.info.score; score && std::isfinite(score->metric)) {
    root["metric"] = score->metric;
    if (std::isfinite(score->loss)) root["loss"] = score->loss;
  }
  root["files"] = Json::array();
  for (const CheckpointFile& file : manifest.files) {
    root["files"].push_back(
        Json::object({{"name", file.name}, {"size", file.size}, {"crc32c", hex32(file.crc)}}));
  }
  std::string body = root.dump(2);
  body.resize(body.size() - 2);  // "\n}": the seal closes the object
  body += ",\n";
  return body + seal(body);
}

CheckpointManifest parse_checkpoint_manifest(const std::string& text, const fs::path& path) {
  const size_t at = text.rfind(seal_key);
  if (at == std::string::npos) {
    fail_input(path.string(), ": is truncated: it does not end with its checksum");
  }
  const std::string expected = seal(std::string_view(text).substr(0, at));
  if (text.compare(at, std::string::npos, expected) != 0) {
    fail_input(path.string(), ": is damaged: its own checksum does not match its content (found ",
               expected.substr(std::string(seal_key).size(), 8), ")");
  }
  try {
    return from_json(Json::parse(text), path);
  } catch (const JsonError& e) {
    fail_input(path.string(), ": is not a checkpoint's manifest: ", e.what());
  }
}

bool is_uncommitted(const fs::path& generation_directory) {
  if (!is_half_moved(generation_directory)) return false;
  try {
    read_checkpoint_manifest(generation_directory);
    return false;
  } catch (const InputError&) {
    return true;
  }
}

CheckpointManifest read_checkpoint_manifest(const fs::path& generation_directory) {
  const fs::path path = generation_directory / checkpoint_manifest_file;
  return parse_checkpoint_manifest(read_text_file(path, max_manifest_bytes), path);
}

}  // namespace rondo
