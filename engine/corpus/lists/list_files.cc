#include "engine/corpus/lists/list_files.h"

#include <algorithm>
#include <set>

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
  // First what lies in the folder itself, then where its links lead, and theirs: what can be
  // reached in several ways has its shortest name, in whatever order the disk tells the entries.
  std::set<fs::path> walked;
  std::vector<fs::path> folders{folder};
  const auto walk = [&](const fs::path& top, std::vector<fs::path>& links) {
    if (!walked.insert(fs::canonical(top)).second) return;
    for (fs::recursive_directory_iterator at(top), end; at != end; ++at) {
      std::error_code broken;  // a link that leads nowhere, or to itself, is no file
      const bool is_folder = at->is_directory(broken);
      if (is_folder && at->is_symlink()) {
        links.push_back(at->path());
      } else if (is_folder) {
        if (!walked.insert(fs::canonical(at->path())).second) at.disable_recursion_pending();
      } else if (at->is_regular_file(broken) && wanted(at->path())) {
        files.push_back(at->path());
      }
    }
  };
  try {
    while (!folders.empty()) {
      std::vector<fs::path> links;
      for (const fs::path& top : folders) walk(top, links);
      std::sort(links.begin(), links.end());
      folders = std::move(links);
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

std::string text_of_file(const fs::path& file) {
  return trimmed(data::without_byte_order_mark(data::read_regular_file(file.string())));
}

std::vector<KeyedLine> keyed_lines(const fs::path& file) {
  const std::string content = data::read_regular_file(file.string());
  const std::string_view text = data::without_byte_order_mark(content);
  std::vector<KeyedLine> lines;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = trimmed(text.substr(at, end - at));
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
