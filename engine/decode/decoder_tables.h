// What a Decoder is made of. For decode/ and the folders in it alone.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode/decoder.h"
#include "engine/decode/grammar.h"
#include "engine/decode/prefix_search.h"

namespace rondo {

struct Decoder::Tables {
  // `like`: of the same but for hot words; or nullptr.
  Tables(Vocabulary v, const DecoderOptions& o, std::shared_ptr<const DecoderKnowledge> k,
         std::span<const HotWord> hot_words, const decode::Grammar* like)
      : vocabulary(std::move(v)),
        options(o),
        knowledge(std::move(k)),
        grammar(vocabulary, options, *knowledge, hot_words, like),
        has_lexicon(!knowledge->lexicon.empty()),
        silence(knowledge->silence) {}

  // `last_word`: that ends with the text; no_word: none does.
  std::string text(const decode::PrefixPath& path, int32_t last_word) const;
  std::vector<SpelledWord> words(const decode::PrefixPath& path, int32_t last_word) const;
  // The best of what a search has found.
  std::vector<DecodedText> texts(const decode::FoundPrefixes& found) const;

  const Vocabulary vocabulary;
  const DecoderOptions options;
  const std::shared_ptr<const DecoderKnowledge> knowledge;
  const decode::Grammar grammar;
  const bool has_lexicon;  // words have texts of their own
  const int32_t silence;

 private:
  // A prefix as a text that is over.
  struct Ending {
    const decode::FoundPrefixes::Prefix* prefix = nullptr;
    int32_t word = decode::no_word;  // that ends with the text
    double gain = 1;                 // of the end
    double probability = 0;          // that gain in it
  };
  // A text: its best ending, and the probability of all of them.
  struct Group {
    std::string text;
    Ending best;
    double probability = 0;
  };
  std::vector<Ending> endings(const decode::FoundPrefixes& found, decode::ModelMemo& memo) const;
  std::vector<Group> groups(const std::vector<Ending>& endings) const;
  void set_posteriors(std::span<const Group> beam, std::span<DecodedText> texts) const;
};

}  // namespace rondo
