// The variants of pointwise, for its table alone.
#pragma once

#include "kernels/pointwise/pointwise.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

void pointwise_ref(const Context& context, const PointwiseArgs& args);
void pointwise_grad_ref(const Context& context, const PointwiseGradArgs& args);

#define RONDO_DECLARE(isa)                                                 \
  namespace isa {                                                          \
  void pointwise_cpu(const Context& context, const PointwiseArgs& args);   \
  void pointwise_grad_cpu(const Context& context, const PointwiseGradArgs& args); \
  }
RONDO_DECLARE(isa_generic)
RONDO_DECLARE(isa_avx2)
RONDO_DECLARE(isa_avx512)
#undef RONDO_DECLARE
RONDO_DECLARE_GPU(pointwise_gpu, PointwiseArgs);
RONDO_DECLARE_GPU(pointwise_grad_gpu, PointwiseGradArgs);

// GPUs take f32 and bf16.
inline bool pointwise_gpu_accepts(const Context&, const void* args) {
  return !args || static_cast<const PointwiseArgs*>(args)->x.dtype != DType::f64;
}
inline bool pointwise_grad_gpu_accepts(const Context&, const void* args) {
  return !args || static_cast<const PointwiseGradArgs*>(args)->dy.dtype != DType::f64;
}

// Rows the call covers: all of the view's, or what row_count says.
inline int64_t live_rows(const TensorView& view, const int32_t* row_count) {
  return row_count ? *row_count : view.dim(0);
}

}  // namespace rondo
