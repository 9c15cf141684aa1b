#include "kernels/gemm/gemm_impl.h"

namespace rondo {
namespace {

template <class T, class C>
void product(const GemmArgs& g, const GemmExtent& e) {
  const T* a = static_cast<const T*>(g.a);
  const T* b = static_cast<const T*>(g.b);
  C* c = static_cast<C*>(g.c);
  const int64_t a_row = g.transpose_a ? 1 : g.lda, a_col = g.transpose_a ? g.lda : 1;
  const int64_t b_row = g.transpose_b ? 1 : g.ldb, b_col = g.transpose_b ? g.ldb : 1;
  const int64_t k = g.alpha == 0 ? 0 : e.k;
  for (int64_t i = 0; i < e.m; ++i) {
    for (int64_t j = 0; j < e.n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += static_cast<double>(a[i * a_row + p * a_col]) *
               static_cast<double>(b[p * b_row + j * b_col]);
      }
      double value = static_cast<double>(g.alpha) * sum;
      if (g.beta != 0) value += static_cast<double>(g.beta) * static_cast<double>(c[i * g.ldc + j]);
      if (g.bias) {
        value += g.bias.dtype == DType::f64 ? g.bias.as<double>()[j]
                                            : static_cast<double>(g.bias.as<float>()[j]);
      }
      c[i * g.ldc + j] = static_cast<C>(value);
    }
  }
}

}  // namespace

void gemm_ref(const Context&, const GemmArgs& args) {
  if (args.int8) return gemm_int8_ref(args);
  gemm_each(args, [](const GemmArgs& one) {
    const GemmExtent e = gemm_extent(one);
    if (one.dtype == DType::bf16 && one.c_dtype == DType::f32) return product<bf16, float>(one, e);
    visit_floating(one.dtype, [&]<class T>(T) { product<T, T>(one, e); });
  });
}

}  // namespace rondo
