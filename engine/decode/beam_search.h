// Prefix beam search for CTC: the most probable label sequences of a matrix of scores.
//
// The probability of a label sequence is the sum over all its alignments (Graves et al. 2006,
// equation 3). The search keeps, frame by frame, the prefixes with the highest probability so far,
// each with the share of its alignments that end in a blank and that end in its last label (Graves
// and Jaitly 2014, algorithm 1; Hannun et al. 2014). Nothing is thrown away but what falls out of
// the beam, so with a beam that holds all prefixes the probabilities are exact, and otherwise they
// are lower bounds.
//
// Errors: Error for a score that is NaN, naming the frame, and for sizes that cannot be. Thread
// safety: pure functions; the same input gives the same bits.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace rondo {

struct BeamOptions {
  int32_t beam = 100;  // prefixes that are kept from frame to frame, at least 1
  int32_t nbest = 1;   // hypotheses that are returned, at most
  // Whether probabilities of alignments are added, or the best alignment counts alone.
  bool sum = true;
  // Classes whose log-probability in a frame is lower than this do not extend prefixes in it; the
  // blank and repeats always do.
  double token_floor = -std::numeric_limits<double>::infinity();
  int32_t blank = 0;
};

struct BeamHypothesis {
  std::vector<int32_t> labels;
  double log_probability = 0;  // natural logarithm
};

// `scores`: [frames, classes], logits or log-probabilities; each row is normalised. The best first;
// of equal ones the one that was found first. No frames: one hypothesis without labels.
std::vector<BeamHypothesis> beam_search(const float* scores, int32_t frames, int32_t classes,
                                        const BeamOptions& options);

}  // namespace rondo
