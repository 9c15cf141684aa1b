#include "engine/decode/tuning.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "engine/text/greedy.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

class Tuner {
 public:
  Tuner(std::span<const KnownOutputs> data, const Vocabulary& vocabulary,
        const DecoderOptions& options, const DecoderKnowledge& knowledge, bool by_characters,
        ThreadPool& threads, const std::function<void(const TriedWeights&)>& tried)
      : data_(data),
        vocabulary_(vocabulary),
        options_(options),
        knowledge_(knowledge),
        by_characters_(by_characters),
        threads_(threads),
        tried_(tried) {}

  void try_weights(double lm_weight, double word_score) {
    if (lm_weight < 0 || !seen_.emplace(lm_weight, word_score).second) return;
    options_.lm_weight = lm_weight;
    options_.word_score = word_score;
    const Decoder decoder(vocabulary_, options_, knowledge_);
    const TriedWeights t{lm_weight, word_score, errors_of(data_, vocabulary_, &decoder, threads_)};
    if (tried_) tried_(t);
    all_.push_back(t);
  }

  TriedWeights best() const {
    const auto cheapest = std::min_element(
        all_.begin(), all_.end(), [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
    std::vector<TriedWeights> equal;
    double lm_mean = 0, word_mean = 0;
    for (const TriedWeights& t : all_) {
      if (cost(t) != cost(*cheapest)) continue;
      equal.push_back(t);
      lm_mean += t.lm_weight;
      word_mean += t.word_score;
    }
    lm_mean /= static_cast<double>(equal.size());
    word_mean /= static_cast<double>(equal.size());
    const auto distance = [&](const TriedWeights& t) {
      return std::hypot(t.lm_weight - lm_mean, t.word_score - word_mean);
    };
    return *std::min_element(equal.begin(), equal.end(), [&](const auto& a, const auto& b) {
      return distance(a) < distance(b);
    });
  }

 private:
  std::pair<int64_t, int64_t> cost(const TriedWeights& t) const {
    const int64_t words = t.errors.words().errors(), characters = t.errors.characters().errors();
    return by_characters_ ? std::pair(characters, words) : std::pair(words, characters);
  }

  const std::span<const KnownOutputs> data_;
  const Vocabulary& vocabulary_;
  DecoderOptions options_;
  const DecoderKnowledge& knowledge_;
  const bool by_characters_;
  ThreadPool& threads_;
  const std::function<void(const TriedWeights&)>& tried_;
  std::set<std::pair<double, double>> seen_;
  std::vector<TriedWeights> all_;
};

// From a value to its nearest neighbours, on average.
double distance(std::vector<double> values, double at) {
  std::sort(values.begin(), values.end());
  const auto here = std::lower_bound(values.begin(), values.end(), at);
  double sum = 0;
  int neighbours = 0;
  if (here != values.begin()) sum += at - *std::prev(here), ++neighbours;
  if (here != values.end() && std::next(here) != values.end())
    sum += *std::next(here) - at, ++neighbours;
  return neighbours > 0 ? sum / neighbours : 1;
}

}  // namespace

ErrorRate errors_of(std::span<const KnownOutputs> data, const Vocabulary& vocabulary,
                    const Decoder* decoder, ThreadPool& threads) {
  std::vector<ErrorRate> each(data.size());
  const int32_t classes = vocabulary.classes();
  threads.for_each(static_cast<int64_t>(data.size()), [&](int64_t i) {
    const KnownOutputs& known = data[static_cast<size_t>(i)];
    const auto frames = static_cast<int32_t>(known.scores.size() / static_cast<size_t>(classes));
    const std::string text = decoder
                                 ? decoder->decode(known.scores.data(), frames).front().text
                                 : vocabulary.text(labels_of(greedy_ctc(
                                       known.scores.data(), frames, classes, vocabulary.blank())));
    each[static_cast<size_t>(i)].add(known.reference, text);
  });
  ErrorRate all;
  for (const ErrorRate& e : each) all += e;
  return all;
}

TriedWeights tune_weights(std::span<const KnownOutputs> data, const Vocabulary& vocabulary,
                          const DecoderOptions& options, const DecoderKnowledge& knowledge,
                          const TuningOptions& tuning, ThreadPool& threads,
                          const std::function<void(const TriedWeights&)>& tried) {
  RONDO_CHECK(!tuning.lm_weights.empty() && !tuning.word_scores.empty(), "an empty grid");
  if (std::none_of(data.begin(), data.end(), [](const auto& d) { return !d.reference.empty(); }))
    fail_input("none of the ", data.size(), " utterances has a text to compare with");
  Tuner tuner(data, vocabulary, options, knowledge, tuning.by_characters, threads, tried);
  for (const double lm_weight : tuning.lm_weights)
    for (const double word_score : tuning.word_scores) tuner.try_weights(lm_weight, word_score);
  double lm_step = distance(tuning.lm_weights, tuner.best().lm_weight);
  double word_step = distance(tuning.word_scores, tuner.best().word_score);
  for (int round = 0; round < tuning.rounds; ++round) {
    const TriedWeights center = tuner.best();
    if (center.errors.words().errors() + center.errors.characters().errors() == 0) break;
    lm_step /= 2;
    word_step /= 2;
    for (const int lm : {-1, 0, 1})
      for (const int word : {-1, 0, 1})
        tuner.try_weights(center.lm_weight + lm * lm_step, center.word_score + word * word_step);
  }
  return tuner.best();
}

}  // namespace rondo
