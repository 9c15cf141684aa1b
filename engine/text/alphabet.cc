#include "engine/text/alphabet.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <utility>

#include "engine/text/characters.h"
#include "engine/text/marks.h"
#include "engine/text/reading_order.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {

namespace {

std::string number_symbol(size_t i) { return std::to_string(i + 1) + " "; }

bool all_numbers(const std::vector<std::string>& symbols) {
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i] != number_symbol(i)) return false;
  }
  return !symbols.empty();
}

bool all_words(const std::vector<std::string>& symbols) {
  const auto is_word = [](const std::string& symbol) {
    if (symbol.size() < 2 || symbol.back() != ' ') return false;
    const std::string word = symbol.substr(0, symbol.size() - 1);
    return normalize_transcript(word) == word && split_words(word).size() == 1;
  };
  return !symbols.empty() && std::all_of(symbols.begin(), symbols.end(), is_word);
}

void note_unknown(std::vector<UnknownText>& unknown, const std::string& what) {
  const auto known = std::find_if(unknown.begin(), unknown.end(),
                                  [&](const UnknownText& u) { return u.what == what; });
  if (known == unknown.end()) {
    unknown.push_back({what, 1});
  } else {
    ++known->count;
  }
}

bool is_one_character(const std::vector<char32_t>& points) {
  for (size_t i = 1; i < points.size(); ++i) {
    if (!continues_character(points[i - 1], points[i])) return false;
  }
  return !points.empty();
}

// A mark is one sign that is written in no direction.
constexpr char32_t sign_of_mark = 0xfffc;

}  // namespace

Alphabet Alphabet::of_numbers(int32_t count) {
  std::vector<std::string> symbols;
  for (int32_t i = 0; i < count; ++i) symbols.push_back(number_symbol(static_cast<size_t>(i)));
  return Alphabet(std::move(symbols));
}

Alphabet::Alphabet(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {
  numbers_ = all_numbers(symbols_);
  words_ = numbers_ || all_words(symbols_);
  if (numbers_) return;
  for (size_t i = 0; i < symbols_.size(); ++i) add_symbol(symbols_[i], static_cast<int32_t>(i) + 1);
}

void Alphabet::add_symbol(const std::string& symbol, int32_t label) {
  const auto points = code_points(symbol);
  const bool is_long = words_ || is_mark(symbol);
  if ((!is_long && !is_one_character(points)) || to_nfc(symbol) != symbol)
    fail_input("alphabet: symbol ", label - 1, " is ", quoted_start(symbol),
               ", expected one character in Unicode normal form C, or a mark in brackets");
  const bool is_cluster = !is_long && points.size() > 1;
  const bool is_new =
      is_long      ? long_labels_.emplace(symbol.substr(0, symbol.size() - words_), label).second
      : is_cluster ? clusters_.emplace(std::u32string(points.begin(), points.end()), label).second
                   : labels_.emplace(points[0], label).second;
  if (!is_new)
    fail_input("alphabet: symbol ",
               is_long || is_cluster ? quoted_start(symbol) : describe(points[0]), " occurs twice");
}

Alphabet Alphabet::from_transcripts(std::span<const std::string> transcripts,
                                    const TextRules& rules) {
  std::set<char32_t> seen;
  std::set<std::string> longer;
  for (size_t i = 0; i < transcripts.size(); ++i) {
    try {
      const std::string text = normalize_transcript(transcripts[i]);
      if (rules.unit == TextUnit::word) {
        for (const std::string& word : split_words(text)) longer.insert(word + " ");
        continue;
      }
      for (const TextPiece& p :
           rules.marks == Marks::token ? pieces_of(text) : std::vector<TextPiece>{{text}}) {
        if (p.is_mark) {
          longer.insert(p.text);
        } else {
          for (const char32_t c : code_points(p.text)) seen.insert(c);
        }
      }
    } catch (const InputError& e) {
      fail_input("transcript ", i + 1, ": ", e.what());
    }
  }
  std::vector<std::string> symbols;
  for (char32_t c : seen) symbols.push_back(to_utf8(c));
  symbols.insert(symbols.end(), longer.begin(), longer.end());
  return Alphabet(std::move(symbols));
}

std::string_view Alphabet::units() const {
  return numbers_ ? "numbers" : words_ ? "words" : "characters";
}

Alphabet Alphabet::reading_leftwards() const {
  Alphabet other = *this;
  other.leftwards_ = !words_;
  return other;
}

std::vector<Alphabet::Unit> Alphabet::in_order(std::vector<Unit> units, Order order) const {
  if (!leftwards_) return units;
  std::vector<char32_t> signs;
  for (const Unit& u : units) signs.push_back(u.sign);
  std::vector<Unit> out;
  for (const size_t i : order(signs)) out.push_back(std::move(units[i]));
  return out;
}

std::vector<Alphabet::Unit> Alphabet::units_of(std::string_view text) const {
  std::vector<Unit> units;
  // Without marks in the alphabet they are characters as others.
  for (TextPiece& p :
       long_labels_.empty() ? std::vector<TextPiece>{{std::string(text)}} : pieces_of(text)) {
    if (p.is_mark) {
      units.push_back({sign_of_mark, std::move(p.text)});
    } else {
      for (const char32_t c : code_points(p.text)) units.push_back({c, {}});
    }
  }
  return units;
}

std::string Alphabet::text_of(const std::vector<Unit>& units) {
  std::string text;
  for (const Unit& u : units) text += u.mark.empty() ? to_utf8(u.sign) : u.mark;
  return text;
}

std::string Alphabet::in_order(std::string_view text, Order order) const {
  return leftwards_ ? text_of(in_order(units_of(text), order)) : std::string(text);
}

std::string Alphabet::in_label_order(std::string_view text) const {
  return in_order(text, leftward_order);
}

std::string Alphabet::in_text_order(std::string_view labels) const {
  return in_order(labels, logical_order);
}

EncodedText Alphabet::encode(std::string_view text) const {
  const std::string normal = normalize_transcript(text);
  if (words_) return encode_words(normal);
  EncodedText out;
  const std::vector<Unit> units = in_order(units_of(normal), leftward_order);
  std::vector<char32_t> signs;
  for (const Unit& u : units) signs.push_back(u.sign);
  for (size_t i = 0; i < units.size();) {
    const std::string& mark = units[i].mark;
    if (mark.empty()) {
      const auto [label, count] = label_at(std::span(signs).subspan(i));
      if (count > 0) {
        out.labels.push_back(label);
      } else {
        note_unknown(out.unknown, describe(signs[i]));
      }
      i += std::max<size_t>(count, 1);
      continue;
    }
    if (const auto found = long_labels_.find(mark); found != long_labels_.end()) {
      out.labels.push_back(found->second);
    } else {
      note_unknown(out.unknown, quoted_start(mark));
    }
    ++i;
  }
  return out;
}

std::pair<int32_t, size_t> Alphabet::label_at(std::span<const char32_t> rest) const {
  // Of symbols that begin alike the longer ones stand behind the shorter.
  std::pair<int32_t, size_t> best;
  for (auto c = clusters_.lower_bound(std::u32string_view(rest.data(), 1));
       c != clusters_.end() && c->first.front() == rest.front(); ++c) {
    const std::u32string_view shown(rest.data(), std::min(rest.size(), c->first.size()));
    if (c->first == shown) best = {c->second, shown.size()};
  }
  if (best.second > 0) return best;
  const auto found = labels_.find(rest.front());
  return found == labels_.end() ? best : std::pair<int32_t, size_t>{found->second, 1};
}

std::optional<int32_t> Alphabet::label_of_word(const std::string& word) const {
  if (!numbers_) {
    const auto found = long_labels_.find(word);
    if (found == long_labels_.end()) return {};
    return found->second;
  }
  int32_t label = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, label);
  if (error != std::errc{} || stop != end || label < 1 || label >= classes()) return {};
  return label;
}

EncodedText Alphabet::encode_words(const std::string& text) const {
  EncodedText out;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ' ');) {
    if (const auto label = label_of_word(word)) {
      out.labels.push_back(*label);
    } else {
      note_unknown(out.unknown, numbers_ ? printable_start(word, 80) : quoted_start(word));
    }
  }
  return out;
}

std::string Alphabet::decode(std::span<const int32_t> labels) const {
  std::string out;
  std::vector<Unit> units;
  for (int32_t label : labels) {
    RONDO_CHECK(label >= 1 && label < classes(), "label ", label, ", expected 1 to ",
                classes() - 1);
    const std::string& symbol = symbols_[static_cast<size_t>(label) - 1];
    if (!leftwards_) {
      out += symbol;
      continue;
    }
    if (is_mark(symbol)) {
      units.push_back({sign_of_mark, symbol});
    } else {
      for (const char32_t c : code_points(symbol)) units.push_back({c, {}});
    }
  }
  if (leftwards_) return text_of(in_order(std::move(units), logical_order));
  if (words_ && !out.empty()) out.pop_back();
  return out;
}

bool look_like_phones(std::span<const std::string> texts) {
  constexpr size_t most_kinds = 200;
  constexpr int64_t least_words = 20, least_recurrence = 3, most_letters = 3;
  std::set<std::string> kinds;
  int64_t words = 0, letters = 0, longer = 0, too_long = 0;
  for (const std::string& text : texts) {
    for (std::string& word : split_words(text)) {
      int64_t own = 0;  // stress, tone and length stand beside a phone's letters
      for (const char32_t c : code_points(word)) own += is_letter(c);
      ++words;
      letters += own;
      longer += own > 1;
      // A few may be: names of noises and pauses.
      too_long += own > most_letters;
      kinds.insert(std::move(word));
      if (kinds.size() > most_kinds || (words > 200 && 10 * too_long > words)) return false;
    }
  }
  const auto different = static_cast<int64_t>(kinds.size());
  return longer > 0 && 10 * too_long <= words &&
         words >= std::max(least_words, least_recurrence * different) &&
         words >= 2 * static_cast<int64_t>(texts.size()) && 10 * letters <= 22 * words &&
         10 * letters >= 7 * words;
}

Alphabet extended(const Alphabet& first, const Alphabet& second) {
  if (first.units() != second.units())
    fail_input("an alphabet of ", first.units(), " cannot be extended by ", second.units());
  if (first.is_of_numbers()) {
    return Alphabet::of_numbers(std::max(first.classes(), second.classes()) - 1);
  }
  std::vector<std::string> symbols = first.symbols();
  for (const std::string& symbol : second.symbols()) {
    if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end()) {
      symbols.push_back(symbol);
    }
  }
  return Alphabet(std::move(symbols));
}

std::vector<int32_t> encode_or_fail(const TextEncoder& encoder, std::string_view text,
                                    UnknownCharacters policy, std::string_view where) {
  EncodedText encoded = encoder.encode(text);
  if (policy == UnknownCharacters::error && !encoded.unknown.empty())
    fail_input(where, ": the text holds ", encoder.units(),
               " outside the alphabet: ", describe(encoded.unknown));
  return std::move(encoded.labels);
}

}  // namespace rondo
