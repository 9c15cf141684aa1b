// Where the words of a given text lie in the outputs of a CTC model: times, probabilities, and how
// well the text fits.
//
//   const TextSpeller speller(vocabulary, {});
//   const AlignedText found = align_text(logits, vocabulary, speller.spell(text, "a.txt"), {},
//   0.02);
//
// Errors: InputError. Thread safety: const members and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/decode/align/forced_alignment.h"
#include "engine/decode/lexicon.h"
#include "engine/decode/transcript/transcript.h"
#include "engine/decode/vocabulary.h"
#include "engine/text/text_rules.h"

namespace rondo {

// What becomes of characters that no token stands for.
enum class UnspellableText : uint8_t {
  error,
  skip,      // they are not said
  wildcard,  // whatever the model says best stands for a run of them
};

struct SpellingOptions {
  // What the model's texts went through; words are shown as they were before.
  TextRules rules = {};
  bool uppercase = false;  // behind the rules
  UnspellableText unspellable = UnspellableText::error;
  // A word that stands for what is said and not in the text, or for nothing; empty: there is none.
  std::string gap_word = {};
  bool open_ends = false;  // more may be said before the text and behind it
};

// A text, ready to be aligned.
struct SpelledText {
  static constexpr int32_t between_words = -1, gap = -2;

  std::vector<std::string> words;  // as they were given, in normal form C
  std::vector<AlignmentUnit> units;
  std::vector<int32_t> word_of;  // of each unit: its word, or what it is
  // Words that hold nothing the model could say, and which of `words` comes behind each.
  struct LeftOut {
    std::string word;
    int32_t before = 0;

    bool operator==(const LeftOut&) const = default;
  };
  std::vector<LeftOut> left_out;
  std::vector<int32_t> line_ends;  // of each line: how many words have ended with it
};

class TextSpeller {
 public:
  // Borrows the vocabulary. Words of the lexicon have its spellings and no others; the vocabulary
  // spells the rest.
  TextSpeller(const Vocabulary& vocabulary, SpellingOptions options,
              const std::vector<Spelling>& lexicon = {});
  TextSpeller(Vocabulary&&, SpellingOptions, const std::vector<Spelling>& = {}) = delete;

  // Words are what white space separates. `where` begins messages ("a.txt"). Throws InputError for
  // characters that no token stands for, naming them with their code points, for what is not
  // UTF-8, and for a text that is left without words.
  SpelledText spell(std::string_view text, const std::string& where) const;
  // The same of lines.
  SpelledText spell(std::span<const std::string> lines, const std::string& where) const;

 private:
  struct Building;
  void add_word(const std::string& word, Building& b) const;
  std::vector<std::vector<int32_t>> spellings(const std::string& part, Building& b) const;
  std::vector<int32_t> around_unknown(const std::string& part, Building& b) const;
  void add_border(bool gap, Building& b, bool at_end) const;

  const Vocabulary& vocabulary_;
  SpellingOptions options_;
  std::unordered_map<std::string, std::vector<std::vector<int32_t>>> lexicon_;
};

struct TextAlignmentOptions {
  double wildcard_cost = 0.5;  // AlignmentOptions
  // Weight of the label priors: from every frame's logarithms of probabilities, so much is taken of
  // the logarithm of the class's mean probability over all frames (at least 1e-4). It keeps peaks
  // of few frames from being preferred; 0.3 is usual, 0 none.
  double label_priors = 0;
  // Of what is said to be a token's and a word's probability; not `posterior` (Error).
  Confidence confidence = Confidence::mean;
  // Between any two words half a second and more may be said that is not in the text. Where the
  // text alone does not fit it is aligned anew with that possibility.
  bool find_gaps = false;
};

struct AlignedText {
  // Text, words and tokens ("characters") with their times and confidences. Label priors change the
  // path, not these.
  Transcript transcript;
  struct Stretch {
    double begin = 0, end = 0;  // seconds
    int32_t before = 0;         // the number of the word behind it
  };
  std::vector<Stretch> unwritten;  // where gaps were filled
  // Of each frame: by how much the logarithm of the probability of the best class exceeds that of
  // what the text has there. 0 everywhere: the model by itself would say this text.
  std::vector<float> shortfall;
  double frame_seconds = 0;  // 1 and more: nobody knows, and times are frames, 50 in a second
  std::vector<SpelledText::LeftOut> left_out;
  std::vector<int32_t> line_ends;

  // How well the text fits between two times: minus the largest sum of `shortfall` within any
  // second, a logarithm of a ratio of probabilities. 0 is perfect. And where that second is.
  struct Fit {
    double score = 0, begin = 0, end = 0;
  };
  Fit fit(double begin, double end) const;
  // All places whose seconds fit worse than `bad`, in their order, each with the score of its worst
  // second: seconds that overlap are one place.
  std::vector<Fit> misfits(double begin, double end, double bad) const;
  double score(double begin, double end) const { return fit(begin, end).score; }
  // The words with those that were left out, which last no time.
  std::vector<TimedText::Token> shown_words() const;

 private:
  // Hears of the second that ends with each frame, in their order.
  template <class Hear>
  void each_second(double begin, double end, Hear hear) const;
};

// `logits`: [frames, classes of the vocabulary]; `frame_seconds`: from one frame to the next.
// Throws InputError where the frames are too few for the text.
AlignedText align_text(std::vector<float> logits, const Vocabulary& vocabulary,
                       const SpelledText& text, const TextAlignmentOptions& options,
                       double frame_seconds);

}  // namespace rondo
