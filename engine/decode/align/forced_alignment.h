// Where a given text lies in the outputs of a CTC model: the most probable alignment (Viterbi)
// through blank, label, blank, label, ..., blank (Graves et al. 2006, section 4).
//
// The result is exact: the path that the dense trellis of frames times states gives in double
// precision, which adds the scores of one frame after the other and where two ways are equally good
// keeps the state, before it comes from the state before, before it leaves a blank out. No other
// order of sums, no approximation; so ties and rounding come out the same, too.
//
// Memory, besides the scores, grows with (frames times labels)^(2/3): 150 MB for four hours of
// speech, 825,000 frames and 40,000 labels. The states are kept at every K-th frame alone. From
// there the path is found block by block from behind, where only the 2K states before its end can
// take part. Time grows with frames times labels, but states are left out (AlignmentOptions::prune)
// that a bound proves to be off the best path.
//
// Errors: InputError where the frames are too few for the labels, or no alignment has a probability
// above 0; Error for a score that is NaN or +infinity, naming the frame. Thread safety: pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/text/greedy.h"

namespace rondo {

// `scores`: [frames, classes], logits or log-probabilities. Labels are other classes than the
// blank.
std::vector<TimedLabel> forced_alignment(const float* scores, int32_t frames, int32_t classes,
                                         std::span<const int32_t> labels, int32_t blank = 0);

// A label that stands for whatever is said and not in the text: in each frame it scores what the
// best of all classes does, blank among them, less AlignmentOptions::wildcard_cost.
inline constexpr int32_t wildcard_label = -1;
// A wildcard for a single frame, less AlignmentOptions::opening_cost: before others it says how
// much better a path has to be by what they take.
inline constexpr int32_t opening_label = -3;

// A piece of a text, a word say: any one of its spellings is there, the best one is chosen. An
// empty spelling: it may be missing.
struct AlignmentUnit {
  std::vector<std::vector<int32_t>> spellings;
};

struct AlignmentOptions {
  int32_t blank = 0;
  // Of a frame, in the scores' unit (natural logarithms). A wildcard then takes only frames where
  // the text is worse than the model's own choice by so much.
  double wildcard_cost = 0.5;
  double opening_cost = 0;  // the same of opening_label, beside wildcard_cost
  // [classes], added to the scores of each frame; or empty. For label priors: minus their weighted
  // logarithm (Huang et al. 2024, "Less peaky and more accurate CTC forced alignment by label
  // priors").
  std::span<const float> bias = {};
  // Leaves states out that cannot be on the best path: such whose score, with the best score of
  // any class in each frame to come, is less than that of an alignment which a beam has found.
  bool prune = true;
  // Of the blocks that are explained above; 0: chosen.
  int64_t block_frames = 0;
};

struct UnitAlignment {
  std::vector<TimedLabel> labels;  // of the chosen spellings, in their order
  std::vector<int32_t> unit_of;    // of each label
  std::vector<int32_t> spelling;   // of each unit: which one was chosen
  double score = 0;                // of the path: a sum over all frames
  int64_t states_visited = 0;      // frames times states that were computed, of
  int64_t states_dense = 0;        // those of the dense trellis
};

// Throws Error for a unit without spellings. `frames` is at most 2^31 - 1.
UnitAlignment align_units(const float* scores, int64_t frames, int32_t classes,
                          std::span<const AlignmentUnit> units, const AlignmentOptions& options);

}  // namespace rondo
