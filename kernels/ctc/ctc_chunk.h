// CTC of sequences that are cut in time: two ops that each see one chunk of every sequence and hand
// the state of the lattice over at the cuts. For shards of a sequence on several ranks, and chunks
// of one that does not fit into memory. Notation and edges as in ctc.h.
//
//   ctc_chunk_alpha   from left to right: alpha at the chunk's left border -> at its right border
//   ctc_chunk_grad    from right to left: beta and log p from the right border -> at the left one;
//                     the chunk's gradient
//
// alpha is made again inside ctc_chunk_grad from its value at the left border, so nothing but the
// borders is kept between the two (three sweeps of alpha and beta instead of two).
//
// Shapes: layout, logits and grad are those of the chunk: lengths[n] frames of sequence n, of which
// the first has the absolute index layout.first_frame[n]; total_frames [N] are the whole lengths.
// A chunk may hold no frame of a sequence, at either end too. labels are those of whole sequences.
//   alpha_in, alpha_out, beta_in, beta_out: f64 [N, ctc_border_width(max_label_length)], with the
//     kernel's own numbers: they are to be used by the same variant for the same sequence (rows
//     may be permuted with the sequences), and copied as bytes.
// alpha_in is not read for a sequence that begins here (first_frame 0), nor beta_in for one whose
// last frame lies here or further left; where nothing else remains they may be absent.
// loss [N]: of a sequence that has frames here or further right, or has none at all; otherwise 0.
// The leftmost chunk thus gets all. f32 (f64 for f64 logits). May be absent.
// grad may alias logits. Rows past the extent as in ctc.h.
//
// The result does not depend on the cuts, bit for bit, and is that of the cpu variants of ctc
// named "wide_*", for the same instruction set. The default variants of ctc differ from them by
// rounding: they sum alpha and beta in the middle, which a chunk cannot.
// ref works in log space and agrees with its own whole-sequence result bit for bit as well; so do
// the GPU variants with ctc's "log_space" of the same backend (f32 and bf16), as long as logits are
// 16-byte aligned in both or in neither. Those cannot throw
// for what only the tables tell: a sequence with a chunk outside of it, or without the border that
// it needs, gets NaN. Thread safety and determinism as ctc.
#pragma once

#include "kernels/ctc/ctc.h"

namespace rondo {

// f64 numbers per sequence at a border.
int64_t ctc_border_width(int32_t max_label_length);

struct CtcChunk {
  PackedView layout;
  const int32_t* total_frames = nullptr;  // [N]
  TensorView logits;
  const int32_t* labels = nullptr;
  const int32_t* label_offsets = nullptr;  // [N + 1]
  int32_t max_label_length = 0;
  int32_t blank = 0;
  CtcInput input = CtcInput::logits;
  TensorView alpha_in;
  TensorView workspace;  // u8, at least ctc_chunk_workspace_bytes()
};

struct CtcChunkAlphaArgs : CtcChunk {
  static constexpr const char* op = "ctc_chunk_alpha";
  TensorView alpha_out;
};

struct CtcChunkGradArgs : CtcChunk {
  static constexpr const char* op = "ctc_chunk_grad";
  bool zero_infinity = false;
  TensorView grad_scale;  // [N] in the dtype of loss, absent: 1
  TensorView beta_in, beta_out;
  TensorView loss;
  TensorView grad;
};

// The scratch of either op, 64-byte aligned: an upper bound over every chunk within the capacity.
size_t ctc_chunk_workspace_bytes(const Context& context, const PackedCapacity& capacity,
                                 DType dtype, int64_t classes, int32_t max_label_length);

std::span<const Variant> ctc_chunk_alpha_variants();
std::span<const Variant> ctc_chunk_grad_variants();

}  // namespace rondo
