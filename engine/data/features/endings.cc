#include "engine/data/features/endings.h"

#include <algorithm>

namespace rondo {
namespace {

// The same in every locale.
char small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::string ending_of(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return {};
  std::string ending(name.substr(dot));
  std::transform(ending.begin(), ending.end(), ending.begin(), small);
  return ending;
}

bool has_ending(std::string_view path, std::string_view ending) {
  return path.size() >= ending.size() &&
         std::equal(ending.rbegin(), ending.rend(), path.rbegin(),
                    [](char wanted, char c) { return wanted == small(c); });
}

}  // namespace rondo
