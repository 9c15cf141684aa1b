#include "kernels/base/text.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace rondo {
namespace {

std::string number_text(double value, std::chars_format format, int digits) {
  char buffer[512];  // the largest double has 309 digits before the point
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, format, digits);
  return error == std::errc{} ? std::string(buffer, end) : "?";
}

}  // namespace

std::string fixed_text(double value, int digits) {
  return number_text(value, std::chars_format::fixed, digits);
}
std::string short_text(double value, int digits) {
  return number_text(value, std::chars_format::general, digits);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, change}));
    }
  }
  return row[b.size()];
}

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    // All letters of a short word exchanged make any other one.
    const size_t distance = edit_distance(word, candidate);
    if (distance >= least || distance >= word.size()) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

}  // namespace rondo
