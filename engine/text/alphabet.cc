#include "engine/text/alphabet.h"

#include <algorithm>
#include <set>

#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {

Alphabet::Alphabet(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {
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

EncodedText Alphabet::encode(std::string_view text) const {
  EncodedText out;
  std::vector<char32_t> unknown;
  for (char32_t c : code_points(normalize_transcript(text))) {
    if (const auto found = labels_.find(c); found != labels_.end()) {
      out.labels.push_back(found->second);
      continue;
    }
    const auto known = std::find(unknown.begin(), unknown.end(), c);
    if (known == unknown.end()) {
      unknown.push_back(c);
      out.unknown.push_back({describe(c), 1});
    } else {
      ++out.unknown[static_cast<size_t>(known - unknown.begin())].count;
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
  return out;
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
