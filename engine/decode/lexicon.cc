#include "engine/decode/lexicon.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "engine/io/file.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr uint64_t most_bytes = uint64_t{1} << 30;
constexpr double most_hot_weight = 1000;
constexpr std::string_view spaces = " \t";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(spaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

// Calls `take(line, where)` with each line that holds something; `where` is "FILE:LINE".
template <class Take>
void for_each_line(std::string_view content, const std::string& name, const Take& take) {
  size_t number = 0;
  for (const std::string_view line : split_lines(content)) {
    const std::string where = str(name, ":", ++number);
    if (!trimmed(line).empty()) take(line, where);
  }
}

std::string normalized(std::string_view text, const std::string& where) {
  try {
    return normalize_transcript(text);
  } catch (const InputError& e) {
    fail_input(where, ": ", e.what());
  }
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

// CMUdict writes LIVE(1), LIVE(2) for other ways to say LIVE.
std::string_view without_variant(std::string_view word) {
  const size_t open = word.rfind('(');
  const bool has_number = open != std::string_view::npos && open > 0 && word.back() == ')' &&
                          open + 2 < word.size() &&
                          word.find_first_not_of("0123456789", open + 1) == word.size() - 1;
  return has_number ? word.substr(0, open) : word;
}

std::vector<int32_t> labels_of(std::string_view tokens, const Vocabulary& vocabulary,
                               const std::string& where) {
  std::vector<int32_t> labels;
  while (!(tokens = trimmed(tokens)).empty()) {
    const std::string_view token = tokens.substr(0, tokens.find_first_of(spaces));
    const auto label = vocabulary.find(token);
    if (!label && token == "#") break;  // a comment of CMUdict
    if (!label)
      fail_input(where, ": the model has no token ", quoted_start(token),
                 labels.empty() && is_number(token)
                     ? "; probabilities, as Kaldi's lexiconp.txt has them, are not read"
                     : "");
    labels.push_back(*label);
    tokens.remove_prefix(token.size());
  }
  // The separator behind a word is what other programs' lexicons end with.
  if (labels.size() > 1 && labels.back() == vocabulary.separator()) labels.pop_back();
  for (const int32_t label : labels) {
    if (label == vocabulary.separator())
      fail_input(where, ": ", quoted_start(vocabulary.token(label).name),
                 " separates words, it cannot be part of one");
  }
  return labels;
}

}  // namespace

std::vector<Spelling> parse_lexicon(std::string_view content, const Vocabulary& vocabulary,
                                    const std::string& name) {
  std::vector<Spelling> lexicon;
  for_each_line(content, name, [&](std::string_view line, const std::string& where) {
    line = trimmed(line);
    if (line.starts_with(";;;")) return;  // a comment of CMUdict
    std::string_view word = line.substr(0, line.find_first_of(spaces));
    std::vector<int32_t> labels = labels_of(line.substr(word.size()), vocabulary, where);
    if (!labels.empty()) word = without_variant(word);
    if (labels.empty()) {
      const auto spelled = vocabulary.spell(word);
      if (!spelled || spelled->empty())
        fail_input(where, ": ", quoted_start(word),
                   " has no tokens behind it, and the model's do not spell it");
      labels = *spelled;
    }
    std::string text = normalized(word, where);
    if (split_words(text).size() != 1)
      fail_input(where, ": ", quoted_start(word),
                 " is no word: it is white space, or has some in it");
    lexicon.push_back({std::move(text), std::move(labels)});
  });
  if (lexicon.empty()) fail_input(name, ": holds no words");
  return lexicon;
}

std::vector<Spelling> open_lexicon(const std::string& path, const Vocabulary& vocabulary) {
  return parse_lexicon(read_text_file(path, most_bytes), vocabulary, path);
}

std::vector<std::string> parse_known_words(std::string_view content, const std::string& name) {
  std::vector<std::string> words;
  for_each_line(content, name, [&](std::string_view line, const std::string& where) {
    if (!is_utf8(line)) fail_input(where, ": is not valid UTF-8");
    words.emplace_back(trimmed(line));
  });
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

std::vector<std::string> open_known_words(const std::string& path) {
  return parse_known_words(read_text_file(path, most_bytes), path);
}

std::vector<HotWord> parse_hot_words(std::string_view content, double weight,
                                     const std::string& name) {
  std::vector<HotWord> words;
  for_each_line(content, name, [&](std::string_view line, const std::string& where) {
    HotWord hot{{}, weight};
    const size_t tab = line.find_last_of('\t');
    if (tab != std::string_view::npos) {
      const std::string_view number = trimmed(line.substr(tab));
      const auto [stop, error] =
          std::from_chars(number.data(), number.data() + number.size(), hot.weight);
      if (error != std::errc() || stop != number.data() + number.size() ||
          !(std::abs(hot.weight) <= most_hot_weight))
        fail_input(where, ": the weight is ", quoted_start(number), ", expected a number from ",
                   -most_hot_weight, " to ", most_hot_weight);
      line = line.substr(0, tab);
    }
    hot.phrase = normalized(line, where);
    if (hot.phrase.empty()) fail_input(where, ": has a weight and no word");
    words.push_back(std::move(hot));
  });
  if (words.empty()) fail_input(name, ": holds no words");
  return words;
}

std::vector<HotWord> open_hot_words(const std::string& path, double weight) {
  return parse_hot_words(read_text_file(path, most_bytes), weight, path);
}

}  // namespace rondo
