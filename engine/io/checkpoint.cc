#include "engine/io/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>
#include <utility>

#include "engine/io/checkpoint_manifest.h"
#include "engine/io/crc32c.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view generation_prefix = "checkpoint-";

void verify(const fs::path& directory, const CheckpointManifest& manifest) {
  for (const CheckpointFile& entry : manifest.files) {
    const fs::path path = directory / entry.name;
    const FileBytes file(path, FileBytes::Mode::map);
    if (file.bytes().size() != entry.size) {
      fail_input("checkpoint file '", path.string(), "' is ",
                 file.bytes().size() < entry.size ? "truncated" : "too long", ": expected ",
                 entry.size, " bytes, found ", file.bytes().size());
    }
    const uint32_t found = crc32c(file.bytes());
    if (found != entry.crc) {
      fail_input("checkpoint file '", path.string(), "' is damaged: expected the CRC-32C ",
                 hex32(entry.crc), ", found ", hex32(found));
    }
  }
}

}  // namespace

std::optional<uint64_t> generation_of(const std::string& name) {
  if (!name.starts_with(generation_prefix)) return std::nullopt;
  const std::string_view digits = std::string_view(name).substr(generation_prefix.size());
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.size() < 9 || error != std::errc() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return value;
}

std::vector<uint64_t> checkpoint_generations(const fs::path& directory) {
  std::vector<uint64_t> generations;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    const auto g = generation_of(it->path().filename().string());
    if (g && !is_uncommitted(it->path())) generations.push_back(*g);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    fail_input("cannot list the checkpoint directory '", directory.string(),
               "': ", error.message());
  }
  std::sort(generations.begin(), generations.end());
  return generations;
}

fs::path checkpoint_path(const fs::path& directory, uint64_t generation) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%09llu", static_cast<unsigned long long>(generation));
  return directory / (std::string(generation_prefix) + digits);
}

bool Checkpoint::has(std::string_view file) const {
  return std::find(files_.begin(), files_.end(), file) != files_.end();
}

fs::path Checkpoint::path(std::string_view file) const {
  if (!has(file)) fail_input("checkpoint '", directory_.string(), "' has no file '", file, "'");
  return directory_ / file;
}

std::string Checkpoint::text(std::string_view file) const { return read_text_file(path(file)); }

SafetensorsFile Checkpoint::tensors(std::string_view file) const {
  return SafetensorsFile(path(file));
}

Checkpoint open_checkpoint(const fs::path& generation_directory) {
  const CheckpointManifest manifest = read_checkpoint_manifest(generation_directory);
  verify(generation_directory, manifest);
  Checkpoint checkpoint;
  checkpoint.info_ = manifest.info;
  checkpoint.directory_ = generation_directory;
  for (const CheckpointFile& entry : manifest.files) checkpoint.files_.push_back(entry.name);
  return checkpoint;
}

std::optional<Checkpoint> open_latest(const fs::path& directory) {
  std::vector<std::string> warnings;
  const std::vector<uint64_t> generations = checkpoint_generations(directory);
  for (auto g = generations.rbegin(); g != generations.rend(); ++g) {
    const fs::path path = checkpoint_path(directory, *g);
    try {
      Checkpoint checkpoint = open_checkpoint(path);
      checkpoint.warnings_ = std::move(warnings);
      return checkpoint;
    } catch (const InputError& error) {
      std::error_code ignored;
      // Removed by its writer between the listing and now: newer ones exist, so look again.
      if (!fs::exists(path, ignored) || is_uncommitted(path)) return open_latest(directory);
      warnings.push_back(str("skipping checkpoint ", *g, ": ", error.what()));
    }
  }
  if (warnings.empty()) return std::nullopt;
  std::string all = str("no usable checkpoint in '", directory.string(), "'");
  for (const std::string& warning : warnings) all += "; " + warning;
  throw InputError(all);
}

std::vector<CheckpointInfo> best_of(std::vector<CheckpointInfo> all, int64_t after_step) {
  std::erase_if(all, [&](const CheckpointInfo& c) {
    return !c.score || !std::isfinite(c.score->metric) || c.step <= after_step;
  });
  std::sort(all.begin(), all.end(), [](const CheckpointInfo& a, const CheckpointInfo& b) {
    if (a.score->better_than(*b.score)) return true;
    return !b.score->better_than(*a.score) && a.generation > b.generation;
  });
  return all;
}

std::vector<CheckpointInfo> list_checkpoints(const fs::path& directory) {
  std::vector<CheckpointInfo> list;
  for (uint64_t generation : checkpoint_generations(directory)) {
    try {
      list.push_back(read_checkpoint_manifest(checkpoint_path(directory, generation)).info);
    } catch (const InputError&) {
      // By contract: a generation whose manifest cannot be read is not listed.
    }
  }
  return list;
}

}  // namespace rondo
