#include "engine/text/marks.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/text/characters.h"
#include "engine/text/unicode.h"

namespace rondo {
namespace {

struct Brackets {
  char32_t open, close;
};

constexpr Brackets all_brackets[] = {
    {U'<', U'>'},           {U'[', U']'},           {U'{', U'}'},          {U'(', U')'},
    {U'\uff1c', U'\uff1e'}, {U'\uff3b', U'\uff3d'}, {U'\uff5b', U'\uff5d'}};

const Brackets* opened_by(char32_t c) {
  for (const Brackets& b : all_brackets)
    if (b.open == c) return &b;
  return nullptr;
}

bool is_bracket(char32_t c) {
  return std::any_of(std::begin(all_brackets), std::end(all_brackets),
                     [c](const Brackets& b) { return c == b.open || c == b.close; });
}

bool is_angle(const Brackets& b) { return b.open == U'<' || b.open == U'\uff1c'; }

bool may_be_in_mark(char32_t c) {
  constexpr std::u32string_view signs = U"_-/|#%'\"*+~@&=:\\^";
  return is_letter(c) || is_digit(c) || is_combining(c) || is_white_space(c) ||
         signs.find(c) != signs.npos;
}

using Points = std::vector<char32_t>;

bool touches_word(const Points& text, size_t begin, size_t end) {
  const auto is_of_word = [](char32_t c) {
    return (is_letter(c) && !is_of_unspaced_script(c)) || is_digit(c);
  };
  return (begin > 0 && is_of_word(text[begin - 1])) || (end < text.size() && is_of_word(text[end]));
}

struct Found {
  size_t end = 0;  // behind the mark
  std::string name;
};

// The mark that begins at `begin`.
std::optional<Found> mark_at(const Points& text, size_t begin) {
  constexpr size_t longest = 32, most_words = 4;
  const Brackets* const brackets = opened_by(text[begin]);
  if (!brackets) return {};
  const bool round = brackets->open == U'(', angle = is_angle(*brackets);
  const bool twice = begin + 1 < text.size() && text[begin + 1] == brackets->open;
  if (round && !twice) return {};
  const size_t width = twice ? 2 : 1, first = begin + width;
  size_t last = first;
  while (last < text.size() && !is_bracket(text[last]) && last - first <= longest) {
    if (!may_be_in_mark(text[last])) return {};
    ++last;
  }
  if (last - first > longest || last + width > text.size()) return {};
  if (text[last] != brackets->close || text[last + width - 1] != brackets->close) return {};
  const size_t end = last + width;
  std::string inside;
  size_t letters = 0;
  for (size_t i = first; i < last; ++i) {
    inside += to_utf8(text[i]);
    // One of Chinese or Japanese is a word.
    letters += is_letter(text[i]) ? (is_of_unspaced_script(text[i]) ? 2 : 1) : 0;
  }
  const std::vector<std::string> words = split_words(inside);
  if (round ? words.size() > 1 : letters < (angle ? 1u : 2u)) return {};
  if (round && !words.empty() && letters == 0) return {};
  if (words.size() > most_words) return {};
  // "a < b and c > d" is none, nor "x<y and z>w", nor "th[is]".
  const bool padded =
      first < last && (is_white_space(text[first]) || is_white_space(text[last - 1]));
  if (angle && padded) return {};
  const bool may_touch = round || (angle && words.size() == 1);
  if (!may_touch && touches_word(text, begin, end)) return {};
  Found found{end, {}};
  for (size_t i = 0; i < width; ++i) found.name += to_utf8(brackets->open);
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) found.name += '_';
    found.name += words[i];
  }
  for (size_t i = 0; i < width; ++i) found.name += to_utf8(brackets->close);
  return found;
}

bool has_bracket(std::string_view text) {
  return text.find_first_of("<[{(\xef") != std::string_view::npos;
}

}  // namespace

std::vector<TextPiece> pieces_of(std::string_view text) {
  std::vector<TextPiece> pieces;
  if (text.empty()) return pieces;
  if (!has_bracket(text)) return {{std::string(text), false}};
  const Points points = code_points(text);
  for (size_t i = 0; i < points.size();) {
    if (auto found = mark_at(points, i)) {
      pieces.push_back({std::move(found->name), true});
      i = found->end;
      continue;
    }
    if (pieces.empty() || pieces.back().is_mark) pieces.emplace_back();
    pieces.back().text += to_utf8(points[i++]);
  }
  return pieces;
}

bool is_mark(std::string_view text) {
  const std::vector<TextPiece> pieces = pieces_of(text);
  return pieces.size() == 1 && pieces.front().is_mark && pieces.front().text == text;
}

std::string with_named_marks(std::string_view text) {
  std::string named;
  for (const TextPiece& p : pieces_of(text)) named += p.text;
  return named;
}

std::string without_marks(std::string_view text) {
  const std::vector<TextPiece> pieces = pieces_of(text);
  std::string left;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].is_mark) {
      left += pieces[i].text;
      continue;
    }
    // In a script without spaces none comes to be.
    const bool inside = i > 0 && i + 1 < pieces.size() && !pieces[i + 1].is_mark && !left.empty() &&
                        is_of_unspaced_script(code_points(left).back()) &&
                        is_of_unspaced_script(code_points(pieces[i + 1].text).front());
    if (!inside) left += ' ';
  }
  return left;
}

}  // namespace rondo
