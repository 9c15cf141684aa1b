// The text that several ctc models together find most probable.
//
// Averaging the models frame by frame does harm where each writes a character in a frame of its
// own. What can be compared whatever the frames are is the probability of a whole text, the sum
// over its alignments: wanted is the text y with the largest mean over the models of ln p_k(y | x),
// a product of experts (Hinton 2002, "Training products of experts by minimizing contrastive
// divergence", equation 1, with equal weights).
//
// With a decoder, what it knows of the language counts besides: wanted is the largest
//
//   mean over the models of ln p_k(y | x) + what the decoder adds to ln p(y | x) (decoder.h)
//
// so that its weights are those for one model.
//
// The search begins with the best of the models' own texts (the best class of each frame, or what
// the decoder finds). Where it differs from another of them, the place is written as that one does,
// if the mean grows; this goes on until no place of any of them helps. So each model may contribute
// a part of the line, as in ROVER (Fiscus 1997), but probabilities decide, not votes. What it finds
// is no worse than the best of the models' texts; a text that no model writes in some place is not
// looked for. Where all of them are impossible to one of the models, the first one's text stands.
//
// Thread safety: pure functions. Errors: Error for a score that is NaN.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decode/decoder.h"

namespace rondo {

// `models`: of each its scores (logits or log-probabilities), [frames, classes], the frames its
// own; class 0 is the blank. The labels of the text; none of no frames. `decoder`: may be nullptr.
std::vector<int32_t> agreed_labels(std::span<const std::span<const float>> models, int32_t classes,
                                   const Decoder* decoder = nullptr);

// The same of sequence n of a batch: of each model its prediction as Session::predict() packs it,
// with sequences of these lengths.
std::vector<int32_t> agreed_labels(std::span<const std::vector<float>> models,
                                   std::span<const int32_t> lengths, size_t n, int32_t classes,
                                   const Decoder* decoder = nullptr);

}  // namespace rondo
