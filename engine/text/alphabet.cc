#include "engine/text/alphabet.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <utility>

#include "engine/text/reading_order.h"
#include "engine/text/unicode.h"
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

void note_unknown(std::vector<UnknownText>& unknown, const std::string& what) {
  const auto known = std::find_if(unknown.begin(), unknown.end(),
                                  [&](const UnknownText& u) { return u.what == what; });
  if (known == unknown.end()) {
    unknown.push_back({what, 1});
  } else {
    ++known->count;
  }
}

}  // namespace

Alphabet Alphabet::of_numbers(int32_t count) {
  std::vector<std::string> symbols;
  for (int32_t i = 0; i < count; ++i) symbols.push_back(number_symbol(static_cast<size_t>(i)));
  return Alphabet(std::move(symbols));
}

Alphabet::Alphabet(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {
  numbers_ = all_numbers(symbols_);
  if (numbers_) return;
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const std::string& symbol = symbols_[i];
    const auto points = code_points(symbol);
    if (points.size() != 1 || to_nfc(symbol) != symbol)
      fail_input("alphabet: symbol ", i, " is \"", symbol,
                 "\", expected exactly one character in Unicode normal form C");
    if (!labels_.emplace(points[0], static_cast<int32_t>(i) + 1).second)
      fail_input("alphabet: symbol ", describe(points[0]), " occurs twice");
  }
}

Alphabet Alphabet::from_transcripts(std::span<const std::string> transcripts) {
  std::set<char32_t> seen;
  for (size_t i = 0; i < transcripts.size(); ++i) {
    try {
      for (char32_t c : code_points(normalize_transcript(transcripts[i]))) seen.insert(c);
    } catch (const InputError& e) {
      fail_input("transcript ", i + 1, ": ", e.what());
    }
  }
  std::vector<std::string> symbols;
  for (char32_t c : seen) symbols.push_back(to_utf8(c));
  return Alphabet(std::move(symbols));
}

Alphabet Alphabet::reading_leftwards() const {
  Alphabet other = *this;
  other.leftwards_ = !numbers_;
  return other;
}

std::string Alphabet::turned(std::string_view text) const {
  return leftwards_ ? in_leftward_order(text) : std::string(text);
}

EncodedText Alphabet::encode(std::string_view text) const {
  const std::string normal = normalize_transcript(text);
  if (numbers_) return encode_numbers(normal);
  EncodedText out;
  for (char32_t c : code_points(turned(normal))) {
    if (const auto found = labels_.find(c); found != labels_.end()) {
      out.labels.push_back(found->second);
    } else {
      note_unknown(out.unknown, describe(c));
    }
  }
  return out;
}

EncodedText Alphabet::encode_numbers(const std::string& text) const {
  EncodedText out;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int32_t label = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, label);
    if (error == std::errc{} && stop == end && label >= 1 && label < classes()) {
      out.labels.push_back(label);
    } else {
      note_unknown(out.unknown, word);
    }
  }
  return out;
}

std::string Alphabet::decode(std::span<const int32_t> labels) const {
  std::string out;
  for (int32_t label : labels) {
    RONDO_CHECK(label >= 1 && label < classes(), "label ", label, ", expected 1 to ",
                classes() - 1);
    out += symbols_[static_cast<size_t>(label) - 1];
  }
  if (numbers_ && !out.empty()) out.pop_back();
  return turned(out);
}

Alphabet extended(const Alphabet& first, const Alphabet& second) {
  if (first.is_of_numbers() != second.is_of_numbers()) {
    fail_input("an alphabet of ", first.is_of_numbers() ? "numbers" : "characters",
               " cannot be extended by ", second.is_of_numbers() ? "numbers" : "characters");
  }
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
    fail_input(where,
               ": the text holds characters outside the alphabet: ", describe(encoded.unknown));
  return std::move(encoded.labels);
}

}  // namespace rondo
