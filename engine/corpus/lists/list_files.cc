#include "engine/corpus/lists/list_files.h"

#include <algorithm>

#include "engine/data/features/files.h"
#include "kernels/base/error.h"

namespace rondo::corpus {

namespace fs = std::filesystem;

fs::path existing_folder(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error) fail_input(folder, ": cannot be read as a folder: ", error.message());
  if (!fs::is_directory(path)) fail_input(folder, ": is not a folder");
  return path;
}

std::vector<fs::path> files_below(const fs::path& folder,
                                  const std::function<bool(const fs::path&)>& wanted) {
  std::vector<fs::path> files;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (wanted(entry.path()) && entry.is_regular_file()) files.push_back(entry.path());
    }
  } catch (const fs::filesystem_error& e) {
    fail_input(folder.string(), ": cannot be read as a folder: ", e.code().message());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(space) - begin + 1));
}

std::vector<KeyedLine> keyed_lines(const fs::path& file) {
  const std::string text = data::read_regular_file(file.string());
  std::vector<KeyedLine> lines;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = trimmed(std::string_view(text).substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    const size_t space = std::min(line.find_first_of(" \t"), line.size());
    lines.push_back({number, line.substr(0, space), trimmed(line.substr(space))});
  }
  return lines;
}

std::map<std::string, std::string> keyed_map(const fs::path& file) {
  std::map<std::string, std::string> map;
  for (KeyedLine& line : keyed_lines(file)) {
    if (!map.emplace(line.key, line.value).second) {
      fail_input(file.string(), ":", line.number, ": '", line.key, "' is there twice");
    }
  }
  return map;
}

}  // namespace rondo::corpus
