#include "engine/lm/sentences.h"

#include <algorithm>

#include "engine/data/features/endings.h"
#include "engine/data/features/files.h"
#include "engine/io/json.h"
#include "engine/text/marks.h"
#include "engine/text/unicode.h"

namespace rondo::lm {
namespace {

// Such text is in normal form, and only its white space needs care.
bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<signed char>(c) >= 0; });
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

size_t bytes_of_code_point(char first) {
  const auto c = static_cast<unsigned char>(first);
  return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

}  // namespace

SentenceReader::SentenceReader(const std::string& path, const SentenceOptions& options)
    : lines_(path),
      options_(options),
      is_manifest_(has_ending(path, ".jsonl") || has_ending(path, ".jsonl.gz")) {}

void SentenceReader::add_characters(std::string_view word,
                                    std::vector<std::string_view>& tokens) const {
  const bool has_marks = options_.rules.marks == Marks::token && word.size() > 1;
  // The rules have given marks their names: a piece is as long as what it is in the text.
  for (const TextPiece& p : has_marks ? pieces_of(word) : std::vector<TextPiece>()) {
    if (p.is_mark) tokens.push_back(word.substr(0, p.text.size()));
    for (size_t c = 0; !p.is_mark && c < p.text.size(); c += bytes_of_code_point(p.text[c]))
      tokens.push_back(word.substr(c, bytes_of_code_point(p.text[c])));
    word.remove_prefix(p.text.size());
  }
  for (; !word.empty(); word.remove_prefix(tokens.back().size()))
    tokens.push_back(word.substr(0, bytes_of_code_point(word.front())));
}

void SentenceReader::split(std::string_view text, std::vector<std::string_view>& tokens) const {
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !is_space(text[end])) ++end;
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!options_.characters) {
      tokens.push_back(word);
      continue;
    }
    if (!tokens.empty()) tokens.push_back(space_token);
    add_characters(word, tokens);
  }
}

bool SentenceReader::next(std::vector<std::string_view>& tokens) {
  tokens.clear();
  std::string_view line;
  if (!lines_.next(line)) return false;
  try {
    if (is_manifest_) {
      if (line.find_first_not_of(" \t") == line.npos) return true;
      text_ = Json::parse(line).at("text").get<std::string>();
      line = text_;
    }
    if (options_.rules.any() || !is_ascii(line)) {
      std::string changed = apply_rules(options_.rules, line);
      if (options_.rules.puts_dot_on_i()) dotless_i_.add(line);
      text_ = std::move(changed);
      line = text_;
    }
  } catch (const JsonError& e) {
    lines_.fail(e.what());
  } catch (const InputError& e) {
    lines_.fail(e.what());
  }
  split(line, tokens);
  return true;
}

}  // namespace rondo::lm
