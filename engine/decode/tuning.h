// Finds the weights of a language model by trying them on data whose texts are known.
//
// A grid of lm_weight and word_score first, then, around the best of all so far, neighbours at half
// the distance, twice. Better is what has fewer errors in words (or characters, if that is wanted),
// of equal ones what has fewer in the other. Of equally good ones the one nearest to their mean is
// taken, since it is the farthest from where things get worse.
//
// Thread safety: pure functions. Errors: those of decoders.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/decode/decoder.h"
#include "engine/text/error_rate.h"
#include "kernels/base/cpu/parallel.h"

namespace rondo {

struct KnownOutputs {
  std::vector<float> scores;  // [frames, classes]
  std::string reference;
};

struct TriedWeights {
  double lm_weight = 0, word_score = 0;
  ErrorRate errors;
};

struct TuningOptions {
  std::vector<double> lm_weights = {0, 0.25, 0.5, 0.75, 1, 1.5, 2};
  std::vector<double> word_scores = {-1, 0, 1, 2, 4};
  int rounds = 2;              // of refinement
  bool by_characters = false;  // what to make small: CER
};

// `options`: of the decoder, all but the two weights. `tried` sees each pair with its result. The
// best one is returned. InputError where no reference has a word.
TriedWeights tune_weights(std::span<const KnownOutputs> data, const Vocabulary& vocabulary,
                          const DecoderOptions& options, const DecoderKnowledge& knowledge,
                          const TuningOptions& tuning, ThreadPool& threads,
                          const std::function<void(const TriedWeights&)>& tried);

// The errors of one decoder, or, without one, of the best class of each frame.
ErrorRate errors_of(std::span<const KnownOutputs> data, const Vocabulary& vocabulary,
                    const Decoder* decoder, ThreadPool& threads);

}  // namespace rondo
