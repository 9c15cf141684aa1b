#include "engine/text/reading_order.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "engine/text/unicode.h"

namespace rondo {
namespace {

enum class Kind : uint8_t { rightward, leftward, digit, separator, sign, mark, neutral };

Kind kind_of(char32_t c) {
  switch (utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->bidi_class) {
    case UTF8PROC_BIDI_CLASS_L:
      return Kind::rightward;
    case UTF8PROC_BIDI_CLASS_R:
    case UTF8PROC_BIDI_CLASS_AL:
      return Kind::leftward;
    case UTF8PROC_BIDI_CLASS_EN:
    case UTF8PROC_BIDI_CLASS_AN:
      return Kind::digit;
    case UTF8PROC_BIDI_CLASS_ES:
    case UTF8PROC_BIDI_CLASS_CS:
      return Kind::separator;
    case UTF8PROC_BIDI_CLASS_ET:
      return Kind::sign;
    case UTF8PROC_BIDI_CLASS_NSM:
      return Kind::mark;
    default:
      return Kind::neutral;
  }
}

// A character with the marks behind it.
struct Cluster {
  size_t first = 0, end = 0;
  Kind kind = Kind::neutral;
};

std::vector<Cluster> clusters_of(std::span<const char32_t> text) {
  std::vector<Cluster> clusters;
  for (size_t i = 0; i < text.size(); ++i) {
    const Kind kind = kind_of(text[i]);
    if (kind == Kind::mark && !clusters.empty()) {
      clusters.back().end = i + 1;
    } else {
      clusters.push_back({i, i + 1, kind == Kind::mark ? Kind::neutral : kind});
    }
  }
  return clusters;
}

// Turns round each number in a stretch without letters.
void turn_numbers(std::span<Cluster> c) {
  const auto is_part = [&](size_t i) {
    return i < c.size() && (c[i].kind == Kind::digit || c[i].kind == Kind::sign);
  };
  for (size_t first = 0, end = 0; first < c.size(); first = std::max(end, first + 1)) {
    end = first;
    bool has_digit = false;
    while (is_part(end) || (end > first && is_part(end - 1) && is_part(end + 1) &&
                            c[end].kind == Kind::separator)) {
      has_digit = has_digit || c[end].kind == Kind::digit;
      ++end;
    }
    if (!has_digit) continue;
    std::reverse(c.begin() + static_cast<ptrdiff_t>(first),
                 c.begin() + static_cast<ptrdiff_t>(end));
  }
}

// Turns round what of a stretch between right-to-left letters is written the other way.
void turn(std::span<Cluster> c) {
  const auto is_strong = [](const Cluster& one) {
    return one.kind == Kind::rightward || one.kind == Kind::digit;
  };
  const bool has_letter = std::any_of(
      c.begin(), c.end(), [](const Cluster& one) { return one.kind == Kind::rightward; });
  if (!has_letter) return turn_numbers(c);
  auto first = std::find_if(c.begin(), c.end(), is_strong);
  auto end = std::find_if(c.rbegin(), c.rend(), is_strong).base();
  // Signs at either end are of a number, mostly; that they go with letters, too, keeps the rule its
  // own inverse.
  const auto is_sign = [](const Cluster& one) { return one.kind == Kind::sign; };
  while (first != c.begin() && is_sign(*std::prev(first))) --first;
  end = std::find_if_not(end, c.end(), is_sign);
  std::reverse(first, end);
}

}  // namespace

std::vector<size_t> leftward_order(std::span<const char32_t> text) {
  std::vector<Cluster> clusters = clusters_of(text);
  for (size_t first = 0, end = 0; first < clusters.size(); first = end + 1) {
    end = first;
    while (end < clusters.size() && clusters[end].kind != Kind::leftward) ++end;
    turn(std::span(clusters).subspan(first, end - first));
  }
  std::vector<size_t> order;
  order.reserve(text.size());
  for (const Cluster& c : clusters) {
    for (size_t i = c.first; i < c.end; ++i) order.push_back(i);
  }
  return order;
}

bool is_written_leftwards(char32_t c) { return kind_of(c) == Kind::leftward; }
bool is_written_rightwards(char32_t c) { return kind_of(c) == Kind::rightward; }

std::string in_leftward_order(std::string_view text) {
  const std::vector<char32_t> points = code_points(text);
  std::string out;
  for (const size_t i : leftward_order(points)) out += to_utf8(points[i]);
  return out;
}

}  // namespace rondo
