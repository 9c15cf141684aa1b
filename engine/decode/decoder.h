// The most probable texts of a CTC model's outputs, given also what is known of the language: a
// list of words, an n-gram model, words that are to be expected.
//
// The search is for texts with the highest
//
//   score = ln p(text | outputs) + lm_weight ln p_LM(text) + word_score words
//           + unknown_score unknown words + weights of hot words
//
// where p(text | outputs) is the sum over all alignments (Graves et al. 2006, equation 3) of all
// label sequences that are the text. It keeps, frame by frame, the prefixes with the highest score
// so far, each with the share of its alignments that end in a blank and that end in its last label
// (Graves and Jaitly 2014, algorithm 1; Hannun et al. 2014). With a beam that holds all prefixes
// the scores are exact, otherwise they are lower bounds. Words of a language model are scored when
// they end; before that the best unigram of the words that have begun so stands in for it.
//
// What is written between two words does not count as a text of its own: two separators in a row,
// or one at either end, are the same text as one or none. Tokens such as <unk> are never written.
//
// Prefixes that are less than 1e-270 times as probable as the best are dropped, whatever the beam.
// Errors: Error for a score that is NaN, naming the frame, and for sizes that cannot be; InputError
// for knowledge that does not fit the vocabulary. Thread safety: a Decoder is immutable and may be
// used by several threads at once; a DecoderStream by one. The same outputs give the same bits for
// any number of threads and in whatever pieces they come.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/decode/lexicon.h"
#include "engine/decode/vocabulary.h"
#include "engine/lm/language_model.h"

namespace rondo {

// What the words of a language model are.
enum class ModelUnit : uint8_t {
  automatic,  // tokens where every token is a word, or the model knows the separator or a token
              // that begins words as a word; else words
  words,
  tokens,  // the vocabulary's, as it calls them; a separator also as <space>, | or U+2581
};

struct DecoderOptions {
  int32_t beam = 100;  // prefixes that are kept from frame to frame, at least 1
  int32_t nbest = 1;   // texts that are returned, at most
  // Whether probabilities of alignments are added, or the best alignment counts alone.
  bool sum = true;
  // Classes whose log-probability in a frame is lower than this do not extend prefixes in it; the
  // blank and repeats always do.
  double token_floor = -std::numeric_limits<double>::infinity();
  // Prefixes whose score is lower than the best one's by more than this are dropped.
  double score_range = std::numeric_limits<double>::infinity();

  // Natural logarithms all. (Programs that multiply base-10 logarithms by a weight, as flashlight
  // does, have a weight that is 2.3026 times as large for the same.)
  double lm_weight = 0.5;
  // For each word; for each token where the language model is of tokens. Where there is neither a
  // lexicon nor a language model there are no words to score.
  double word_score = 1.5;
  // For each word that the language model does not know, or that is not in the list of words.
  double unknown_score = -10;
  ModelUnit unit = ModelUnit::automatic;
  // Whether the text begins and ends as a sentence for the language model.
  bool sentence_begin = true, sentence_end = true;
  // Whether texts come with the posteriors of their words and labels. Costs an alignment of each
  // text that is returned with all others of the beam.
  bool posteriors = false;
};

// What a decoder knows besides the outputs; each may be missing.
struct DecoderKnowledge {
  std::optional<LanguageModel> language_model;
  // Given, texts are of these words alone. Otherwise a language model of words gives the list, of
  // all its words that the tokens can spell, in any division into tokens; other words are unknown
  // ones. (Where tokens have no borders between words, there are no unknown words.)
  std::vector<Spelling> lexicon;
  // Given, and no lexicon, the other words of a language model of words count as unknown ones, too:
  // each has the unknown_score beside the model's. A list without a word of the model is as none.
  std::vector<std::string> known_words;
  // A token that may stand between the lexicon's words, and at either end; -1: there is none.
  int32_t silence = -1;
  // Phrases of whole words; of one that is listed twice the last weight counts. What the lexicon
  // does not have is no word, hot or not. Without borders between words they are found anywhere.
  std::vector<HotWord> hot_words;
};

struct DecodedText {
  std::string text;
  std::vector<SpelledWord> words;  // in `labels`; none where there are no borders and no lexicon
  // Of the label sequences that are this text, the one with the highest probability.
  std::vector<int32_t> labels;
  double score = 0;            // see above
  double log_probability = 0;  // ln p(text | outputs)
  double lm_log10 = 0;         // log10 p_LM(text); 0 without a language model

  // With DecoderOptions::posteriors, one for each of `words` and of `labels`: the sum of exp(score)
  // over the texts of the beam that agree, divided by that over all of the beam, whatever `nbest`.
  // A text agrees with a word that the cheapest alignment of both texts' words by insertions,
  // deletions and substitutions (align_edits) pairs with an equal one; so with labels, of each
  // text's most probable label sequence. Texts that fell out of the beam do not count, so a narrow
  // beam is too sure. 0 where nothing is possible.
  std::vector<double> word_posteriors, label_posteriors;
};

class Decoder {
 public:
  Decoder(Vocabulary vocabulary, const DecoderOptions& options,
          const DecoderKnowledge& knowledge = {});

  // The same with other hot words, for one stream, say. Shares the language model, and, but with a
  // lexicon, the list of words.
  Decoder with_hot_words(std::span<const HotWord> hot_words) const;

  const Vocabulary& vocabulary() const;
  const DecoderOptions& options() const;
  // What the language model's words were taken for; words without one.
  ModelUnit unit() const;
  // What is allowed and probably not meant, a sentence each: few words of the language model can be
  // spelled, say, because its letters are of the other case.
  const std::vector<std::string>& warnings() const;

  // `scores`: [frames, classes], logits or log-probabilities; each row is normalised. The best
  // first, one at least; of equal ones the one that was found first. A search that nothing is
  // possible in gives a score of -infinity.
  std::vector<DecodedText> decode(const float* scores, int32_t frames) const;

 private:
  friend class BatchDecoder;
  friend class DecoderStream;
  struct Tables;
  std::shared_ptr<const Tables> tables_;
};

// Throws Error for a decoder that was made for other classes, or another blank.
void require_fit(const Decoder& decoder, const Vocabulary& vocabulary);

// The same while the outputs arrive.
class DecoderStream {
 public:
  explicit DecoderStream(const Decoder& decoder);
  ~DecoderStream();
  DecoderStream(DecoderStream&&) noexcept;
  DecoderStream& operator=(DecoderStream&&) noexcept;

  // The next frames.
  void accept(const float* scores, int32_t frames);

  struct Partial {
    std::string stable;        // will not change any more; of whole words where there are borders
    std::string text;          // the best so far; begins with `stable`
    int32_t blank_frames = 0;  // the last so many frames are blank, with a probability above 0.99
  };
  Partial partial() const;

  // The outputs are over; as decode() of all of them. Afterwards the stream is as new.
  std::vector<DecodedText> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
