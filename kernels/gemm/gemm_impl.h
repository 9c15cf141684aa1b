// The variants of gemm and what they share, for its folder alone.
#pragma once

#include "kernels/gemm/gemm.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

// m, n, k of this call, after row_count.
struct GemmExtent {
  int64_t m, n, k;
};

// Checks what gemm.h says of the arguments that the host can see.
void check_gemm(const GemmArgs& args);
// The same, and reads row_count.
GemmExtent gemm_extent(const GemmArgs& args);

// The batch's i-th product, as one of its own.
GemmArgs gemm_of_batch(const GemmArgs& args, int64_t i);
// Calls f(product) for each of the batch.
template <class F>
void gemm_each(const GemmArgs& args, F f) {
  for (int64_t i = 0; i < args.batch; ++i) f(gemm_of_batch(args, i));
}

void gemm_ref(const Context& context, const GemmArgs& args);

bool gemm_f64_accepts(const Context& context, const void* args);
void gemm_f64(const Context& context, const GemmArgs& args);

struct Int8Kernel;  // kernels/gemm/int8.h
void gemm_int8(const Context& context, const GemmArgs& args, const Int8Kernel& kernel);
void gemm_int8_ref(const GemmArgs& args);
size_t gemm_int8_workspace(const GemmArgs& args, const Int8Kernel& kernel);

RONDO_DECLARE_GPU(gemm_gpu, GemmArgs);

// Sets the part of a [rows, cols] matrix (f32 or bf16) past `*count` rows, or columns, to zero.
struct GemmTailArgs {
  void* data;
  DType dtype;
  int64_t ld, rows, cols;
  const int32_t* count;
  bool of_rows;
};
RONDO_DECLARE_GPU(gemm_zero_tail, GemmTailArgs);

// c = results + beta * c + bias, rounded once; results [rows, cols] without gaps, c with ldc.
struct GemmBiasArgs {
  const float* results;
  bf16* c;
  int64_t ldc, rows, cols;
  float beta;
  const float* bias;
};
RONDO_DECLARE_GPU(gemm_add_bias, GemmBiasArgs);

bool gemm_cublaslt_accepts(const Context& context, const void* args);
void gemm_cublaslt(const Context& context, const GemmArgs& args);
size_t gemm_cublaslt_workspace(const GemmArgs& args);

// GPUs take f32 and bf16.
inline bool gemm_gpu_accepts(const Context&, const void* args) {
  const auto* g = static_cast<const GemmArgs*>(args);
  return !g || (g->dtype != DType::f64 && !g->int8);
}

}  // namespace rondo
