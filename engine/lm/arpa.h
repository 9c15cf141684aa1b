// ARPA files: back-off n-gram models as text, as SRILM, KenLM, IRSTLM and others write and read
// them.
//
//   \data\ (a line of its own)
//   ngram 1=3
//   ngram 2=1
//
//   \1-grams:
//   -1.0 <TAB> word <TAB> -0.3          log10 p, the words, log10 of the back-off weight if not 0
//   ...
//   \end\ (likewise)
//
// Errors: InputError that names the file and the line. Thread safety: one thread per object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "engine/lm/line_reader.h"
#include "engine/lm/vocabulary.h"

namespace rondo::lm {

inline constexpr int32_t most_orders = 32;
// What a model that has no <unk> gives it, as KenLM does.
inline constexpr float missing_unknown = -100;

// Takes a model's n-grams, all of one order before those of the next; of order 1 each word once.
class NgramSink {
 public:
  virtual ~NgramSink() = default;
  // First of all: how many n-grams of each order there will be, one more unigram at most.
  virtual void begin(std::span<const uint64_t> counts) = 0;
  // log10 of its probability and of its back-off weight. False: the n-gram's context, the words
  // before the last, was not among those of the order before.
  [[nodiscard]] virtual bool add(std::span<const Word> words, float probability, float backoff) = 0;
};

// Gives the n-grams of an ARPA file to `sink`, and its words to `vocabulary`, where each is before
// its unigram is given. A missing <unk> is given as well.
void read_arpa(LineReader& lines, Vocabulary& vocabulary, NgramSink& sink);

}  // namespace rondo::lm
