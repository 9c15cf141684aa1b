#include "kernels/gemm/gemm.h"

#include "kernels/base/cpu.h"
#include "kernels/gemm/gemm_impl.h"

namespace rondo {

GemmExtent gemm_extent(const GemmArgs& a) {
  RONDO_CHECK(a.m >= 0 && a.n >= 0 && a.k >= 0, "gemm of ", a.m, "x", a.n, "x", a.k);
  RONDO_CHECK(is_floating(a.dtype), "gemm inputs are ", name_of(a.dtype));
  RONDO_CHECK(a.c_dtype == a.dtype || (a.dtype == DType::bf16 && a.c_dtype == DType::f32),
              "gemm of ", name_of(a.dtype), " into ", name_of(a.c_dtype));
  const int64_t a_cols = a.transpose_a ? a.m : a.k, b_cols = a.transpose_b ? a.k : a.n;
  RONDO_CHECK(a.lda >= a_cols && a.ldb >= b_cols && a.ldc >= a.n, "leading dimensions ", a.lda,
              ", ", a.ldb, ", ", a.ldc, " for rows of ", a_cols, ", ", b_cols, ", ", a.n);
  if (a.bias) {
    const DType want = a.dtype == DType::f64 ? DType::f64 : DType::f32;
    RONDO_CHECK(a.bias.dtype == want && a.bias.numel() == a.n, "bias is ", name_of(a.bias.dtype),
                "[", a.bias.numel(), "], expected ", name_of(want), "[", a.n, "]");
  }
  GemmExtent e{a.m, a.n, a.k};
  if (a.row_count) {
    int64_t& limited = a.transpose_a ? e.k : e.m;
    RONDO_CHECK(*a.row_count >= 0 && *a.row_count <= limited, "row count ", *a.row_count,
                ", capacity ", limited);
    limited = *a.row_count;
  }
  return e;
}

size_t gemm_workspace_bytes(const Context&, const GemmArgs&) { return 0; }

std::span<const Variant> gemm_variants() {
  static constexpr Variant variants[] = {
      variant<GemmArgs, gemm_ref>("ref", Backend::ref),
      variant<GemmArgs, gemm_openblas>("openblas", Backend::cpu, Role::standard,
                                       gemm_openblas_accepts),
  };
  return variants;
}

}  // namespace rondo
