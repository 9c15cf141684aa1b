// Back-off n-gram language models, as an automaton: a state is the longest context that can still
// matter, so that equal states have equal futures and hypotheses in them can be merged.
//
// p(w | h) is what the model holds for the n-gram h w, or else backoff(h) p(w | h without its first
// word) (Katz 1987). States are contexts minimised as in Heafield 2011 (section 4.1): words that no
// n-gram can be continued from, and no back-off weight is held for, are dropped.
//
// Units: base-10 logarithms, as in ARPA files and in KenLM; multiply by ln 10 to add them to
// natural ones. A model without <unk> gives it log10 p = -100, as KenLM does. <s> and </s> must be
// there. Limits: order 32, and 2^32 - 3 n-grams in all. Ownership: an object is a handle; copies
// share one model. Thread safety: immutable after construction; all methods may be called from
// several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace rondo {

class LanguageModel {
 public:
  using Word = uint32_t;   // 0 is <unk>
  using State = uint32_t;  // 0 is the empty context

  static constexpr Word unknown = 0;

  // An ARPA file (also compressed by gzip), a binary of KenLM, or what `rondo lm build` wrote;
  // which, the content says. An ARPA file is read into memory: about 35 bytes an n-gram while it is
  // read, at most 15 after. The others are mapped, and must not be shortened while the model is in
  // use; the checksum of the last is verified. Throws InputError that names the file, and the line
  // or what is wrong in it.
  static LanguageModel open(const std::string& path);
  // The same of a file's content; `name` stands for the file in messages.
  static LanguageModel parse(std::string_view content, const std::string& name);

  int32_t order() const;
  Word words() const;                    // how many, <unk>, <s> and </s> among them
  uint64_t ngrams(int32_t order) const;  // how many of an order, from 1
  State states() const;                  // how many; of KenLM's binaries, a bound
  uint64_t bytes() const;                // in memory or mapped
  int32_t quantized_bits() const;        // 0: the weights are exact
  // `unknown` for a word that the model does not have. Words are compared byte by byte.
  Word word(std::string_view text) const;
  std::string_view text(Word word) const;

  State begin_sentence() const;  // the context <s>
  State empty_context() const { return 0; }

  // log10 p(word | state), and the state behind it.
  double score(State state, Word word, State& next) const;
  // The same, and how many words the n-gram has that the probability was found for: 1 to order().
  double score(State state, Word word, State& next, int32_t& length) const;
  // log10 p(</s> | state).
  double end_score(State state) const;

 private:
  struct Model;
  explicit LanguageModel(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

  std::shared_ptr<const Model> model_;
};

// What `rondo lm build` does: reads an ARPA file and writes the model in rondo's own form, whole or
// not at all. `quantize`: 0, or the bits of each weight from order 2 on, 2 to 16. Takes about 20
// bytes of memory for each n-gram. Throws InputError.
void build_language_model(const std::string& arpa, const std::string& out, int32_t quantize);

}  // namespace rondo
