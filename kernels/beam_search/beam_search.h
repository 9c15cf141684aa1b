// CTC prefix beam search over a ragged batch, with what is known of the language as an automaton.
//
// For every sequence the `beam` label sequences (prefixes) with the highest probability are kept
// from frame to frame, each with the share of its alignments that end in a blank and that end in
// its last label (Graves and Jaitly 2014, algorithm 1; Hannun et al. 2014). A frame with the
// softmax p, and a prefix of shares b and l and total b + l:
//
//   it stays           b' = (b + l) p[blank]       l' = l p[last label]
//   it grows by c      l' = (b + l, or b alone where c is its last label) p[c] gain(state, c)
//
// Ways to the same prefix are added: what stays first, then what grows into it. (With `sum` false
// the larger of two counts in place of a sum, everywhere.) So probabilities are sums over all
// alignments whose prefixes were in the beam, multiplied by the gains of their labels, and exact
// where the beam holds all prefixes. Prefixes are the same when their labels are; on devices, when
// a hash of 64 bits of them is (two different ones in one beam get the same with a probability of
// about beam^2 frames / 2^65).
//
// Then the `beam` best go on, those that are at least `range` times as probable as the best and not
// of probability 0. Of equal ones those that were in the beam come first, in their order; then
// those that grew, by the order of what they grew from, and then by label. The beam's order is best
// first. Probabilities are f64 and, once they are further than 2^32 from 1, divided by the power of
// two that the best one has, which changes no digit; what is less than 1e-308 of the best is 0.
//
// The automaton says of each state and label by what the probability is multiplied (0: the label
// may not follow) and which state comes then: an n-gram model of tokens, hot phrases, a list of
// words, or all of them at once. Absent: all gains are 1.
//
// Shapes: scores [rows, V] packed (kernels/base/packed.h), f32 or bf16: logits or
//   log-probabilities; each row is normalised. N = layout.capacity.sequences, W = beam:
//   counts [N] i32             how many prefixes of the sequence are left, best first
//   stopped [N] i32            -1; or the frame that ended the search before its time: with counts
//                              above 0, because nothing had a probability above 0 in it (the
//                              prefixes are those before it); with counts 0, because its scores
//                              have a NaN or no finite largest
//   probabilities [N, W] f64   of the prefixes, relative to 2^exponents[n]; 0 past counts[n]
//   exponents [N] i32
//   lengths [N, W] i32         labels of the prefixes; 0 past counts[n]
//   states [N, W] i32          of the automaton behind them; 0 past counts[n]
//   labels [rows, W] i32       packed: in frame i of a sequence, the i-th label of each prefix;
//                              -1 past their length (a prefix has a frame for each label)
//   gains [S, V] f64, next [S, V] i32, extends [V] u8: see below
// A sequence of length 0, and every one past the extent, has the empty prefix with probability 1.
// Aliasing: none. Sums of a softmax are in order in `ref`, and on devices of 32 lanes, each every
// 32nd class in order, then pairwise; so probabilities differ by about V ulps of f64 a frame, and
// where two prefixes are as close, their order may.
// Determinism: bitwise.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

// Of the GPU variant: what shared memory holds.
inline constexpr int32_t beam_search_most_beam = 128, beam_search_most_classes = 1024;

// In device memory; absent: null pointers.
struct BeamAutomaton {
  const double* gains = nullptr;  // [S, V], finite, >= 0
  const int32_t* next = nullptr;  // [S, V], in [0, S) where the gain is above 0
  int32_t start = 0;
  double most_gain = 1;  // no gain is larger
};

struct BeamSearchArgs {
  static constexpr const char* op = "beam_search";
  PackedView layout;
  TensorView scores;
  int32_t blank = 0;
  int32_t beam = 100;
  bool sum = true;
  double floor = 0;  // what a class must have in a frame to extend prefixes; 0: nothing
  double range = 0;  // 0: any prefix that is possible may go on
  const uint8_t* extends = nullptr;  // which classes may at all; absent: all but the blank
  BeamAutomaton automaton;
  TensorView counts, stopped, exponents;
  TensorView lengths, states, labels, probabilities;
  TensorView workspace;  // u8, at least beam_search_workspace_bytes()
};

// For any backend; `rows`: the capacity. The workspace is scratch and must be 64-byte aligned.
size_t beam_search_workspace_bytes(int64_t rows, int64_t classes, int32_t beam);

std::span<const Variant> beam_search_variants();

}  // namespace rondo
