#include "kernels/base/cpu/cgroup.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// A tree of groups as it is mounted: its group `top` is seen at the folder `at`.
struct Mount {
  bool v2 = false;
  std::string top, at;
};

Names split(std::string_view text, char separator) {
  Names parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// mountinfo writes spaces, tabs, newlines and backslashes as \040 and so on.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(digits, digits + 3, value, 8).ptr == digits + 3) {
      plain += static_cast<char>(value);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Those that have the controller ("cpu").
std::vector<Mount> mounts_of(const fs::path& root, std::string_view controller) {
  std::vector<Mount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  // "31 23 0:28 /top /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw"
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const Names where = split(std::string_view(line).substr(0, dash), ' '),
                what = split(std::string_view(line).substr(dash + 3), ' ');
    if (where.size() < 5 || what.size() < 3) continue;
    const bool v2 = what[0] == "cgroup2";
    if (!v2 && (what[0] != "cgroup" || !has(split(what[2], ','), controller))) continue;
    mounts.push_back({v2, unescaped(where[3]), unescaped(where[4])});
  }
  // Where it mostly is: something else may be mounted over what mountinfo names.
  mounts.push_back({true, "/", "/sys/fs/cgroup"});
  return mounts;
}

// The path of the process's group in the tree of version 2, or in that of a controller.
std::optional<std::string> own_group(const fs::path& root, bool v2, std::string_view controller) {
  std::ifstream file(root / "proc/self/cgroup");
  // "4:cpu,cpuacct:/path" or "0::/path"
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const Names controllers =
        split(std::string_view(line).substr(first + 1, second - first - 1), ',');
    if (v2 ? controllers.empty() : has(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The folders of the process's group and of those above it, as far as they are mounted.
std::vector<fs::path> folders_of(const fs::path& root, const Mount& mount,
                                 std::string_view controller) {
  fs::path folder = root / fs::path(mount.at).relative_path();
  std::vector<fs::path> folders = {folder};
  const Names top = split(mount.top, '/'),
              own = split(own_group(root, mount.v2, controller).value_or("/"), '/');
  const bool is_below = own.size() >= top.size() && std::equal(top.begin(), top.end(), own.begin());
  if (!is_below) return folders;
  const auto begin = own.begin() + static_cast<std::ptrdiff_t>(top.size());
  if (std::find(begin, own.end(), "..") != own.end()) return folders;
  for (auto name = begin; name != own.end(); ++name) folders.push_back(folder /= *name);
  return folders;
}

// The numbers of the file's first line; none if there is anything else ("max").
std::vector<double> numbers_in(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::vector<double> numbers;
  for (const std::string& word : split(line, ' ')) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) return {};
    numbers.push_back(value);
  }
  return numbers;
}

std::optional<double> cpus_of(const fs::path& folder, bool v2) {
  std::vector<double> n;  // microseconds of CPU time, and in how many of time
  if (v2) {
    n = numbers_in(folder / "cpu.max");
  } else {
    n = numbers_in(folder / "cpu.cfs_quota_us");  // -1: none
    for (const double period : numbers_in(folder / "cpu.cfs_period_us")) n.push_back(period);
  }
  if (n.size() != 2 || !(n[0] > 0) || !(n[1] > 0)) return std::nullopt;
  return n[0] / n[1];
}

std::optional<double> memory_of(const fs::path& folder, bool v2) {
  const auto n = numbers_in(folder / (v2 ? "memory.max" : "memory.limit_in_bytes"));
  // Version 1 says "none" by the largest number of pages, which no machine has.
  if (n.size() != 1 || !(n[0] > 0) || n[0] > 0x1p60) return std::nullopt;
  return n[0];
}

template <class Limit>
std::optional<double> least(const fs::path& root, std::string_view controller, Limit limit_of) {
  std::optional<double> least;
  for (const Mount& mount : mounts_of(root, controller)) {
    for (const fs::path& folder : folders_of(root, mount, controller)) {
      const std::optional<double> limit = limit_of(folder, mount.v2);
      if (limit && (!least || *limit < *least)) least = limit;
    }
  }
  return least;
}

}  // namespace

std::optional<double> cgroup_cpus(const fs::path& root) { return least(root, "cpu", cpus_of); }

std::optional<double> cgroup_memory(const fs::path& root) {
  return least(root, "memory", memory_of);
}

}  // namespace rondo
