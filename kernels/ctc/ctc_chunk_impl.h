// The variants of the ctc_chunk ops, for their table alone, and what their files share.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/ctc/ctc_border.h"
#include "kernels/ctc/ctc_chunk.h"
#include "kernels/ctc/ctc_impl.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

// One sequence's part in a chunk.
struct CtcChunkPart {
  int32_t frames = 0;  // in this chunk
  bool has_first = false, has_last = false;
  bool feasible = false;                      // as a whole
  bool begins_left = false, goes_on = false;  // frames further left or right
  bool whole_is_empty = false;

  CtcChunkPart(const CtcChunk& a, int32_t n) {
    frames = a.layout.lengths[n];
    const int32_t begin = a.layout.first_frame[n], total = a.total_frames[n];
    RONDO_CHECK(begin >= 0 && frames >= 0 && begin <= total && frames <= total - begin,
                "ctc_chunk: sequence ", n, " has ", total, " frames, the chunk those from ", begin,
                " to ", begin + frames);
    begins_left = begin > 0;
    goes_on = begin + frames < total;
    has_first = frames > 0 && !begins_left;
    has_last = frames > 0 && !goes_on;
    whole_is_empty = total == 0;
    const std::span<const int32_t> labels(a.labels + a.label_offsets[n],
                                          a.labels + a.label_offsets[n + 1]);
    feasible = total > 0 && total >= ctc_min_frames(labels);
  }
};

// The workspace of the CPU variants (kernels/ctc/cpu).
size_t ctc_chunk_cpu_workspace_bytes(const Context& context, const PackedCapacity& capacity,
                                     DType dtype, int64_t classes, int32_t max_label_length);

// The loss of a sequence that no alignment can have whatever its logits.
inline double ctc_infeasible_loss(const CtcChunkGradArgs& a, int32_t n) {
  const bool nothing = a.total_frames[n] == 0 && a.label_offsets[n + 1] == a.label_offsets[n];
  return nothing || a.zero_infinity ? 0 : std::numeric_limits<double>::infinity();
}

inline double* ctc_border(const TensorView& border, int32_t n) {
  return border ? border.as<double>() + n * border.dim(1) : nullptr;
}

inline CtcBorderHeader ctc_read_header(const double* border) {
  CtcBorderHeader header;
  std::memcpy(static_cast<void*>(&header), border, sizeof header);
  return header;
}
inline void ctc_write_header(const CtcBorderHeader& header, double* border) {
  if (border) std::memcpy(border, &header, sizeof header);
}

inline double ctc_scale_of(const TensorView& scale, int32_t n) {
  if (!scale) return 1;
  return scale.dtype == DType::f64 ? scale.as<double>()[n]
                                   : static_cast<double>(scale.as<float>()[n]);
}
inline void ctc_set_loss(const TensorView& loss, int32_t n, double value) {
  if (!loss) return;
  if (loss.dtype == DType::f64) {
    loss.as<double>()[n] = value;
  } else {
    loss.as<float>()[n] = static_cast<float>(value);
  }
}

inline double ctc_loss_of(const CtcBorderHeader& header, bool zero_infinity) {
  if (header.kind == CtcBorderHeader::finite) return header.loss;
  if (header.kind == CtcBorderHeader::not_a_number) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return zero_infinity ? 0 : std::numeric_limits<double>::infinity();
}

// What needs no lattice: a sequence without frames here, or without any alignment. True if that is
// all; borders are then copied or cleared, and the loss is set.
bool ctc_pass_on_alpha(const CtcChunkAlphaArgs& args, const CtcChunkPart& part, int32_t n);
bool ctc_pass_on_beta(const CtcChunkGradArgs& args, const CtcChunkPart& part, int32_t n);
void ctc_clear_spare_losses(const CtcChunkGradArgs& args);

// All that a cpu can see, and what the host can see of a GPU's arguments.
void check_ctc_chunk(const CtcChunkAlphaArgs& args);
void check_ctc_chunk(const CtcChunkGradArgs& args);
void check_ctc_chunk_shapes(const CtcChunkAlphaArgs& args);
void check_ctc_chunk_shapes(const CtcChunkGradArgs& args);

void ctc_chunk_alpha_ref(const Context& context, const CtcChunkAlphaArgs& args);
void ctc_chunk_grad_ref(const Context& context, const CtcChunkGradArgs& args);
RONDO_DECLARE_GPU(ctc_chunk_alpha, CtcChunkAlphaArgs);
RONDO_DECLARE_GPU(ctc_chunk_grad, CtcChunkGradArgs);

// One sequence on a cpu: its tables and scratch, and its borders (columns, after the header).
struct CtcChunkSequence {
  CtcSequence s;
  bool has_first = false, has_last = false;
  const double* alpha_in = nullptr;
  double* alpha_out = nullptr;
  const double* beta_in = nullptr;
  double* beta_out = nullptr;
};

struct CtcChunkKernels {
  void (*rows)(const CtcSequence& s, DType dtype, int32_t begin, int32_t end, int32_t slot);
  // alpha to the right border; `header` is alpha's at the left border, then at the right one.
  void (*alpha)(CtcChunkSequence& c, DType dtype, CtcBorderHeader& header);
  // Posteriors, and beta to the left border. `header` is beta's; with has_last it is made here,
  // from `before`, alpha's at the left border. Posteriors are made when it ends as `finite`.
  void (*beta)(CtcChunkSequence& c, DType dtype, const CtcBorderHeader& before,
               CtcBorderHeader& header);
  void (*grad_rows)(const CtcSequence& s, DType dtype, int32_t begin, int32_t end);
};

#define RONDO_DECLARE(isa)                                                             \
  namespace isa {                                                                      \
  void ctc_chunk_alpha(CtcChunkSequence& c, DType dtype, CtcBorderHeader& header);     \
  void ctc_chunk_beta(CtcChunkSequence& c, DType dtype, const CtcBorderHeader& before, \
                      CtcBorderHeader& header);                                        \
  }
RONDO_DECLARE(isa_generic)
RONDO_DECLARE(isa_avx2)
RONDO_DECLARE(isa_avx512)
#undef RONDO_DECLARE

}  // namespace rondo
