#include "engine/text/reading_order.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>

#include "engine/text/unicode.h"

namespace rondo {
namespace {

// Bidi_Class by its short names, without what has no part in a line. `EL` is an EN behind L, which
// W7 makes L.
enum class Kind : uint8_t { L, R, AL, EN, EL, AN, ES, CS, ET, S, WS, ON, joined };

Kind kind_of(char32_t c) {
  switch (utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->bidi_class) {
    case UTF8PROC_BIDI_CLASS_L:
      return Kind::L;
    case UTF8PROC_BIDI_CLASS_R:
      return Kind::R;
    case UTF8PROC_BIDI_CLASS_AL:
      return Kind::AL;
    case UTF8PROC_BIDI_CLASS_EN:
      return Kind::EN;
    case UTF8PROC_BIDI_CLASS_AN:
      return Kind::AN;
    case UTF8PROC_BIDI_CLASS_ES:
      return Kind::ES;
    case UTF8PROC_BIDI_CLASS_CS:
      return Kind::CS;
    case UTF8PROC_BIDI_CLASS_ET:
      return Kind::ET;
    case UTF8PROC_BIDI_CLASS_B:
    case UTF8PROC_BIDI_CLASS_S:
      return Kind::S;
    case UTF8PROC_BIDI_CLASS_WS:
      return Kind::WS;
    case UTF8PROC_BIDI_CLASS_ON:
      return Kind::ON;
    default:
      return Kind::joined;  // NSM, BN, explicit formatting
  }
}

bool is_strong(Kind k) { return k == Kind::L || k == Kind::R || k == Kind::AL; }
bool is_leftward(Kind k) { return k == Kind::R || k == Kind::AL; }
bool is_number(Kind k) { return k == Kind::EN || k == Kind::EL || k == Kind::AN; }
bool is_neutral(Kind k) { return k == Kind::ON || k == Kind::WS || k == Kind::S; }
bool is_left_to_right(Kind k) { return k == Kind::L || k == Kind::EL; }

// A character with the marks behind it.
struct Cluster {
  size_t first = 0, end = 0;
  Kind kind = Kind::ON;
  char32_t sign = 0;
};
using Line = std::vector<Cluster>;
using Kinds = std::vector<Kind>;
using Levels = std::vector<bool>;  // whether it is 2, not 1

// Marks at the beginning have the paragraph's direction (W1).
Line clusters_of(std::span<const char32_t> text) {
  Line line;
  for (size_t i = 0; i < text.size(); ++i) {
    const Kind kind = kind_of(text[i]);
    if (kind == Kind::joined && !line.empty()) {
      line.back().end = i + 1;
    } else {
      line.push_back({i, i + 1, kind == Kind::joined ? Kind::R : kind, text[i]});
    }
  }
  return line;
}

// W2, and which digits W7 changes: what lies between a digit and its signs changes neither.
Kinds digits_resolved(const Line& text) {
  Kinds kinds;
  Kind strong = Kind::R;
  for (const Cluster& c : text) {
    if (is_strong(c.kind)) strong = c.kind;
    const bool is_digit = c.kind == Kind::EN;
    kinds.push_back(is_digit && strong == Kind::AL  ? Kind::AN
                    : is_digit && strong == Kind::L ? Kind::EL
                                                    : c.kind);
  }
  return kinds;
}

// W3 to W6.
void join_numbers(Kinds& k) {
  const auto is_european = [](Kind kind) { return kind == Kind::EN || kind == Kind::EL; };
  std::replace(k.begin(), k.end(), Kind::AL, Kind::R);
  for (size_t i = 1; i + 1 < k.size(); ++i) {
    if (k[i - 1] != k[i + 1]) continue;
    if ((is_european(k[i - 1]) && (k[i] == Kind::ES || k[i] == Kind::CS)) ||
        (k[i - 1] == Kind::AN && k[i] == Kind::CS))
      k[i] = k[i - 1];
  }
  for (size_t first = 0, end = 0; first < k.size(); first = end + 1) {
    end = first;
    while (end < k.size() && k[end] == Kind::ET) ++end;
    if (end == first) continue;
    Kind kind = Kind::ON;
    if (end < k.size() && is_european(k[end])) kind = k[end];
    if (first > 0 && is_european(k[first - 1])) kind = k[first - 1];
    std::fill(k.begin() + static_cast<ptrdiff_t>(first), k.begin() + static_cast<ptrdiff_t>(end),
              kind);
  }
  std::replace_if(
      k.begin(), k.end(), [](Kind kind) { return kind == Kind::ES || kind == Kind::CS; }, Kind::ON);
}

// U+2329 and U+232A are canonically equivalent to U+3008 and U+3009.
char32_t canonical(char32_t bracket) {
  return bracket == 0x2329 ? 0x3008 : bracket == 0x232a ? 0x3009 : bracket;
}

bool is_closing_bracket(char32_t c) {
  const utf8proc_property_t* p = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  return p->category == UTF8PROC_CATEGORY_PE && p->bidi_mirrored != 0;
}

using Pairs = std::vector<std::pair<size_t, size_t>>;

// BD16: pairs by their openings.
Pairs bracket_pairs(const Line& line, const Kinds& kinds) {
  constexpr size_t deepest = 63;
  std::vector<std::pair<size_t, char32_t>> open;  // with what closes it
  Pairs pairs;
  for (size_t i = 0; i < line.size(); ++i) {
    if (kinds[i] != Kind::ON) continue;
    if (const char32_t closing = closing_bracket(line[i].sign)) {
      if (open.size() == deepest) break;
      open.emplace_back(i, canonical(closing));
    } else if (is_closing_bracket(line[i].sign)) {
      const auto found = std::find_if(open.rbegin(), open.rend(), [&](const auto& o) {
        return o.second == canonical(line[i].sign);
      });
      if (found == open.rend()) continue;
      pairs.emplace_back(found->first, i);
      open.erase(std::prev(found.base()), open.end());
    }
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

// N0. For neutrals numbers are R. Returns the pairs.
Pairs resolve_brackets(const Line& line, Kinds& kinds) {
  const auto is_letter_or_number = [](Kind k) { return !is_neutral(k); };
  Pairs pairs = bracket_pairs(line, kinds);
  for (const auto& [open, close] : pairs) {
    const auto begin = kinds.begin() + static_cast<ptrdiff_t>(open);
    const auto end = kinds.begin() + static_cast<ptrdiff_t>(close);
    if (std::none_of(begin, end, is_letter_or_number)) continue;
    Kind kind = Kind::R;
    if (std::none_of(begin, end, [&](Kind k) { return !is_neutral(k) && !is_left_to_right(k); })) {
      const auto before =
          std::find_if(std::make_reverse_iterator(begin), kinds.rend(), is_letter_or_number);
      if (before != kinds.rend() && is_left_to_right(*before)) kind = Kind::L;
    }
    kinds[open] = kinds[close] = kind;
  }
  return pairs;
}

// N1, N2, I2 and L1.
Levels levels_of(const Line& line, const Kinds& kinds) {
  const size_t n = line.size();
  Levels levels(n);
  for (size_t first = 0, end = 0; first < n; first = std::max(end, first + 1)) {
    end = first;
    while (end < n && is_neutral(kinds[end])) ++end;
    const bool both =
        first > 0 && end < n && is_left_to_right(kinds[first - 1]) && is_left_to_right(kinds[end]);
    for (size_t i = first; i < end; ++i) levels[i] = both;
    if (end == first) levels[first] = is_number(kinds[first]) || kinds[first] == Kind::L;
  }
  bool at_end = true;
  for (size_t i = n; i-- > 0;) {
    at_end = line[i].kind == Kind::S || (at_end && line[i].kind == Kind::WS);
    if (at_end) levels[i] = false;
  }
  return levels;
}

// L2: what stands where once each stretch of level 2 is turned round. Its own inverse.
std::vector<size_t> turned(const Levels& levels) {
  std::vector<size_t> order(levels.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t first = 0, end = 0; first < order.size(); first = end + 1) {
    end = first;
    while (end < order.size() && levels[end]) ++end;
    std::reverse(order.begin() + static_cast<ptrdiff_t>(first),
                 order.begin() + static_cast<ptrdiff_t>(end));
  }
  return order;
}

template <typename T>
std::vector<T> in_order(const std::vector<T>& of, const std::vector<size_t>& order) {
  std::vector<T> out;
  for (const size_t i : order) out.push_back(of[i]);
  return out;
}

std::vector<size_t> characters_of(const Line& line) {
  std::vector<size_t> order;
  for (const Cluster& c : line) {
    for (size_t i = c.first; i < c.end; ++i) order.push_back(i);
  }
  return order;
}

// The way back. Read from either end, W3 to W6, N1 and N2 say the same. So the levels of a line
// follow from the line alone, once two things of its text are known: of each digit, what stands
// before it, and what N0 makes of each bracket. They are guessed, and the text that follows shows
// whether the guess is right.
struct Guess {
  Kinds digits;    // as digits_resolved has them
  Kinds brackets;  // L or R, or ON
};

Levels levels_of(const Line& line, const Guess& guess) {
  Kinds kinds = guess.digits;
  join_numbers(kinds);
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == Kind::ON) kinds[i] = guess.brackets[i];
  }
  return levels_of(line, kinds);
}

Guess guess_of_text(const Line& text) {
  Guess guess;
  guess.digits = digits_resolved(text);
  Kinds before = guess.digits;
  join_numbers(before);
  Kinds after = before;
  resolve_brackets(text, after);
  for (size_t i = 0; i < text.size(); ++i)
    guess.brackets.push_back(before[i] == Kind::ON ? after[i] : Kind::ON);
  return guess;
}

// The stretches between letters from right to left, which stand in the text where they stand in the
// line: which one each cluster belongs to.
std::vector<size_t> stretches_of(const Line& line) {
  std::vector<size_t> stretches;
  size_t now = 0;
  for (const Cluster& c : line) {
    now += is_leftward(c.kind);
    stretches.push_back(now);
  }
  return stretches;
}

// N0 of the line as if it were the text.
void guess_brackets(const Line& line, Guess& guess) {
  Kinds kinds = guess.digits;
  join_numbers(kinds);
  const Kinds unresolved = kinds;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (guess.brackets[i] == Kind::L) kinds[i] = Kind::L;
  }
  resolve_brackets(line, kinds);
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (unresolved[i] == Kind::ON) guess.brackets[i] = kinds[i];
  }
}

// What a letter or a number from left to right stands beside, where it is in no phrase.
Guess guess_of_numbers(const Line& line) {
  Guess guess;
  Kind strong = Kind::R;
  for (const Cluster& c : line) {
    if (is_leftward(c.kind)) strong = c.kind;
    guess.digits.push_back(c.kind == Kind::EN && strong == Kind::AL ? Kind::AN : c.kind);
  }
  guess.brackets.assign(line.size(), Kind::ON);
  guess_brackets(line, guess);
  return guess;
}

// A stretch with letters from left to right is a phrase, of which its numbers are parts. Brackets
// are pairs where they are once it is turned.
Guess guess_of_phrases(const Line& line, const std::vector<size_t>& stretches) {
  Guess guess = guess_of_numbers(line);
  guess.brackets.assign(line.size(), Kind::ON);
  for (size_t first = 0, end = 0; first < line.size(); first = end) {
    while (end < line.size() && stretches[end] == stretches[first]) ++end;
    Line phrase(line.begin() + static_cast<ptrdiff_t>(first),
                line.begin() + static_cast<ptrdiff_t>(end));
    std::reverse(phrase.begin(), phrase.end());
    if (std::none_of(phrase.begin(), phrase.end(),
                     [](const Cluster& c) { return c.kind == Kind::L; }))
      continue;
    Kinds kinds;
    for (const Cluster& c : phrase) kinds.push_back(c.kind == Kind::EN ? Kind::EL : c.kind);
    std::reverse_copy(kinds.begin(), kinds.end(),
                      guess.digits.begin() + static_cast<ptrdiff_t>(first));
    join_numbers(kinds);
    for (const auto& [open, close] : resolve_brackets(phrase, kinds)) {
      if (kinds[open] != Kind::L) continue;
      guess.brackets[end - 1 - open] = guess.brackets[end - 1 - close] = Kind::L;
    }
  }
  guess_brackets(line, guess);
  return guess;
}

// The guess for some stretches is another's.
void take(Guess& guess, const Guess& other, const std::vector<bool>& which) {
  for (size_t i = 0; i < which.size(); ++i) {
    if (!which[i]) continue;
    guess.digits[i] = other.digits[i];
    guess.brackets[i] = other.brackets[i];
  }
}

// What a text that is taken from the line by these levels would be shown as: where it differs, the
// levels are wrong. With what is true of that text.
Levels shown_by(const Line& line, const Levels& levels, Guess* truth = nullptr) {
  const std::vector<size_t> order = turned(levels);
  const Line text = in_order(line, order);
  const Guess guess = guess_of_text(text);
  if (truth) *truth = {in_order(guess.digits, order), in_order(guess.brackets, order)};
  return in_order(levels_of(text, guess), order);
}

// Which clusters are in stretches with wrong levels.
std::vector<bool> in_wrong(const std::vector<size_t>& stretches, const Levels& levels,
                           const Levels& shown) {
  std::vector<bool> wrong_stretches(stretches.size() + 1), wrong;
  for (size_t i = 0; i < stretches.size(); ++i) {
    if (shown[i] != levels[i]) wrong_stretches[stretches[i]] = true;
  }
  for (const size_t s : stretches) wrong.push_back(wrong_stretches[s]);
  return wrong;
}

// Improves the guess by what is true of the text that follows from it. Returns what is wrong still.
std::vector<bool> improve(const Line& line, const std::vector<size_t>& stretches, Guess& guess) {
  constexpr int most_rounds = 4;
  for (int round = 0;; ++round) {
    const Levels levels = levels_of(line, guess);
    Guess truth;
    const std::vector<bool> wrong = in_wrong(stretches, levels, shown_by(line, levels, &truth));
    if (round == most_rounds || std::none_of(wrong.begin(), wrong.end(), std::identity()))
      return wrong;
    take(guess, truth, wrong);
  }
}

// How many levels in a stretch are wrong, and the first of them.
std::pair<size_t, size_t> wrong_levels(const Line& line, size_t first, size_t end,
                                       const Levels& levels) {
  const Levels shown = shown_by(line, levels);
  std::pair<size_t, size_t> wrong{0, end};
  for (size_t i = end; i-- > first;) {
    if (shown[i] != levels[i]) wrong = {wrong.first + 1, i};
  }
  return wrong;
}

// Tries all levels of the neutral characters in a stretch, of many those about the first that is
// wrong, and again as long as fewer are wrong. Whether none is.
bool try_all(const Line& line, size_t first, size_t end, Levels& levels) {
  constexpr size_t most = 8;
  std::vector<size_t> neutral;
  for (size_t i = first; i < end; ++i) {
    if (!is_strong(line[i].kind) && !is_number(line[i].kind)) neutral.push_back(i);
  }
  for (auto wrong = wrong_levels(line, first, end, levels); wrong.first > 0;) {
    const auto at = std::lower_bound(neutral.begin(), neutral.end(), wrong.second);
    const size_t count = std::min(neutral.size(), most);
    const auto before = std::min(static_cast<size_t>(at - neutral.begin()), count / 2);
    const size_t begin =
        std::min(static_cast<size_t>(at - neutral.begin()) - before, neutral.size() - count);
    std::pair<size_t, size_t> least = wrong;
    Levels best = levels, tried = levels;
    for (size_t choice = 0; choice >> count == 0 && least.first > 0; ++choice) {
      for (size_t n = 0; n < count; ++n) tried[neutral[begin + n]] = (choice >> n & 1) != 0;
      const auto now = wrong_levels(line, first, end, tried);
      if (now.first < least.first) least = now, best = tried;
    }
    if (least.first == wrong.first) return false;
    wrong = least;
    levels = best;
  }
  return true;
}

}  // namespace

std::vector<size_t> leftward_order(std::span<const char32_t> text) {
  const Line line = clusters_of(text);
  return characters_of(in_order(line, turned(levels_of(line, guess_of_text(line)))));
}

std::vector<size_t> logical_order(std::span<const char32_t> met) {
  const Line line = clusters_of(met);
  const std::vector<size_t> stretches = stretches_of(line);
  const Guess phrases = guess_of_phrases(line, stretches);
  Guess guess = phrases;
  take(guess, guess_of_numbers(line), improve(line, stretches, guess));
  const std::vector<bool> wrong = improve(line, stretches, guess);
  take(guess, phrases, wrong);
  Levels levels = levels_of(line, guess);
  for (size_t first = 0, end = 0; first < line.size(); first = end) {
    while (end < line.size() && stretches[end] == stretches[first]) ++end;
    if (!wrong[first]) continue;
    Levels tried = levels;
    if (try_all(line, first, end, tried)) levels = tried;
  }
  return characters_of(in_order(line, turned(levels)));
}

bool is_written_leftwards(char32_t c) { return is_leftward(kind_of(c)); }
bool is_written_rightwards(char32_t c) { return kind_of(c) == Kind::L; }

// Brackets are the mirrored characters of the categories Ps and Pe; what closes is the next
// character but where these lines say otherwise.
char32_t closing_bracket(char32_t c) {
  const utf8proc_property_t* p = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (p->category != UTF8PROC_CATEGORY_PS || p->bidi_mirrored == 0) return 0;
  switch (c) {
    case U'[':
    case U'{':
    case 0xff3b:
    case 0xff5b:
      return c + 2;
    case 0x298d:
      return 0x2990;
    case 0x298f:
      return 0x298e;
    default:
      return c + 1;
  }
}

namespace {

std::string in_given_order(std::string_view text,
                           std::vector<size_t> (*order)(std::span<const char32_t>)) {
  const std::vector<char32_t> points = code_points(text);
  std::string out;
  for (const size_t i : order(points)) out += to_utf8(points[i]);
  return out;
}

}  // namespace

std::string in_leftward_order(std::string_view text) {
  return in_given_order(text, leftward_order);
}

std::string in_logical_order(std::string_view met) { return in_given_order(met, logical_order); }

}  // namespace rondo
