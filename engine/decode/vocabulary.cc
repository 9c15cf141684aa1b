#include "engine/decode/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "engine/decode/vocabulary_file.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr std::string_view mark = "\xe2\x96\x81";  // U+2581, SentencePiece's space

int32_t find_blank(const std::vector<std::string>& tokens, const std::string& name) {
  for (const auto is_one : {is_blank_name, is_padding_name}) {
    const auto at = std::find_if(tokens.begin(), tokens.end(), is_one);
    if (at == tokens.end()) continue;
    if (std::find_if(at + 1, tokens.end(), is_one) != tokens.end()) break;
    return static_cast<int32_t>(at - tokens.begin());
  }
  fail_input(name, ": which of its ", tokens.size(),
             " tokens is the blank is not plain (none or several are called <blank>, <blk>, <pad> "
             "or the like; class 0 is ",
             quoted_start(tokens.front()), ", the last ", quoted_start(tokens.back()),
             "): say its class, or 'first' or 'last' if it is before or behind them");
}

// The byte of a token "<0xE7>".
std::optional<char> byte_of(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return {};
  int value = 0;
  const auto [stop, error] = std::from_chars(name.data() + 3, name.data() + 5, value, 16);
  if (error != std::errc() || stop != name.data() + 5) return {};
  return static_cast<char>(value);
}

std::string byte_name(char byte) {
  char name[8];
  std::snprintf(name, sizeof name, "<0x%02X>",
                static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return name;
}

constexpr std::string_view continued = "##";  // WordPiece: the word goes on

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::optional<int32_t> blank,
                       const std::string& border, const std::string& name)
    : Vocabulary(std::move(tokens), blank, border, name, true) {}

// `has_specials`: those that are called <unk> and the like are nothing that is written.
Vocabulary::Vocabulary(std::vector<std::string> tokens, std::optional<int32_t> blank,
                       const std::string& border, const std::string& name, bool has_specials) {
  if (tokens.empty()) fail_input(name, ": holds no tokens");
  if (blank == last_blank) {
    if (!is_blank_name(tokens.back())) tokens.emplace_back("<blank>");
    blank = static_cast<int32_t>(tokens.size()) - 1;
  } else if (blank == first_blank) {
    if (!is_blank_name(tokens.front())) tokens.insert(tokens.begin(), "<blank>");
    blank = 0;
  }
  blank_ = blank ? *blank : find_blank(tokens, name);
  if (blank_ < 0 || blank_ >= static_cast<int32_t>(tokens.size()))
    fail_input(name, ": the blank is class ", blank_, ", and there are ", tokens.size());
  for (std::string& token : tokens) {
    code_points(token);  // is UTF-8
    const auto label = static_cast<int32_t>(tokens_.size());
    const bool is_written = label != blank_ && !(has_specials && is_special_name(token));
    if (is_written && token.empty()) fail_input(name, ": class ", label, " has an empty token");
    if (is_written) by_name_.emplace_back(token, label);
    longest_ = std::max(longest_, token.size());
    Token t;
    t.is_written = is_written;
    t.piece = token;
    if (const auto byte = byte_of(token); byte && is_written && has_specials) {
      t.piece.assign(1, *byte);
      t.is_byte = has_bytes_ = true;
    }
    t.name = std::move(token);
    tokens_.push_back(std::move(t));
  }
  std::sort(by_name_.begin(), by_name_.end());
  for (size_t i = 1; i < by_name_.size(); ++i) {
    if (by_name_[i - 1].first == by_name_[i].first)
      fail_input(name, ": classes ", by_name_[i - 1].second, " and ", by_name_[i].second,
                 " have the same token, ", quoted_start(by_name_[i].first));
  }
  set_border(border, name);
}

void Vocabulary::set_border(const std::string& border, const std::string& name) {
  const auto any = [&](auto&& is_one) {
    return std::any_of(by_name_.begin(), by_name_.end(),
                       [&](const auto& token) { return is_one(std::string_view(token.first)); });
  };
  std::string separator = border;
  border_ = WordBorder::separator;
  if (border.empty()) {
    for (const char* usual : {"<space>", "\xe2\x96\x81", "|", " "})
      if (find(usual)) separator = usual;
    const auto begins_with = [&](std::string_view beginning) {
      return any([&](auto t) { return t.size() > beginning.size() && t.starts_with(beginning); });
    };
    const bool has_marks = begins_with(mark);
    marks_continued_ = !has_marks && begins_with(continued);
    if (has_marks || marks_continued_)
      border_ = WordBorder::prefix;
    else if (separator.empty())
      border_ = any([](auto t) { return code_points(t).size() > 1; }) ? WordBorder::every
                                                                      : WordBorder::none;
  } else if (border == "every") {
    border_ = WordBorder::every;
  } else if (border == "none") {
    border_ = WordBorder::none;
  }
  if (border_ == WordBorder::separator) {
    const auto label = find(separator);
    if (!label)
      fail_input(name, ": has no token ", quoted_start(separator), " that could separate words");
    separator_ = *label;
  }
  for (int32_t label = 0; label < classes(); ++label) {
    Token& token = tokens_[static_cast<size_t>(label)];
    if (!token.is_written) token.piece.clear();
    if (!token.is_written || border_ == WordBorder::none) continue;
    token.closes = border_ == WordBorder::every || label == separator_;
    if (label == separator_) token.piece.clear();
    token.opens = border_ == WordBorder::every;
    if (border_ != WordBorder::prefix) continue;
    const std::string_view begin = marks_continued_ ? continued : mark;
    const bool begins = token.name.size() >= begin.size() && token.name.starts_with(begin);
    token.opens = begins != marks_continued_;
    if (begins) token.piece.erase(0, begin.size());
  }
}

namespace {

Vocabulary of_file(VocabularyFile file, std::optional<int32_t> blank, const std::string& border) {
  return Vocabulary(std::move(file.tokens), blank ? blank : file.blank,
                    border.empty() ? file.border : border, file.name);
}

}  // namespace

Vocabulary Vocabulary::parse(std::string_view content, std::optional<int32_t> blank,
                             const std::string& border, const std::string& name) {
  return of_file(parse_vocabulary_file(content, name), blank, border);
}

Vocabulary Vocabulary::open(const std::string& path, std::optional<int32_t> blank,
                            const std::string& border) {
  return of_file(open_vocabulary_file(path), blank, border);
}

Vocabulary Vocabulary::of(const Alphabet& alphabet) {
  std::vector<std::string> tokens = {"<blank>"};
  for (const std::string& symbol : alphabet.symbols()) {
    tokens.push_back(symbol);
    if (alphabet.is_of_words()) tokens.back().pop_back();  // the space behind it
  }
  const bool spaces = std::find(tokens.begin(), tokens.end(), " ") != tokens.end();
  const char* const border = alphabet.is_of_words() ? "every" : spaces ? " " : "none";
  Vocabulary all(std::move(tokens), Alphabet::blank, border, "alphabet", false);
  all.whole_words_ = alphabet.is_of_words();
  return all;
}

std::optional<int32_t> Vocabulary::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [](const auto& token, auto n) { return token.first < n; });
  if (at == by_name_.end() || at->first != name) return {};
  return at->second;
}

std::string Vocabulary::text(std::span<const int32_t> labels) const {
  std::string text;
  bool between = false;
  for (const int32_t label : labels) {
    const Token& t = token(label);
    between |= t.opens;
    if (between && !t.piece.empty() && !text.empty()) text += ' ';
    if (!t.piece.empty()) between = false;
    text += t.piece;
    between |= t.closes;
  }
  return has_bytes_ ? replace_broken_utf8(text) : text;
}

std::vector<SpelledWord> Vocabulary::words(std::span<const int32_t> labels) const {
  std::vector<SpelledWord> words;
  if (border_ == WordBorder::none) return words;
  bool is_open = false;
  for (size_t i = 0; i < labels.size(); ++i) {
    const Token& t = token(labels[i]);
    if (t.opens) is_open = false;
    if (!t.piece.empty()) {
      if (!is_open) words.push_back({{}, static_cast<int32_t>(i), 0});
      is_open = true;
      words.back().text += t.piece;
      words.back().end_label = static_cast<int32_t>(i) + 1;
    }
    if (t.closes) is_open = false;
  }
  if (has_bytes_)
    for (SpelledWord& w : words) w.text = replace_broken_utf8(w.text);
  return words;
}

std::optional<std::vector<int32_t>> Vocabulary::spell(std::string_view word) const {
  if (whole_words_) {
    const auto label = find(word);
    if (!label) return {};
    return std::vector<int32_t>{*label};
  }
  // By WordPiece, all but a word's first token are marked.
  const bool marks_first = border_ == WordBorder::prefix && !marks_continued_;
  std::string marked(marks_first ? mark : std::string_view());
  marked += word;
  std::vector<int32_t> labels;
  for (size_t at = 0; at < marked.size();) {
    const std::string_view before = marks_continued_ && at > 0 ? continued : std::string_view();
    std::optional<int32_t> label;
    size_t size = std::min(longest_, marked.size() - at);
    while (size > 0 && !(label = find(str(before, std::string_view(marked).substr(at, size)))))
      --size;
    if (label && *label == separator_) return {};
    if (!label && has_bytes_) {
      // A character is bytes together.
      size = 1;
      while (at + size < marked.size() && (marked[at + size] & 0xc0) == 0x80) ++size;
      for (size_t i = at; i < at + size; ++i) {
        const auto byte = find(byte_name(marked[i]));
        if (!byte) return {};
        labels.push_back(*byte);
      }
      at += size;
      continue;
    }
    if (!label) return {};
    labels.push_back(*label);
    at += size;
  }
  return labels;
}

}  // namespace rondo
