#include "engine/decode/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/text/unicode.h"
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
      fail_input(name_, ": token '", token, "' has class ", label, ", expected 0 to ",
                 most_classes - 1);
    all_.emplace_back(label, std::move(token));
  }
  std::vector<std::string> take() {
    std::stable_sort(all_.begin(), all_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> tokens;
    for (auto& [label, token] : all_) {
      if (label < static_cast<int64_t>(tokens.size()))
        fail_input(name_, ": class ", label, " has two tokens, '", tokens.back(), "' and '", token,
                   "'");
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

std::vector<std::string> from_json(std::string_view content, const std::string& name) {
  try {
    const Json json = Json::parse(content);
    Numbered tokens(name);
    if (json.is_array()) {
      int64_t label = 0;
      for (const Json& token : json.elements()) tokens.add(token.get<std::string>(), label++);
    } else {
      for (const auto& [token, label] : json.members()) tokens.add(token, label.get<int64_t>());
    }
    return tokens.take();
  } catch (const JsonError& e) {
    fail_input(name,
               ": expected a JSON list of tokens, or an object from tokens to classes: ", e.what());
  }
}

// The number behind the last space or tab of a line, if there is one.
std::optional<int64_t> number_behind(std::string_view line) {
  const size_t space = line.find_last_of(" \t");
  if (space == std::string_view::npos || space == 0) return {};
  int64_t value = 0;
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, value);
  if (error != std::errc() || stop != end) return {};
  return value;
}

std::vector<std::string> from_lines(std::string_view content, const std::string& name) {
  std::vector<std::string_view> lines;
  while (!content.empty()) {
    const size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    content.remove_prefix(std::min(end + 1, content.size()));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  const bool numbered =
      std::all_of(lines.begin(), lines.end(), [](auto line) { return number_behind(line); });
  Numbered tokens(name);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string_view token = lines[i];
    if (numbered) token = token.substr(0, token.find_last_of(" \t"));
    tokens.add(std::string(token), numbered ? *number_behind(lines[i]) : static_cast<int64_t>(i));
  }
  return tokens.take();
}

bool is_blank_name(std::string_view name) {
  for (const char* blank : {"", "<blank>", "<blk>", "<ctc>", "<eps>", "<ctc_blank>"})
    if (name == blank) return true;
  return false;
}

bool is_padding_name(std::string_view name) { return name == "<pad>" || name == "[PAD]"; }

// <s>, </s>, <unk>, [UNK] and the like are nothing that is said.
bool is_special(std::string_view name) {
  for (const char* special :
       {"<s>", "</s>", "<unk>", "[UNK]", "<sos/eos>", "<sos>", "<eos>", "[CLS]", "[SEP]"})
    if (name == special) return true;
  return is_padding_name(name);
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
             "or the like); say its class");
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::optional<int32_t> blank,
                       const std::string& border, const std::string& name)
    : Vocabulary(std::move(tokens), blank, border, name, true) {}

// `has_specials`: those that are called <unk> and the like are nothing that is written.
Vocabulary::Vocabulary(std::vector<std::string> tokens, std::optional<int32_t> blank,
                       const std::string& border, const std::string& name, bool has_specials) {
  if (tokens.empty()) fail_input(name, ": holds no tokens");
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
    std::string piece = token;
    tokens_.push_back({std::move(token), std::move(piece), false, false, is_written});
  }
  std::sort(by_name_.begin(), by_name_.end());
  for (size_t i = 1; i < by_name_.size(); ++i) {
    if (by_name_[i - 1].first == by_name_[i].first)
      fail_input(name, ": classes ", by_name_[i - 1].second, " and ", by_name_[i].second,
                 " have the same token, '", by_name_[i].first, "'");
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
    if (any([](auto t) { return t.size() > mark.size() && t.starts_with(mark); }))
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
    if (!label) fail_input(name, ": has no token '", separator, "' that could separate words");
    separator_ = *label;
  }
  for (int32_t label = 0; label < classes(); ++label) {
    Token& token = tokens_[static_cast<size_t>(label)];
    if (!token.is_written) token.piece.clear();
    if (!token.is_written || border_ == WordBorder::none) continue;
    token.closes = border_ == WordBorder::every || label == separator_;
    token.opens = border_ == WordBorder::every ||
                  (border_ == WordBorder::prefix && token.name.starts_with(mark));
    if (label == separator_) token.piece.clear();
    if (border_ == WordBorder::prefix && token.opens) token.piece.erase(0, mark.size());
  }
}

Vocabulary Vocabulary::parse(std::string_view content, std::optional<int32_t> blank,
                             const std::string& border, const std::string& name) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  const bool is_list = first != std::string_view::npos && content[first] == '[';
  // A list of tokens may begin with [PAD]; JSON has a quotation mark behind the bracket.
  const size_t second =
      is_list ? content.find_first_not_of(" \t\r\n", first + 1) : std::string_view::npos;
  const bool is_json = first != std::string_view::npos &&
                       ((is_list && second != std::string_view::npos &&
                         (content[second] == '"' || content[second] == ']')) ||
                        (content[first] == '{' && content.find(':') != std::string_view::npos));
  return Vocabulary(is_json ? from_json(content, name) : from_lines(content, name), blank, border,
                    name);
}

Vocabulary Vocabulary::open(const std::string& path, std::optional<int32_t> blank,
                            const std::string& border) {
  constexpr uint64_t most_bytes = uint64_t{1} << 28;
  return parse(read_text_file(path, most_bytes), blank, border, path);
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
  return text;
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
  return words;
}

std::optional<std::vector<int32_t>> Vocabulary::spell(std::string_view word) const {
  if (whole_words_) {
    const auto label = find(word);
    if (!label) return {};
    return std::vector<int32_t>{*label};
  }
  std::string marked(border_ == WordBorder::prefix ? mark : std::string_view());
  marked += word;
  std::vector<int32_t> labels;
  for (size_t at = 0; at < marked.size();) {
    std::optional<int32_t> label;
    size_t size = std::min(longest_, marked.size() - at);
    while (size > 0 && !(label = find(std::string_view(marked).substr(at, size)))) --size;
    if (!label || *label == separator_) return {};
    labels.push_back(*label);
    at += size;
  }
  return labels;
}

}  // namespace rondo
