// What the GPU variants of ctc share with their table; for kernels/ctc alone.
//
//   fast        alpha and beta meeting in the middle, in linear space in f32 with a power of two
//               per lane, in registers. Launches: rows (softmax statistics, emissions,
//               labels grouped by class), lattice (a block per sequence), gradient (rows). A
//               sequence that leaves the range is left to log_space, in a last launch that
//               returns at once for the others; the host never waits. Where the lattice takes
//               more memory than CtcArgs::lattice_limit, and for labels that one block does not
//               hold, the lattice is several launches (ctc_segments_gpu.h).
//   without_stages  `fast` as it is where blocks do not get the shared memory of several walkers'
//               stages (ctc_apart.cu): by name alone, so that every machine can check that path.
//   log_space   log space in f64, one block per sequence, one frame after the other. Right for any
//               label length and any logits; some ten times slower.
#pragma once

#include "kernels/ctc/ctc.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_GPU(ctc_fast, CtcArgs);
RONDO_DECLARE_GPU(ctc_without_stages, CtcArgs);
RONDO_DECLARE_GPU(ctc_log_space, CtcArgs);
// Launches that are parts of these, each compiled once:
// the rows' and labels' part of `fast`, and of log_space, whose workspace has less;
RONDO_DECLARE_GPU(ctc_prepare, CtcArgs);
RONDO_DECLARE_GPU(ctc_prepare_log_space, CtcArgs);
// the lattice of `fast`, for CtcGpuWorkspace::in_segments;
RONDO_DECLARE_GPU(ctc_lattice_in_segments, CtcArgs);
// the lattice of `fast` with a gradient, for several warps of labels, and that of
// `without_stages`; how the halves meet in launches of their own; and how all of these end;
RONDO_DECLARE_GPU(ctc_lattice_apart, CtcArgs);
RONDO_DECLARE_GPU(ctc_lattice_without_stages, CtcArgs);
RONDO_DECLARE_GPU(ctc_lattice_meet, CtcArgs);
RONDO_DECLARE_GPU(ctc_lattice_end, CtcArgs);
// log space for the sequences that the lattice has left to it.
RONDO_DECLARE_GPU(ctc_rest_in_log_space, CtcArgs);

// The labels' lengths on the device: cuDNN wants them there (bench/cases/peers).
namespace sim {
void ctc_label_lengths(const Context& context, const int32_t* offsets, int32_t count, int32_t* out);
}
namespace cuda {
void ctc_label_lengths(const Context& context, const int32_t* offsets, int32_t count, int32_t* out);
}

// GPUs take f32 and bf16, and rows of logits whose bytes they can count in 32 bits.
inline bool ctc_gpu_accepts(const Context&, const void* args) {
  if (!args) return true;
  const auto& a = *static_cast<const CtcArgs*>(args);
  const int64_t classes = a.logits.rank == 2 ? a.logits.dim(1) : 0;
  return a.logits.dtype != DType::f64 && classes <= ctc_most_classes &&
         a.max_label_length <= ctc_most_labels;
}

// How the states of a sequence lie in the lanes: `pairs` of a blank and the label after it per
// lane, `warps` of them in a row in one block, `strips` blocks.
struct CtcTiling {
  int pairs, warps, strips;
};
// Labels of a sequence that one block holds.
inline constexpr int32_t ctc_block_labels = 1023;
constexpr CtcTiling ctc_tiling(int32_t max_labels) {
  const int32_t pairs = max_labels + 1;
  if (pairs <= 32) return {1, 1, 1};
  if (pairs <= 64) return {2, 1, 1};
  if (max_labels <= ctc_block_labels) return {4, (pairs + 127) / 128, 1};
  return {4, 8, (pairs + ctc_block_labels) / (ctc_block_labels + 1)};
}
// Warps of a direction that can have stages in one block (ctc_apart.cu). More of them are two
// blocks' (ctc_strips_gpu.h), the first of which has as many as the second, or one more.
inline constexpr int ctc_staged_warps = 4;
// Frames between two scalings (ctc_tile_gpu.h).
constexpr int ctc_chunk_frames(int pairs) { return pairs == 1 ? 7 : pairs == 2 ? 6 : 8; }
inline constexpr int ctc_most_chunk = 8;

// Where a lattice keeps the columns at the heads of segments alone: see ctc_segments_gpu.h.
struct CtcSegments {
  int32_t frames = 0;  // of a segment: whole chunks
  int32_t chunks = 0;
  int32_t count = 0;  // of one direction, at most
  int32_t span = 0;   // segments per launch
  int32_t spans = 0;  // of one direction, at most
  int32_t ring = 0;   // columns: a power of two
};

struct CtcSoftmax {
  float top, sum;  // the row's largest logit, and the sum of exp(x - top)
};
struct CtcEmission {
  float blank;     // exp(x - best): NaN if the row holds NaN or +inf where it counts
  float best;      // the largest logit among the blank's and the sequence's labels'
  float log_best;  // its log probability
  float unused;
};
struct CtcPosterior {
  float blank;       // sum over the blanks, normalised
  float normaliser;  // times a label's stored posterior
};
struct CtcPartial {
  float blank, all;  // a warp's sums of posteriors
};
// The nearest states of a warp, before each frame of a chunk, for the next warp.
struct CtcSeam {
  float b[ctc_most_chunk], l[ctc_most_chunk];
  int exponent, top;
};

// Where `fast` has stages for several walkers.
bool ctc_without_stages_accepts(const Context& context, const void* args);

enum class CtcState : int32_t { fine, log_space, no_gradient };

// Whose parts of the scratch memory there are.
enum class CtcGpuParts : uint8_t { all, log_space };

// Scratch memory: sizes from the capacities, pointers once placed.
struct CtcGpuWorkspace {
  // Both variants.
  CtcSoftmax* softmax = nullptr;  // [rows]
  int32_t* order = nullptr;       // [N, L]: label positions by class
  int32_t* piece_begin =
      nullptr;  // [N, L + 1] into order: at most ctc_piece positions of one class
  int32_t* piece_class = nullptr;  // [N, L]
  int32_t* pieces = nullptr;       // [N]
  double* checkpoints = nullptr;   // [N, columns_per_sequence, S]: see ctc_log_space.h
  double* corrected = nullptr;     // [N, L + 1]
  // fast
  CtcState* state = nullptr;          // [N]
  CtcEmission* emission = nullptr;    // [rows]
  float* label_emission = nullptr;    // [rows, emission_stride]; then posteriors; 0 at the end
  float* columns = nullptr;           // [rows, column_words]; not in segments
  CtcPartial* partial = nullptr;      // [rows, all_warps]
  CtcPosterior* posterior = nullptr;  // [rows]
  // fast, in segments; 2: alpha, beta
  float* heads = nullptr;  // [N, 2, heads_per_direction, column_words]
  float* ring = nullptr;   // [N, 2, segments.ring, column_words]
  CtcSeam* seams[2] = {};  // of both halves: [N, 2, strips - 1, seam_chunks]
  // fast, two blocks with stages
  CtcSeam* border = nullptr;            // of either half: [N, 2, border_chunks]
  int32_t* z_exponent = nullptr;        // [N]
  size_t bytes = 0, lattice_bytes = 0;  // of all; of the columns alone

  int64_t states = 0, emission_stride = 0, column_words = 0;
  int64_t columns_per_sequence = 0;                    // of `checkpoints`
  int32_t max_labels = 0, block = 0, block_count = 0;  // frames per checkpoint, checkpoints
  CtcTiling tiling = {};
  int32_t all_warps = 0;  // of one direction
  bool in_segments = false;
  CtcSegments segments = {};
  int64_t heads_per_direction = 0, seam_chunks = 0, border_chunks = 0;

  // in_segments: labels that one block does not hold, or a gradient whose lattice would take more
  // than `lattice_limit` bytes.
  CtcGpuWorkspace(const PackedCapacity& capacity, int32_t max_label_length, bool with_grad,
                  size_t lattice_limit, CtcGpuParts parts = CtcGpuParts::all);

  // `memory` is 64-aligned and holds `bytes`; null: measures.
  void place(std::byte* memory);

 private:
  void size_segments(int32_t frames);

  int64_t rows_, sequences_;
  bool with_grad_;
  CtcGpuParts parts_;
};

inline constexpr int32_t ctc_piece = 16;
// Words at the end of a row of emissions that no label has.
inline constexpr int32_t ctc_emission_end = 4;

}  // namespace rondo
