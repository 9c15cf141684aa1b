// Trains n-gram language models: modified Kneser-Ney smoothing, interpolated (kneser_ney.h has the
// definition).
//
// Errors: InputError. Thread safety: several trainings may run at once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/text_rules.h"

namespace rondo {

struct LanguageModelTraining {
  // Files with a sentence on each line, or manifests (*.jsonl) whose "text" is one; "-" is standard
  // input; *.gz is compressed. Sentences are brought into the form of transcripts
  // (normalize_transcript()) and changed by `rules`. Those without words are passed over.
  std::vector<std::string> texts;
  TextRules rules = {};
  // Every code point is a token, and "<space>" the one between words.
  bool characters = false;

  // *.arpa and *.arpa.gz are ARPA files, all else is rondo's own form.
  std::string out;
  int32_t quantize = 0;  // of rondo's own form: 0, or the bits of a weight, 2 to 16

  int32_t order = 3;  // 1 to 32
  // Of each order: n-grams that occur so often or more rarely are left out. The last one holds for
  // higher orders; the first is 0, and none is less than the one before.
  std::vector<int64_t> prune = {};
  // For orders whose discounts cannot be estimated.
  std::optional<std::array<double, 3>> discount_fallback = std::nullopt;

  // Bytes for sorting. The vocabulary comes on top, about 60 bytes a word; and the model, about 20
  // bytes for each of its n-grams, if it is written in rondo's own form.
  uint64_t memory = uint64_t{2} << 30;
  std::string temporary = {};  // folder for what memory does not hold; empty: the system's own
};

struct LanguageModelReport {
  struct Order {
    uint64_t found = 0, kept = 0;          // n-grams
    std::array<double, 3> discounts = {};  // for counts of 1, of 2, and of 3 and more
    bool fell_back = false;                // to discount_fallback
  };
  uint64_t sentences = 0, empty_lines = 0, tokens = 0;
  uint64_t words = 0;  // different ones, with <unk>, <s> and </s>
  std::vector<Order> orders;
  uint64_t spilled_bytes = 0;  // written to the temporary folder
  DotlessI dotless_i;          // where the rules make i of I
};

LanguageModelReport train_language_model(const LanguageModelTraining& training);

}  // namespace rondo
