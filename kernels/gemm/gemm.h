// Matrix products: c = alpha * op(a) op(b) + beta * c, plus bias.
//
// Shapes: op(a) [m, k], op(b) [k, n], c [m, n], row-major with leading dimensions (in elements).
//   a is [m, k] (or [k, m] when transpose_a), b is [k, n] (or [n, k] when transpose_b).
//   bias [n], f32 (f64 for f64 inputs) or absent, added to each row after beta * c.
// m may be limited by `*row_count` in device memory (rows of c; with transpose_a, where rows are
// the contracted dimension, k is limited instead): rows past it are neither read nor written,
// or with `spare_rows` not read for a result: then those of c may be written, and where rows are
// contracted those of a and b may be set to zero. (Packed batches keep nothing there, and libraries
// that cannot see the count compute all rows.)
// batch: that many products of one shape; a, b and c of each lie `*_stride` elements after those of
//   the one before (any sign; 0: the same a or b), its row count `row_count_stride` numbers.
//   Results do not overlap. All add the same bias.
// dtypes: a, b f32, bf16 or f64 (the same); c f32 or bf16 for bf16 inputs, else the input's.
//   Accumulation in f32 (f64 for f64; double in ref).
// packed_b: where b does not change, batch is 1 and its rows are not limited, the CPU variants keep
//   it packed there, and read b itself no more. The other variants ignore it.
// int8: operands are rounded to 8 bits, by rows of op(a) and columns of op(b), and results have the
//   same bits in every variant (kernels/gemm/int8.h). `ref` and CPUs have it for f32, a as it is,
//   alpha 1, beta 0, batch 1, and k up to int8_most_k.
// beta == 0 never reads c; alpha == 0 or k == 0 reads neither a nor b.
// Aliasing: c aliases nothing.
// Determinism: bitwise, for any thread count: threads split m and n, never k. In all variants but
//   `cublaslt` a row of c also has the same bits whatever other rows are computed
//   with it, so that results do not depend on how utterances are batched or cut into chunks.
//
// Algorithm: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).
//
// `cublaslt` is NVIDIA's library, found when the program runs (kernels/gemm/cublaslt_library.h).
#pragma once

#include <iosfwd>
#include <string>

#include "kernels/base/op.h"

namespace rondo {

class PackedWeights;  // kernels/base/cpu/packed_weights.h

struct GemmArgs {
  static constexpr const char* op = "gemm";
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  int64_t lda = 0, ldb = 0, ldc = 0;
  DType dtype = DType::f32;  // of a and b
  DType c_dtype = DType::f32;
  float alpha = 1, beta = 0;
  TensorView bias;
  const int32_t* row_count = nullptr;
  int64_t batch = 1;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0, row_count_stride = 0;
  bool spare_rows = false;
  bool int8 = false;
  PackedWeights* packed_b = nullptr;
  TensorView workspace;  // u8, at least gemm_workspace_bytes()
};

// Enough for every variant of context.backend; depends on the shape, transposes, dtypes and
// context.pool's size alone (the pointers and the workspace may still be absent).
size_t gemm_workspace_bytes(const Context& context, const GemmArgs& args);

std::span<const Variant> gemm_variants();

// What people are told: the library behind `cublaslt`, or why there is none.
std::string gemm_library();

}  // namespace rondo
