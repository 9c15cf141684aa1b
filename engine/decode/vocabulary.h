// What the classes of a CTC model stand for, any program's: characters, pieces of words, phonemes.
//
// Thread safety: immutable after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/alphabet.h"

namespace rondo {

// Where one word ends and the next begins.
enum class WordBorder : uint8_t {
  separator,  // a token of its own stands between words: a space, |, <space>
  prefix,  // a token that begins with U+2581 begins a word (SentencePiece), or each that does not
           // begin with ## (WordPiece)
  every,   // each token is a word: phonemes, numbers
  none,    // there are no words
};

// A word within a text of labels.
struct SpelledWord {
  std::string text;
  int32_t first_label = 0, end_label = 0;

  bool operator==(const SpelledWord&) const = default;
};

class Vocabulary {
 public:
  Vocabulary() = default;  // of nothing
  // A blank behind or before the tokens; or the last or first of them if that is called so.
  static constexpr int32_t last_blank = -1, first_blank = -2;
  // A class of the model.
  struct Token {
    std::string name;   // as the file has it
    std::string piece;  // what it adds to its word; empty: nothing. Of <0xE7> a byte
    bool opens = false, closes = false;  // a word begins before it, ends behind it
    bool is_byte = false;                // one of those that make up a character
    bool is_written = true;              // false: the blank, <s> and the like; never part of a text
  };

  // `tokens[i]` is class i. `blank`: its class, last_blank or first_blank; by default the one token
  // that is called <blank>, <blk>, <ctc>, <eps>, [blank] and the like, <pad>, [PAD] or nothing
  // (""), with <blank> before <pad>. `border`: a token that separates words, "none" or "every";
  // empty: told from the tokens: U+2581 before others is a prefix; else " ", "|", "<space>" or
  // U+2581 alone is a separator; else every token is a word where some have several characters, and
  // there are no words where none has. Throws InputError that begins with `name`.
  Vocabulary(std::vector<std::string> tokens, std::optional<int32_t> blank,
             const std::string& border, const std::string& name);
  // A file: tokens one a line; also with their class behind them ("a 5", as k2 and ESPnet have it,
  // whose #0, #1, ... at the end are no classes), their score (SentencePiece's .vocab) or how often
  // they occur (fairseq's dict.txt, which <s>, <pad>, </s> and <unk> come before, and <s> is the
  // blank); a JSON list of tokens, a JSON object from tokens to classes, or a tokenizer.json.
  // Classes must be 0, 1, 2, ... without gaps. Or a folder of Hugging Face: its vocab.json with
  // added_tokens.json, or tokenizer.json, and what tokenizer_config.json says of blank and words.
  static Vocabulary open(const std::string& path, std::optional<int32_t> blank,
                         const std::string& border);
  // The same of the file's content; for the fuzzer.
  static Vocabulary parse(std::string_view content, std::optional<int32_t> blank,
                          const std::string& border, const std::string& name);
  // Of a model of rondo's own. All its symbols are written, and its words are not made of others.
  static Vocabulary of(const Alphabet& alphabet);

  int32_t classes() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t blank() const { return blank_; }
  WordBorder border() const { return border_; }
  const Token& token(int32_t label) const { return tokens_.at(static_cast<size_t>(label)); }
  // The class called so, or none.
  std::optional<int32_t> find(std::string_view name) const;

  // Of WordBorder::separator: the class that separates words.
  int32_t separator() const { return separator_; }

  // Whether some tokens are bytes, <0x00> to <0xFF>, of characters that have no token.
  bool has_bytes() const { return has_bytes_; }

  // Words with one space between, or what the tokens say in a row where there are no words. Bytes
  // that make no character are U+FFFD.
  std::string text(std::span<const int32_t> labels) const;
  // None where there are no words.
  std::vector<SpelledWord> words(std::span<const int32_t> labels) const;

  // The labels of a word, or of a text where there are no words; the longest token that fits is
  // taken first; what has none, by bytes. None where it cannot be spelled.
  std::optional<std::vector<int32_t>> spell(std::string_view word) const;
  // Whether a word is a token or cannot be spelled.
  bool has_whole_words() const { return whole_words_; }

 private:
  Vocabulary(std::vector<std::string> tokens, std::optional<int32_t> blank,
             const std::string& border, const std::string& name, bool has_specials);
  void set_border(const std::string& border, const std::string& name);

  std::vector<Token> tokens_;
  int32_t blank_ = 0, separator_ = -1;
  WordBorder border_ = WordBorder::none;
  bool whole_words_ = false, has_bytes_ = false;
  bool marks_continued_ = false;  // of WordBorder::prefix: ## marks what does not open a word
  std::vector<std::pair<std::string, int32_t>> by_name_;  // sorted
  size_t longest_ = 0;                                    // name, in bytes
};

}  // namespace rondo
