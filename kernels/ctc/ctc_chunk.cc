#include "kernels/ctc/ctc_chunk.h"

#include "kernels/ctc/ctc_chunk_impl.h"
#include "kernels/ctc/ctc_gpu.h"
#include "kernels/ctc/ctc_impl.h"

namespace rondo {
namespace {

void check_border(const TensorView& border, const CtcChunk& a, const char* name, bool required) {
  if (!border) {
    RONDO_CHECK(!required, "ctc_chunk: ", name, " is absent");
    return;
  }
  const int64_t width = ctc_border_width(a.max_label_length);
  RONDO_CHECK(border.dtype == DType::f64 && border.rank == 2 &&
                  border.dim(0) == a.layout.capacity.sequences && border.dim(1) == width,
              "ctc_chunk: ", name, " is ", name_of(border.dtype), " of ", border.numel(),
              " elements, expected f64 [", a.layout.capacity.sequences, ", ", width, "]");
}

void check_chunk(const CtcChunk& a) {
  RONDO_CHECK(is_floating(a.logits.dtype) && a.logits.rank == 2 &&
                  a.logits.dim(0) == a.layout.capacity.rows,
              "ctc_chunk: logits of ", a.logits.numel(), " elements for ", a.layout.capacity.rows,
              " rows");
  RONDO_CHECK(a.blank >= 0 && a.blank < a.logits.dim(1), "ctc_chunk: blank ", a.blank, " of ",
              a.logits.dim(1), " classes");
  RONDO_CHECK(a.total_frames != nullptr, "ctc_chunk: total_frames are absent");
  check_border(a.alpha_in, a, "alpha_in", false);
}

// What only the tables tell, which GPUs have in their own memory.
void check_tables(const CtcChunk& a) {
  RONDO_CHECK(a.layout.capacity.sequences == 0 || a.label_offsets != nullptr,
              "ctc_chunk: label_offsets are absent");
  check_ctc_labels({}, a.layout, a.labels, a.label_offsets, a.max_label_length, a.logits.dim(1),
                   a.blank);
  bool begins_left = false;
  for (int32_t n = 0; n < a.layout.extent->sequences; ++n) {
    begins_left = begins_left || (a.layout.first_frame[n] > 0 && a.layout.lengths[n] > 0);
  }
  check_border(a.alpha_in, a, "alpha_in", begins_left);
}

void clear(double* border, int32_t max_label_length) {
  if (border) std::fill_n(border, ctc_border_width(max_label_length), 0.0);
}
void copy(const double* from, double* to, int32_t max_label_length) {
  if (to) std::copy_n(from, ctc_border_width(max_label_length), to);
}

}  // namespace

int64_t ctc_border_width(int32_t max_label_length) {
  return ctc_border_header +
         (int64_t{max_label_length} / ctc_tile + 1) * int64_t{ctc_wide_column_tile};
}

void check_ctc_chunk_shapes(const CtcChunkAlphaArgs& a) {
  check_chunk(a);
  check_border(a.alpha_out, a, "alpha_out", true);
}

void check_ctc_chunk_shapes(const CtcChunkGradArgs& a) {
  check_chunk(a);
  check_border(a.beta_in, a, "beta_in", false);
  check_border(a.beta_out, a, "beta_out", false);
  RONDO_CHECK(a.layout.capacity.rows == 0 ||
                  (a.grad && a.grad.dtype == a.logits.dtype && a.grad.numel() == a.logits.numel()),
              "ctc_chunk: grad is not like logits");
}

void check_ctc_chunk(const CtcChunkAlphaArgs& a) {
  check_ctc_chunk_shapes(a);
  check_tables(a);
}

void check_ctc_chunk(const CtcChunkGradArgs& a) {
  check_ctc_chunk_shapes(a);
  check_tables(a);
  bool goes_on = false;
  for (int32_t n = 0; n < a.layout.extent->sequences; ++n) {
    goes_on = goes_on || CtcChunkPart(a, n).goes_on;
  }
  check_border(a.beta_in, a, "beta_in", goes_on);
}

bool ctc_pass_on_alpha(const CtcChunkAlphaArgs& a, const CtcChunkPart& part, int32_t n) {
  if (part.feasible && part.frames > 0) return false;
  double* out = ctc_border(a.alpha_out, n);
  if (part.feasible && part.begins_left && part.goes_on) {
    copy(ctc_border(a.alpha_in, n), out, a.max_label_length);
  } else {
    clear(out, a.max_label_length);
  }
  return true;
}

bool ctc_pass_on_beta(const CtcChunkGradArgs& a, const CtcChunkPart& part, int32_t n) {
  if (part.feasible && part.frames > 0) return false;
  const double* in = ctc_border(a.beta_in, n);
  double* out = ctc_border(a.beta_out, n);
  double loss = 0;
  if (part.feasible && part.goes_on) {
    loss = ctc_loss_of(ctc_read_header(in), a.zero_infinity);
    copy(in, out, a.max_label_length);
  } else {
    const bool counts = part.frames > 0 || part.goes_on || part.whole_is_empty;
    if (!part.feasible && counts) loss = ctc_infeasible_loss(a, n);
    clear(out, a.max_label_length);
  }
  ctc_set_loss(a.loss, n, loss);
  return true;
}

size_t ctc_chunk_workspace_bytes(const Context& context, const PackedCapacity& capacity,
                                 DType dtype, int64_t classes, int32_t max_label_length) {
  switch (context.backend) {
    case Backend::ref:
      return 0;
    case Backend::cpu:
      return ctc_chunk_cpu_workspace_bytes(context, capacity, dtype, classes, max_label_length);
    default:
      return CtcGpuWorkspace(capacity, max_label_length, true, ctc_lattice_limit,
                             CtcGpuParts::log_space)
          .bytes;
  }
}

void ctc_clear_spare_losses(const CtcChunkGradArgs& a) {
  for (int32_t n = a.layout.extent->sequences; n < a.layout.capacity.sequences; ++n) {
    ctc_set_loss(a.loss, n, 0);
  }
}

}  // namespace rondo
