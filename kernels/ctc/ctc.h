// Connectionist temporal classification: loss and gradient in one op, softmax fused.
//
// Graves et al. 2006, "Connectionist temporal classification: labelling unsegmented sequence data
// with recurrent neural networks". For each sequence n with labels l_1..l_L:
// loss[n] = -log p(l | logits), the sum over all alignments of products of softmax probabilities;
// grad is its derivative with respect to the *logits*: softmax - posterior, times grad_scale[n].
//
// Shapes: logits, grad [rows, V] packed (kernels/base/packed.h), the same dtype (f32, bf16, f64);
//   loss [N] f32 (f64 for f64 logits), N = layout.capacity.sequences, in packed order; entries past
//   extent.sequences are set to 0.
//   labels: int32, concatenated in packed order; sequence n owns
//   labels[label_offsets[n] .. label_offsets[n+1]); label_offsets has N + 1 entries.
//   grad_scale [N] in the dtype of loss, absent: 1. grad absent: loss only, O(L) memory per
//   sequence for the lattice.
// grad may alias logits.
//
// Edges:
//   length 0, label length 0   loss 0
//   empty label                legal: all blanks
//   infeasible                 (frames < labels + adjacent repeats): loss +inf, grad exactly 0;
//                              with zero_infinity loss 0
//   probability exactly 0      (a class that every alignment needs has logit -inf): as infeasible
//   rows past the extent       never read; grad rows past the extent are not written
//   logit -inf                 probability 0, as long as its row holds a finite one
//   other NaN/Inf logits       loss and gradient NaN for that sequence alone
//   log_softmax input          only the columns of the blank and the sequence's labels are read;
//                              the others may hold anything
//   blank                      any index in [0, V)
// Labels must be in [0, V), must not be the blank, and are validated by whoever builds the batch
// (validate_ctc_labels): a kernel may read out of bounds on bad labels.
// Determinism: bitwise, for any thread count.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

enum class CtcInput : uint8_t { logits, log_softmax };

// Bytes of alpha and beta that are kept for a gradient: by GPU variants of all sequences together;
// by CPU variants a quarter of it of each, with the labels' probabilities. A lattice that would
// take more is kept at some frames alone, and half as many frames as otherwise are walked once more
// from there; on CPUs the results have the same bits.
inline constexpr size_t ctc_lattice_limit = size_t{1} << 30;

struct CtcArgs {
  static constexpr const char* op = "ctc";
  PackedView layout;
  TensorView logits;
  const int32_t* labels = nullptr;
  const int32_t* label_offsets = nullptr;  // [N + 1]
  int32_t max_label_length = 0;            // capacity: upper bound over the batch
  int32_t blank = 0;
  // log_softmax: `logits` hold log-probabilities already; the gradient is -posterior, with
  // respect to the log-probabilities.
  CtcInput input = CtcInput::logits;
  bool zero_infinity = false;
  TensorView grad_scale;
  TensorView loss;
  TensorView grad;
  TensorView workspace;  // u8, at least ctc_workspace_bytes()
  size_t lattice_limit = ctc_lattice_limit;
};

// The most labels of a sequence, and classes of a row: kernels count states and their bytes in 32
// bits (12 bytes at most of a lattice's column for each label, 4 of a row for each class).
inline constexpr int32_t ctc_most_labels = (1 << 27) - 1, ctc_most_classes = (1 << 30) - 1;

// Upper bound over every batch within the capacity, for context.backend and context.pool's size.
// The workspace belongs to the caller, is scratch, and must be 64-byte aligned. `lattice_limit` is
// that of CtcArgs.
size_t ctc_workspace_bytes(const Context& context, const PackedCapacity& capacity, DType dtype,
                           int64_t classes, int32_t max_label_length, bool with_grad,
                           size_t lattice_limit = ctc_lattice_limit);

// Throws InputError naming the utterance and the value: a label outside [0, V) or equal to blank,
// more than ctc_most_labels of them.
void validate_ctc_labels(std::span<const int32_t> labels, int64_t classes, int32_t blank,
                         std::string_view utterance);

// The fewest frames an alignment of `labels` needs: their number plus the adjacent repeats.
int64_t ctc_min_frames(std::span<const int32_t> labels);

std::span<const Variant> ctc_variants();

}  // namespace rondo
