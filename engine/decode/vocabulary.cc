#include "engine/decode/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <system_error>
#include <utility>

#include "engine/data/features/files.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr std::string_view mark = "\xe2\x96\x81";  // U+2581, SentencePiece's space
constexpr int32_t most_classes = 10'000'000;

// Put every token where its class says.
class Numbered {
 public:
  explicit Numbered(const std::string& name) : name_(name) {}

  void add(std::string token, int64_t label) {
    if (label < 0 || label >= most_classes)
      fail_input(name_, ": token ", quoted_start(token), " has class ", label, ", expected 0 to ",
                 most_classes - 1);
    all_.emplace_back(label, std::move(token));
  }
  std::vector<std::string> take() {
    std::stable_sort(all_.begin(), all_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> tokens;
    for (auto& [label, token] : all_) {
      if (label < static_cast<int64_t>(tokens.size()))
        fail_input(name_, ": class ", label, " has two tokens, ", quoted_start(tokens.back()),
                   " and ", quoted_start(token));
      if (label > static_cast<int64_t>(tokens.size()))
        fail_input(name_, ": class ", tokens.size(), " has no token, and class ", label, " has");
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

 private:
  const std::string& name_;
  std::vector<std::pair<int64_t, std::string>> all_;
};

std::vector<std::string> from_json(std::string_view content, const std::string& name,
                                   std::string_view added = {}) {
  try {
    const Json json = Json::parse(content);
    Numbered tokens(name);
    if (json.is_array()) {
      int64_t label = 0;
      for (const Json& token : json.elements()) tokens.add(token.get<std::string>(), label++);
    } else {
      for (const auto& [token, label] : json.members()) tokens.add(token, label.get<int64_t>());
    }
    if (!added.empty()) {
      const Json more = Json::parse(added);
      for (const auto& [token, label] : more.members()) {
        const bool is_there = !json.is_array() && json.find(token);
        if (!is_there) tokens.add(token, label.get<int64_t>());
      }
    }
    return tokens.take();
  } catch (const JsonError& e) {
    fail_input(name,
               ": expected a JSON list of tokens, or an object from tokens to classes: ", e.what());
  }
}

// A line "token number", with a space or a tab between.
struct NumberedLine {
  std::string_view token;
  double number = 0;
  bool tab = false, whole = false;  // whole: the number is an integer
};

std::optional<NumberedLine> numbered_line(std::string_view line) {
  const size_t space = line.find_last_of(" \t");
  if (space == std::string_view::npos || space == 0) return {};
  NumberedLine n{line.substr(0, space), 0, line[space] == '\t', false};
  const std::string_view text = line.substr(space + 1);
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, n.number);
  if (error != std::errc() || stop != end) return {};
  n.whole = text.find_first_not_of("-0123456789") == std::string_view::npos;
  return n;
}

// What the numbers behind the tokens of a file are.
enum class Numbers : uint8_t {
  classes,  // k2, ESPnet
  scores,   // SentencePiece: logarithms of probabilities, or minus the rank
  counts,   // fairseq's dict.txt: how often a token occurs
};

Numbers meaning_of(const std::vector<NumberedLine>& lines) {
  const auto all = [&](auto&& holds) { return std::all_of(lines.begin(), lines.end(), holds); };
  const bool whole = all([](const auto& n) { return n.whole; });
  // Classes are 0, 1, 2, ..., so that nearly all are different and none is negative.
  std::vector<double> sorted;
  for (const NumberedLine& n : lines) sorted.push_back(n.number);
  std::sort(sorted.begin(), sorted.end());
  const bool tabs = all([](const auto& n) { return n.tab; });
  if (tabs && (!whole || sorted.front() < 0)) return Numbers::scores;
  const auto different = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
  const auto count = static_cast<double>(lines.size());
  const bool falls = std::is_sorted(
      lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.number > b.number; });
  const bool many_times = static_cast<double>(different) < 0.5 * count || sorted[0] >= count ||
                          (falls && lines.size() > 1 && sorted[0] > 0);
  return whole && !tabs && sorted.front() >= 0 && many_times ? Numbers::counts : Numbers::classes;
}

// Symbols by which a decoding graph of k2 tells words apart that are spelled alike: #0, #1, ...
// stand behind the model's classes, which they are not.
void drop_disambiguation(std::vector<std::string>& tokens) {
  const auto first = std::find(tokens.begin(), tokens.end(), "#0");
  const bool to_the_end = std::all_of(first, tokens.end(), [](const std::string& t) {
    return t.size() > 1 && t[0] == '#' && t.find_first_not_of("0123456789", 1) == std::string::npos;
  });
  if (to_the_end) tokens.erase(first, tokens.end());
}

struct ReadTokens {
  std::vector<std::string> tokens;
  std::optional<int32_t> blank = {};  // where the format says it
};

ReadTokens from_lines(std::string_view content, const std::string& name) {
  std::vector<std::string_view> lines = split_lines(content);
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::vector<NumberedLine> numbered;
  for (const std::string_view line : lines) {
    const auto n = numbered_line(line);
    if (!n) break;
    numbered.push_back(*n);
  }
  ReadTokens found;
  if (lines.empty() || numbered.size() < lines.size()) {
    for (const std::string_view line : lines) found.tokens.emplace_back(line);
    return found;
  }
  switch (meaning_of(numbered)) {
    case Numbers::counts:
      // What fairseq puts in front of every dictionary; its CTC models take the first for the
      // blank.
      found.tokens = {"<s>", "<pad>", "</s>", "<unk>"};
      found.blank = 0;
      [[fallthrough]];
    case Numbers::scores:
      for (const NumberedLine& n : numbered) found.tokens.emplace_back(n.token);
      break;
    case Numbers::classes: {
      Numbered tokens(name);
      for (const NumberedLine& n : numbered) {
        if (!n.whole) fail_input(name, ": token ", quoted_start(n.token), " has class ", n.number);
        tokens.add(std::string(n.token), static_cast<int64_t>(n.number));
      }
      found.tokens = tokens.take();
      drop_disambiguation(found.tokens);
      break;
    }
  }
  return found;
}

std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), lower_case(name)) != names.end();
}

bool is_blank_name(std::string_view name) {
  return is_one_of(
      name, {"", "<blank>", "<blk>", "<ctc>", "<eps>", "<ctc_blank>", "<ctc-blank>", "<blank_id>",
             "<epsilon>", "<b>", "[blank]", "[blk]", "[ctc]", "\u03b5", "\u03f5", "\u2205"});
}

bool is_padding_name(std::string_view name) { return is_one_of(name, {"<pad>", "[pad]"}); }

// <s>, </s>, <unk>, [UNK] and the like are nothing that is said.
bool is_special(std::string_view name) {
  return is_padding_name(name) ||
         is_one_of(name, {"<s>", "</s>", "<unk>", "[unk]", "<sos/eos>", "<sos>", "<eos>", "<bos>",
                          "[cls]", "[sep]", "[mask]", "<mask>", "[bos]", "[eos]", "[sos]"}) ||
         name.starts_with("madeupword");  // fairseq fills dictionaries up with these
}

int32_t find_blank(const std::vector<std::string>& tokens, const std::string& name) {
  for (const auto is_one : {is_blank_name, is_padding_name}) {
    const auto at = std::find_if(tokens.begin(), tokens.end(), is_one);
    if (at == tokens.end()) continue;
    if (std::find_if(at + 1, tokens.end(), is_one) != tokens.end()) break;
    return static_cast<int32_t>(at - tokens.begin());
  }
  fail_input(name, ": which of its ", tokens.size(),
             " tokens is the blank is not plain (none or several are called <blank>, <blk>, <pad> "
             "or the like): say its class, or 'last' if it is behind them");
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
  if (blank.value_or(0) == last_blank) {
    if (!is_blank_name(tokens.back())) tokens.emplace_back("<blank>");
    blank = static_cast<int32_t>(tokens.size()) - 1;
  }
  blank_ = blank ? *blank : find_blank(tokens, name);
  if (blank_ < 0 || blank_ >= static_cast<int32_t>(tokens.size()))
    fail_input(name, ": the blank is class ", blank_, ", and there are ", tokens.size());
  for (std::string& token : tokens) {
    code_points(token);  // is UTF-8
    const auto label = static_cast<int32_t>(tokens_.size());
    const bool is_written = label != blank_ && !(has_specials && is_special(token));
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

Vocabulary Vocabulary::parse(std::string_view content, std::optional<int32_t> blank,
                             const std::string& border, const std::string& name) {
  content = data::without_byte_order_mark(content);
  const size_t first = content.find_first_not_of(" \t\r\n");
  const bool is_list = first != std::string_view::npos && content[first] == '[';
  // A list of tokens may begin with [PAD]; JSON has a quotation mark behind the bracket.
  const size_t second =
      is_list ? content.find_first_not_of(" \t\r\n", first + 1) : std::string_view::npos;
  const bool is_json = first != std::string_view::npos &&
                       ((is_list && second != std::string_view::npos &&
                         (content[second] == '"' || content[second] == ']')) ||
                        (content[first] == '{' && content.find(':') != std::string_view::npos));
  if (is_json) return Vocabulary(from_json(content, name), blank, border, name);
  ReadTokens read = from_lines(content, name);
  const bool is_named = std::any_of(read.tokens.begin(), read.tokens.end(), is_blank_name);
  if (!blank && !is_named) blank = read.blank;
  return Vocabulary(std::move(read.tokens), blank, border, name);
}

namespace {

constexpr uint64_t most_bytes = uint64_t{1} << 28;

// What a folder of Hugging Face says beside the classes: the tokens of these roles.
struct HuggingFaceRoles {
  std::optional<std::string> padding, border;
};

HuggingFaceRoles roles_in(const std::string& path) {
  HuggingFaceRoles roles;
  if (!std::filesystem::exists(path)) return roles;
  try {
    const Json json = Json::parse(read_text_file(path, most_bytes));
    const auto text = [&](const char* key) -> std::optional<std::string> {
      const Json* value = json.find(key);
      if (value && value->is_object()) value = value->find("content");
      if (!value || !value->is_string()) return {};
      return value->get<std::string>();
    };
    roles.padding = text("pad_token");
    roles.border = text("word_delimiter_token");
  } catch (const JsonError& e) {
    fail_input(path, ": ", e.what());
  }
  return roles;
}

}  // namespace

Vocabulary Vocabulary::open(const std::string& path, std::optional<int32_t> blank,
                            const std::string& border) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored))
    return parse(read_text_file(path, most_bytes), blank, border, path);
  const std::filesystem::path folder(path);
  const std::string file = (folder / "vocab.json").string();
  if (!std::filesystem::exists(file))
    fail_input(path,
               ": has no vocab.json; expected the folder of a model of Hugging Face, or a file "
               "of tokens");
  const std::string added = (folder / "added_tokens.json").string();
  std::vector<std::string> tokens =
      from_json(read_text_file(file, most_bytes), file,
                std::filesystem::exists(added) ? read_text_file(added, most_bytes) : "");
  const HuggingFaceRoles roles = roles_in((folder / "tokenizer_config.json").string());
  const auto at = std::find(tokens.begin(), tokens.end(), roles.padding.value_or(""));
  if (!blank && roles.padding && at != tokens.end())
    blank = static_cast<int32_t>(at - tokens.begin());
  const bool has_border =
      roles.border && std::find(tokens.begin(), tokens.end(), *roles.border) != tokens.end();
  return Vocabulary(std::move(tokens), blank, border.empty() && has_border ? *roles.border : border,
                    file);
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
