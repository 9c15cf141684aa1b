// The variants of ctc, for its table alone, and what the cpu variants' files share.
//
// How the cpu variants work, per sequence:
//   1. ctc_rows        per frame: max and sum of exp over the classes, and y = exp(logit - max) of
//                      the blank and of each label, gathered.
//   2. ctc_lattice_*   alpha and beta meeting in the middle, in linear space: f64 with a power of
//                      two per tile of 8 labels. Writes the posterior of each frame and bin
//                      (below). Each direction may have a thread of its own.
//      ctc_wide        the same with an exponent per state, for sequences that leave the range of
//                      the former; always right, several times slower.
//   3. ctc_grad_rows   softmax - posterior, written once.
// What grows with frames times labels (y, the lattice) is kept up to a quarter of
// CtcArgs::lattice_limit per sequence. Beyond that the lattice is walked in segments: columns are
// kept at O(sqrt(T)) frames, and a segment's are made again from one of them, with the same bits.
#pragma once

#include "kernels/ctc/ctc.h"

namespace rondo {

// Throws Error, naming it, for a view that is not what ctc.h says. Every variant of the table asks.
void check_ctc(const CtcArgs& args);
// What the host can read of a batch's tables: offsets that rise, labels below `classes` that are
// not the blank, no more than `most` of them. Error. On GPUs they are in the device's memory.
void check_ctc_labels(const Context& context, const PackedView& layout, const int32_t* labels,
                      const int32_t* label_offsets, int32_t most, int64_t classes, int32_t blank);

// States come in tiles of `ctc_tile` labels, each with the blank before it; the blank after the
// last label is the blank of label position L. A lattice column is [tiles][blanks 8 | labels 8].
inline constexpr int32_t ctc_tile = 8;
inline constexpr int32_t ctc_column_tile = 2 * ctc_tile;  // f64 per tile of a column

// Up to this many classes each class has a bin of posteriors; beyond, each distinct label has one,
// by ascending class, as has the blank.
inline constexpr int64_t ctc_dense_classes = 64;

struct CtcLoss {
  double value;
  enum Kind : uint8_t { finite, impossible, not_a_number, out_of_range } kind;
};

// The scales of one direction of the lattice: a power of two for each tile of its current column,
// and how far values can have moved since they were last set.
struct CtcSweep {
  int32_t* exponent;  // [tiles]: a value v stands for v * 2^exponent
  double* carry;      // [padded]: 1, but at the seam of two tiles the ratio of their scales
  double* skip;       // [padded]: carry where a label may be skipped to, else 0
  int32_t bits;       // lost at most, since
  int32_t frames;     // passed since
  int32_t limit;      // frames that may pass before values could grow too large
  bool clipped;       // a value was too far below its tile's scale, at any time
};

// What CtcSweep held, besides the exponents, at the head of a segment.
struct CtcHead {
  int32_t bits, frames, limit;
};

// Columns that one direction leaves behind for the other: of alpha those below the middle, of beta
// the others; in segments those of one segment at a time, and of each segment's first column, in
// the direction, what it takes to make the segment again.
struct CtcStored {
  double* columns;      // of frame t: t, in segments t % segment
  int32_t* profile_of;  // like columns: whose exponents, in `profiles`
  int32_t* profiles;    // [...][tiles]
  int32_t profile_count;
  double* head_columns;  // [segments]
  int32_t* head_exponents;
  CtcHead* heads;
};

// The posteriors of up to 16 frames, on their way into bins.
struct CtcGather {
  void* rows;        // [16][padded] Real
  void* transposed;  // [padded][16] Real
  void* bin_sums;    // [bin_stride][16] Real
};

// One direction and what its walk needs, so that the two may have a thread each.
struct CtcSide {
  CtcSweep sweep;
  CtcSweep again;     // in segments: of the other direction, whose columns are made again
  CtcStored stored;   // what it leaves behind
  double* scratch;    // 2 columns
  double* column;     // the current one
  int32_t frame;      // its frame
  int32_t rows_from;  // where there is a ring of rows: the frame where the ring's rows begin
  double* factor;     // [tiles]
  int32_t factor_of;  // the profile of the other direction that factors are for
  // The rows' normalisers, as a product, and what was subtracted of their logits.
  double fraction;
  int64_t exponent;
  double shifts;
  bool in_range, not_a_number;
  CtcGather gather;
};

// A sequence with its tables and scratch memory, which lies in one slot of the workspace.
struct CtcSequence {
  const void* logits;  // row of frame t: row_offsets[t] + sequence
  void* grad;          // nullptr: loss only
  const int32_t* row_offsets;
  const int32_t* labels;
  int64_t classes;
  int32_t sequence, frames, label_count, blank;
  CtcInput input;
  double grad_scale;
  bool wants_grad;
  bool stream;  // the gradient is too large to stay in the caches
  bool kept;    // y and the lattice are kept; otherwise it is walked in segments

  int32_t tiles, padded;  // padded: label positions, a multiple of 16
  int32_t* label_class;   // [padded]; the blank past the labels
  double* may_skip;       // [padded + 8]: 1 if position i - 1 may be followed by i without a blank
  double* reach;   // a column: the first frame that can be in this state (inf: no such state)
  double* finish;  // a column: the frames needed after this state
  int32_t *first_tile, *last_tile;  // [frames]: tiles that hold states on complete alignments

  int64_t bins, bin_stride;
  int32_t blank_bin;
  int32_t* bin_class;     // [bins], ascending
  int32_t* bin_begin;     // [bins + 1], into bin_position
  int32_t* bin_position;  // [label_count]

  // Per frame; Real is double for f64 logits, float otherwise. y, y_blank and drop lie in a ring
  // for each direction where not all frames of them are kept.
  int32_t ring;  // frames of a ring; 0: all are kept. In segments it is their length
  void* y;       // [frames, padded] Real
  void* y_blank;
  void* row_max;  // all frames
  void* row_sum;  // all frames
  int32_t* drop;  // bits that y may cost: the smallest y of the frame is >= 2^-drop

  CtcSide side[2];  // beta's, alpha's
  CtcLoss met;      // what the two found where they met
  // Z = z * 2^z_exponent, the sum over all alignments.
  double z;
  int64_t z_exponent;

  // What ctc_wide keeps of the lattice, in the memory of the stored columns.
  double* columns;
  double* scratch;  // 4 columns
  double* wide_y;   // [2][padded]: mantissas and exponents of a frame's y

  void* post;  // [frames, bin_stride] Real
};

// ctc_wide keeps alpha of every `ctc_wide_block`th frame, and a block of frames made again from it.
int32_t ctc_wide_block(int32_t frames);
inline constexpr int32_t ctc_wide_column_tile = 4 * ctc_tile;  // mantissas and exponents

inline constexpr int32_t ctc_ring_frames = 16;  // where not all frames of y are kept

void ctc_ref(const Context& context, const CtcArgs& args);

struct CtcKernels {
  // y, y_blank and drop of these frames in the ring at `slot`, or where all frames' are kept, and
  // their row_max and row_sum.
  void (*rows)(const CtcSequence& s, DType dtype, int32_t begin, int32_t end, int32_t slot);
  void (*grad_rows)(const CtcSequence& s, DType dtype, int32_t begin, int32_t end);
  CtcLoss (*wide)(CtcSequence& s, DType dtype);

  // Without them `wide` does all.
  CtcLoss (*loss)(CtcSequence& s, DType dtype) = nullptr;  // without a gradient
  // Each direction up to the middle, and on from there once they have met.
  void (*first_half)(CtcSequence& s, DType dtype, bool up) = nullptr;
  CtcLoss (*meet)(CtcSequence& s, DType dtype) = nullptr;
  void (*second_half)(CtcSequence& s, DType dtype, bool up) = nullptr;
};
size_t ctc_cpu_workspace_bytes(const Context& context, const PackedCapacity& capacity, DType dtype,
                               int64_t classes, int32_t max_label_length, bool with_grad,
                               size_t lattice_limit);
void ctc_run(const Context& context, const CtcArgs& args, const CtcKernels& kernels);
// The whole sequence by ctc_wide: what ctc_chunk gives for any cuts.
void ctc_wide_avx512(const Context& context, const CtcArgs& args);
void ctc_wide_avx2(const Context& context, const CtcArgs& args);
void ctc_wide_generic(const Context& context, const CtcArgs& args);
void ctc_avx512(const Context& context, const CtcArgs& args);
void ctc_avx2(const Context& context, const CtcArgs& args);
void ctc_generic(const Context& context, const CtcArgs& args);

#define RONDO_DECLARE(isa)                                                                    \
  namespace isa {                                                                             \
  void ctc_rows(const CtcSequence& s, DType dtype, int32_t begin, int32_t end, int32_t slot); \
  CtcLoss ctc_lattice_loss(CtcSequence& s, DType dtype);                                      \
  void ctc_lattice_first_half(CtcSequence& s, DType dtype, bool up);                          \
  CtcLoss ctc_lattice_meet(CtcSequence& s, DType dtype);                                      \
  void ctc_lattice_second_half(CtcSequence& s, DType dtype, bool up);                         \
  CtcLoss ctc_wide(CtcSequence& s, DType dtype);                                              \
  void ctc_grad_rows(const CtcSequence& s, DType dtype, int32_t begin, int32_t end);          \
  }
RONDO_DECLARE(isa_generic)
RONDO_DECLARE(isa_avx2)
RONDO_DECLARE(isa_avx512)
#undef RONDO_DECLARE

}  // namespace rondo
