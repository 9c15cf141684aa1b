#include "engine/decode/vocabulary_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "engine/data/features/endings.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t most_bytes = uint64_t{1} << 28;
constexpr int32_t most_classes = 10'000'000;

std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), lower_case(name)) != names.end();
}

}  // namespace

bool is_blank_name(std::string_view name) {
  return is_one_of(
      name, {"", "<blank>", "<blk>", "<ctc>", "<eps>", "<ctc_blank>", "<ctc-blank>", "<blank_id>",
             "<epsilon>", "<b>", "[blank]", "[blk]", "[ctc]", "\u03b5", "\u03f5", "\u2205"});
}

bool is_padding_name(std::string_view name) { return is_one_of(name, {"<pad>", "[pad]"}); }

// <s>, </s>, <unk>, [UNK] and the like are nothing that is said.
bool is_special_name(std::string_view name) {
  return is_padding_name(name) ||
         is_one_of(name, {"<s>", "</s>", "<unk>", "[unk]", "<sos/eos>", "<sos>", "<eos>", "<bos>",
                          "[cls]", "[sep]", "[mask]", "<mask>", "[bos]", "[eos]", "[sos]"}) ||
         name.starts_with("madeupword");  // fairseq fills dictionaries up with these
}

namespace {

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
  // A token that may have been added before.
  void add_if_new(std::string token, int64_t label) {
    if (names_.empty())
      for (const auto& one : all_) names_.insert(one.second);
    if (names_.insert(token).second) add(std::move(token), label);
  }
  const std::string& name() const { return name_; }
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
  std::unordered_set<std::string> names_;  // of those, once one may have been added before
};

// Whether this part of a tokenizer.json, or one of those it is made of, is of bytes.
bool is_of_bytes(const Json* part) {
  if (!part || !part->is_object()) return false;
  if (const Json* type = part->find("type"); type && type->is("ByteLevel")) return true;
  for (const char* list : {"pretokenizers", "decoders"}) {
    const Json* parts = part->find(list);
    if (!parts || !parts->is_array()) continue;
    for (const Json& one : parts->elements())
      if (is_of_bytes(&one)) return true;
  }
  return false;
}

// The tokenizer.json of Hugging Face: the classes of its model, and those that were added.
void add_tokenizer(const Json& json, const Json& model, Numbered& tokens) {
  if (is_of_bytes(json.find("pre_tokenizer")) || is_of_bytes(json.find("decoder")))
    fail_input(tokens.name(), ": its tokens stand for bytes (ByteLevel), which is not read");
  const Json& classes = model.at("vocab");
  if (classes.is_array()) {
    int64_t label = 0;  // each with its score
    for (const Json& token : classes.elements())
      tokens.add(token.at(0).get<std::string>(), label++);
  } else {
    for (const auto& [token, label] : classes.members()) tokens.add(token, label.get<int64_t>());
  }
  const Json* added = json.find("added_tokens");
  if (!added || !added->is_array()) return;
  for (const Json& token : added->elements())
    tokens.add_if_new(token.at("content").get<std::string>(), token.at("id").get<int64_t>());
}

VocabularyFile from_json(std::string_view content, const std::string& name,
                         std::string_view added = {}) {
  try {
    const Json json = Json::parse(content);
    Numbered tokens(name);
    if (json.is_array()) {
      int64_t label = 0;
      for (const Json& token : json.elements()) tokens.add(token.get<std::string>(), label++);
    } else if (const Json* model = json.find("model"); model && model->is_object()) {
      add_tokenizer(json, *model, tokens);
    } else {
      for (const auto& [token, label] : json.members()) tokens.add(token, label.get<int64_t>());
    }
    if (!added.empty()) {
      const Json more = Json::parse(added);
      for (const auto& [token, label] : more.members())
        tokens.add_if_new(token, label.get<int64_t>());
    }
    return {tokens.take(), {}, {}, name};
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

VocabularyFile from_lines(std::string_view content, const std::string& name) {
  std::vector<std::string_view> lines = split_lines(content);
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::vector<NumberedLine> numbered;
  for (const std::string_view line : lines) {
    const auto n = numbered_line(line);
    if (!n) break;
    numbered.push_back(*n);
  }
  VocabularyFile found;
  found.name = name;
  if (lines.empty() || numbered.size() < lines.size()) {
    for (const std::string_view line : lines) found.tokens.emplace_back(line);
    return found;
  }
  switch (meaning_of(numbered)) {
    case Numbers::counts:
      // What fairseq puts in front of every dictionary; its CTC models take the first for the
      // blank if none is called so.
      found.tokens = {"<s>", "<pad>", "</s>", "<unk>"};
      if (std::none_of(numbered.begin(), numbered.end(),
                       [](const NumberedLine& n) { return is_blank_name(n.token); }))
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

// What a folder of Hugging Face says beside the classes: the tokens of these roles.
struct HuggingFaceRoles {
  std::string padding, border;
};

HuggingFaceRoles roles_in(const std::string& path) {
  HuggingFaceRoles roles;
  if (!fs::exists(path)) return roles;
  try {
    const Json json = Json::parse(read_text_file(path, most_bytes));
    const auto text = [&](const char* key) -> std::string {
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

// What no list of tokens is, though people have it.
void refuse_others(std::string_view content, const std::string& name) {
  if (has_ending(name, ".yaml") || has_ending(name, ".yml"))
    fail_input(name, ": is YAML, expected tokens one a line, or JSON (ESPnet writes tokens.txt)");
  if (content.size() > 2 && content[0] == '\n' && content[2] == '\n' &&
      content.find('\0') != std::string_view::npos)
    fail_input(name,
               ": is a model of SentencePiece, expected its .vocab "
               "(spm_export_vocab --model=FILE --output=FILE.vocab makes one)");
}

}  // namespace

VocabularyFile parse_vocabulary_file(std::string_view content, const std::string& name) {
  content = without_byte_order_mark(content);
  refuse_others(content, name);
  const size_t first = content.find_first_not_of(" \t\r\n");
  const bool is_list = first != std::string_view::npos && content[first] == '[';
  // A list of tokens may begin with [PAD]; JSON has a quotation mark behind the bracket.
  const size_t second =
      is_list ? content.find_first_not_of(" \t\r\n", first + 1) : std::string_view::npos;
  const bool is_json = first != std::string_view::npos &&
                       ((is_list && second != std::string_view::npos &&
                         (content[second] == '"' || content[second] == ']')) ||
                        (content[first] == '{' && content.find(':') != std::string_view::npos));
  return is_json ? from_json(content, name) : from_lines(content, name);
}

VocabularyFile open_vocabulary_file(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    return parse_vocabulary_file(read_text_file(path, most_bytes), path);
  const fs::path folder(path);
  const auto in_folder = [&](const char* name) { return (folder / name).string(); };
  std::string file = in_folder("vocab.json"), added = in_folder("added_tokens.json");
  if (!fs::exists(file)) {
    file = in_folder("tokenizer.json");
    added.clear();
  }
  if (!fs::exists(file))
    fail_input(path,
               ": has no vocab.json and no tokenizer.json; expected the folder of a model of "
               "Hugging Face, or a file of tokens");
  const bool has_more = !added.empty() && fs::exists(added);
  VocabularyFile found = from_json(read_text_file(file, most_bytes), file,
                                   has_more ? read_text_file(added, most_bytes) : "");
  const HuggingFaceRoles roles = roles_in(in_folder("tokenizer_config.json"));
  const auto find = [&](const std::string& role) {
    return role.empty() ? found.tokens.end()
                        : std::find(found.tokens.begin(), found.tokens.end(), role);
  };
  if (const auto at = find(roles.padding); at != found.tokens.end())
    found.blank = static_cast<int32_t>(at - found.tokens.begin());
  if (find(roles.border) != found.tokens.end()) found.border = roles.border;
  return found;
}

}  // namespace rondo
