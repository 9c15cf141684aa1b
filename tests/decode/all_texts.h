// All texts that short outputs may be, with their scores: what a search is compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode/decoder.h"
#include "engine/text/greedy.h"
#include "engine/text/unicode.h"
#include "tests/catch.h"

namespace rondo {

inline constexpr double ln10 = 2.302585092994045684;

struct Scores {
  int32_t frames = 0, classes = 0;
  std::vector<float> values;
};

inline Scores random_scores(int32_t frames, int32_t classes, unsigned seed, float spread = 1.5F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  Scores s{frames, classes, {}};
  for (int32_t i = 0; i < frames * classes; ++i) s.values.push_back(normal(random));
  return s;
}

// The probability of every label sequence: of all its alignments, or of the best.
inline std::map<std::vector<int32_t>, double> all_sequences(const Scores& s, int32_t blank,
                                                            bool sum) {
  std::map<std::vector<int32_t>, double> sequences;
  std::vector<int32_t> path(static_cast<size_t>(s.frames));
  for (;;) {
    double p = 1;
    for (int32_t t = 0; t < s.frames; ++t) {
      const float* row = &s.values[static_cast<size_t>(t * s.classes)];
      double all = 0;
      for (int32_t c = 0; c < s.classes; ++c) all += std::exp(static_cast<double>(row[c]));
      p *= std::exp(static_cast<double>(row[path[static_cast<size_t>(t)]])) / all;
    }
    double& of_sequence = sequences[labels_of(collapse_ctc(path, blank))];
    of_sequence = sum ? of_sequence + p : std::max(of_sequence, p);
    size_t at = 0;
    while (at < path.size() && ++path[at] == s.classes) path[at++] = 0;
    if (at == path.size()) return sequences;
  }
}

// What the knowledge says of a text, word by word: none if it cannot be.
using Worth = std::function<double(const std::vector<std::string>& words)>;

struct Expected {
  std::map<std::string, double> scores;

  void add(const std::string& text, double probability, double worth, bool sum) {
    double& p = probabilities_[text];
    const double here = probability * std::exp(worth);
    p = sum ? p + here : std::max(p, here);
    scores[text] = std::log(p);
  }

 private:
  std::map<std::string, double> probabilities_;
};

inline std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : " ") + w;
  return text;
}

inline void compare(const Scores& s, const Decoder& decoder, const Expected& expected) {
  const auto found = decoder.decode(s.values.data(), s.frames);
  REQUIRE(found.size() == expected.scores.size());
  std::set<std::string> seen;
  double before = std::numeric_limits<double>::infinity();
  for (const DecodedText& t : found) {
    INFO("'" << t.text << "'");
    REQUIRE(expected.scores.count(t.text) == 1);
    CHECK(seen.insert(t.text).second);
    CHECK(t.score == Approx(expected.scores.at(t.text)).epsilon(1e-9).margin(1e-9));
    CHECK(!(t.score > before));
    before = t.score;
  }
}

inline DecoderOptions everything(bool sum) {
  DecoderOptions o;
  o.beam = 1 << 20;
  o.nbest = 1 << 20;
  o.sum = sum;
  o.lm_weight = 0.8;
  o.word_score = 0.7;
  o.unknown_score = -1.5;
  return o;
}

// A trigram model of the words a, b, ab and ba, by hand; "bb" is none of them.
inline const char* const word_model = R"(\data\
ngram 1=7
ngram 2=5
ngram 3=1

\1-grams:
-2.0	<unk>
-99	<s>	-0.3
-0.9	</s>
-0.7	a	-0.2
-0.9	b	-0.1
-0.8	ab	-0.25
-1.1	ba

\2-grams:
-0.3	<s> a	-0.4
-0.5	a b	-0.1
-0.6	ab ba
-0.2	b </s>
-0.9	a a

\3-grams:
-0.1	<s> a b

\end\
)";

// `known`: the words that are known, of those that the model has; empty: all.
inline double lm_score(const LanguageModel& model, const std::vector<std::string>& words,
                       const DecoderOptions& o, const std::set<std::string>& known = {}) {
  LanguageModel::State state = o.sentence_begin ? model.begin_sentence() : model.empty_context();
  double log10 = 0, score = 0;
  for (const std::string& w : words) {
    const auto number = model.word(w);
    const bool is_known = number != LanguageModel::unknown && (known.empty() || known.contains(w));
    log10 += model.score(state, number, state);
    score += o.word_score + (is_known ? 0 : o.unknown_score);
  }
  return score + o.lm_weight * ln10 * (log10 + (o.sentence_end ? model.end_score(state) : 0));
}

// Of a phrase that is listed twice the last weight counts.
inline double hot_score(const std::vector<HotWord>& hot, const std::vector<std::string>& words) {
  std::map<std::vector<std::string>, double> weights;
  for (const HotWord& h : hot) weights[split_words(h.phrase)] = h.weight;
  double score = 0;
  for (const auto& [phrase, weight] : weights)
    for (size_t i = 0; i + phrase.size() <= words.size(); ++i)
      if (std::equal(phrase.begin(), phrase.end(), words.begin() + static_cast<ptrdiff_t>(i)))
        score += weight;
  return score;
}

inline const std::vector<std::string> spaced = {"<blank>", " ", "a", "b"};

}  // namespace rondo
