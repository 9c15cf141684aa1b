#include "tools/corpus/lists/file_choice.h"

#include <fnmatch.h>

#include <algorithm>

namespace rondo::corpus {
namespace {

bool fits(std::string pattern, const std::string& path) {
  while (pattern.ends_with('/')) pattern.pop_back();
  const bool is_name = pattern.find('/') == std::string::npos;
  while (pattern.starts_with("./")) pattern.erase(0, 2);
  while (pattern.starts_with('/')) pattern.erase(0, 1);
  // Where ** stands, * may stand for a / as well.
  const bool is_deep = pattern.find("**") != std::string::npos;
  const auto is_like = [&](const std::string& text) {
    const int flags = is_deep ? 0 : FNM_PATHNAME;
    if (fnmatch(pattern.c_str(), text.c_str(), flags) == 0) return true;
    return pattern.starts_with("**/") && fnmatch(pattern.c_str() + 3, text.c_str(), flags) == 0;
  };
  size_t begin = 0;
  for (;;) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (is_like(is_name ? path.substr(begin, end - begin) : path.substr(0, end))) return true;
    if (end == path.size()) return false;
    begin = end + 1;
  }
}

}  // namespace

bool FileChoice::takes(const std::string& path) {
  if (is_all()) return true;
  has_fitted.resize(only.size() + exclude.size());
  bool is_wanted = only.empty();
  for (size_t i = 0; i < only.size(); ++i) {
    if (!fits(only[i], path)) continue;
    is_wanted = true;
    has_fitted[i] = true;
  }
  for (size_t i = 0; i < exclude.size(); ++i) {
    if (!fits(exclude[i], path)) continue;
    is_wanted = false;
    has_fitted[only.size() + i] = true;
  }
  passed_over += !is_wanted;
  return is_wanted;
}

std::vector<std::string> FileChoice::unused() const {
  std::vector<std::string> patterns = only;
  patterns.insert(patterns.end(), exclude.begin(), exclude.end());
  std::vector<std::string> never;
  for (size_t i = 0; i < patterns.size(); ++i)
    if (i >= has_fitted.size() || !has_fitted[i]) never.push_back(patterns[i]);
  return never;
}

}  // namespace rondo::corpus
