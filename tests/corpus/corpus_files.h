// What several corpus tests need: reading a corpus back.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/data/features/files.h"
#include "engine/data/manifest.h"

namespace rondo {

// Every file of a folder with its content, by relative path.
inline std::map<std::string, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[std::filesystem::relative(entry.path(), folder).string()] =
        data::read_whole_file(entry.path().string());
  }
  return files;
}

inline std::vector<ManifestEntry> split_of(const std::string& folder, const std::string& name) {
  return read_manifest(folder + "/" + name + ".jsonl").entries;
}

// The names in a folder, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace rondo
