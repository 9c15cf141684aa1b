// The manifest of a checkpoint generation (internal to engine/io).
//
// JSON, sealed by its own checksum: the last member is "manifest_crc32c", over all bytes before it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/io/checkpoint.h"

namespace rondo {

inline constexpr const char* checkpoint_manifest_file = "manifest.json";

// The number of a generation whose directory has this name; nothing: it is no generation's.
std::optional<uint64_t> generation_of(const std::string& name);
// Numbers of the generations in `directory`, ascending; a missing directory has none. Those that
// are being moved there or removed file by file count while their manifest is whole.
std::vector<uint64_t> checkpoint_generations(const std::filesystem::path& directory);
// Whether a directory holds no generation yet, or none any more: see is_half_moved().
bool is_uncommitted(const std::filesystem::path& generation_directory);

struct CheckpointManifest {
  CheckpointInfo info;
  std::vector<CheckpointFile> files;
};

std::string format_checkpoint_manifest(const CheckpointManifest& manifest);

// InputError naming `path` if the text is not what format_checkpoint_manifest wrote.
CheckpointManifest parse_checkpoint_manifest(const std::string& text,
                                             const std::filesystem::path& path);

CheckpointManifest read_checkpoint_manifest(const std::filesystem::path& generation_directory);

// A plain file name that may stand in a checkpoint.
bool valid_checkpoint_file(const std::string& name);

}  // namespace rondo
