// What the GPU variants of ctc share with their table; for kernels/ctc alone.
//
//   fast        alpha and beta meeting in the middle, in linear space in f32 with a power of two
//               per lane, in registers. Three launches: rows (softmax statistics, emissions,
//               labels grouped by class), lattice (a block per sequence), gradient (rows). A
//               sequence that leaves the range is left to log_space, in a fourth launch that
//               returns at once for the others; the host never waits.
//   log_space   log space in f64, one block per sequence, one frame after the other. Right for any
//               label length and any logits; some ten times slower.
#pragma once

#include "kernels/ctc/ctc.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_GPU(ctc_fast, CtcArgs);
RONDO_DECLARE_GPU(ctc_log_space, CtcArgs);

// cuDNN's, in builds that find its header: ctc_cudnn.cc. It wants the labels' lengths on the
// device.
void ctc_cudnn(const Context& context, const CtcArgs& args);
bool ctc_cudnn_accepts(const Context& context, const void* args);
namespace sim {
void ctc_label_lengths(const Context& context, const int32_t* offsets, int32_t count, int32_t* out);
}
namespace cuda {
void ctc_label_lengths(const Context& context, const int32_t* offsets, int32_t count, int32_t* out);
}

// Labels of a sequence that the fast lattice holds in the registers of one block.
inline constexpr int32_t ctc_fast_labels = 1023;

// GPUs take f32 and bf16.
inline bool ctc_log_space_accepts(const Context&, const void* args) {
  return !args || static_cast<const CtcArgs*>(args)->logits.dtype != DType::f64;
}
inline bool ctc_fast_accepts(const Context& context, const void* args) {
  return ctc_log_space_accepts(context, args) &&
         (!args || static_cast<const CtcArgs*>(args)->max_label_length <= ctc_fast_labels);
}

// How the states of a sequence lie in the lanes: `pairs` of a blank and the label after it per
// lane, `warps` of them in a row.
struct CtcTiling {
  int pairs, warps;
};
constexpr CtcTiling ctc_tiling(int32_t max_labels) {
  const int32_t pairs = max_labels + 1;
  if (pairs <= 32) return {1, 1};
  if (pairs <= 64) return {2, 1};
  return {4, (pairs + 127) / 128};
}

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

enum class CtcState : int32_t { fine, log_space, no_gradient };

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
  float* label_emission = nullptr;    // [rows, emission_stride]; then posteriors
  float* columns = nullptr;           // [rows, column_words]
  CtcPartial* partial = nullptr;      // [rows, warps]
  CtcPosterior* posterior = nullptr;  // [rows]
  size_t bytes = 0;

  int64_t states = 0, emission_stride = 0, column_words = 0;
  int64_t columns_per_sequence = 0;                    // of `checkpoints`
  int32_t max_labels = 0, block = 0, block_count = 0;  // frames per checkpoint, checkpoints
  CtcTiling tiling = {};

  CtcGpuWorkspace(const PackedCapacity& capacity, int32_t max_label_length, bool with_grad);

  // `memory` is 64-aligned and holds `bytes`; null: measures.
  void place(std::byte* memory);

 private:
  int64_t rows_, sequences_;
  bool with_grad_;
};

inline constexpr int32_t ctc_piece = 16;

}  // namespace rondo
