// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/base/variants.h"
#include "kernels/norm/norm.h"

namespace rondo::RONDO_ISA {
namespace {

struct Moments {
  float mean, rstd;
};

template <class T>
Moments moments(const T* x, int64_t cols, float epsilon) {
  const float share = 1.0f / static_cast<float>(cols);
  vf sums{};
  for_vectors(cols, [&](int64_t i, auto part) { sums += part.get(x + i); });
  const float mean = sum(sums) * share;
  vf squares{};
  for_vectors(cols, [&](int64_t i, auto part) {
    const vf centred = part.keep(part.get(x + i) - mean);
    squares += centred * centred;
  });
  return {mean, 1.0f / __builtin_sqrtf(sum(squares) * share + epsilon)};
}

template <class T>
void forward(const Context& context, const LayerNormArgs& a) {
  const int64_t rows = covered_rows(a.x, a.row_count), cols = a.x.dim(1);
  const float* gamma = a.gamma.as<float>();
  const float* beta = a.beta.as<float>();
  float* means = a.mean.as<float>();
  float* rstds = a.rstd.as<float>();
  context.pool->for_range(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = static_cast<const T*>(a.x.data) + r * cols;
      T* y = static_cast<T*>(a.y.data) + r * cols;
      const Moments m = moments(x, cols, a.epsilon);
      if (means) means[r] = m.mean;
      if (rstds) rstds[r] = m.rstd;
      for_vectors(cols, [&](int64_t i, auto part) {
        const vf xhat = (part.get(x + i) - m.mean) * m.rstd;
        part.put(y + i, xhat * part.get(gamma + i) + part.get(beta + i));
      });
    }
  });
}

template <class T>
void input_grads(const Context& context, const LayerNormGradArgs& a, int64_t rows, int64_t cols) {
  const float* gamma = a.gamma.as<float>();
  const float share = 1.0f / static_cast<float>(cols);
  context.pool->for_range(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = static_cast<const T*>(a.x.data) + r * cols;
      const T* dy = static_cast<const T*>(a.dy.data) + r * cols;
      T* dx = static_cast<T*>(a.dx.data) + r * cols;
      const float mean = a.mean.as<float>()[r], rstd = a.rstd.as<float>()[r];
      vf sum_g{}, sum_gx{};
      for_vectors(cols, [&](int64_t i, auto part) {
        const vf g = part.get(dy + i) * part.get(gamma + i);
        sum_g += g;
        sum_gx += part.keep(g * ((part.get(x + i) - mean) * rstd));
      });
      const float mean_g = sum(sum_g) * share, mean_gx = sum(sum_gx) * share;
      for_vectors(cols, [&](int64_t i, auto part) {
        const vf g = part.get(dy + i) * part.get(gamma + i);
        const vf xhat = (part.get(x + i) - mean) * rstd;
        part.put(dx + i, rstd * (g - mean_g - xhat * mean_gx));
      });
    }
  });
}

void store_sums(float* out, const double* totals, int64_t columns, bool accumulate) {
  for (int64_t k = 0; k < columns; ++k) {
    out[k] = static_cast<float>((accumulate ? static_cast<double>(out[k]) : 0) + totals[k]);
  }
}

template <class T>
void weight_grads(const Context& context, const LayerNormGradArgs& a, int64_t rows, int64_t cols) {
  const T* x = static_cast<const T*>(a.x.data);
  const T* dy = static_cast<const T*>(a.dy.data);
  const float* mean = a.mean.as<float>();
  const float* rstd = a.rstd.as<float>();
  const int64_t tiles = (cols + sum_columns - 1) / sum_columns;
  context.pool->for_range(tiles, row_grain(rows * sum_columns), [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * sum_columns;
      const int64_t columns = cols - first < sum_columns ? cols - first : sum_columns;
      double totals[sum_columns];
      sum_tile(rows, columns, totals, [&](int64_t r, int64_t k, auto part) {
        const int64_t at = r * cols + first + k;
        return part.get(dy + at) * ((part.get(x + at) - mean[r]) * rstd[r]);
      });
      store_sums(a.dgamma.as<float>() + first, totals, columns, a.accumulate);
      sum_tile(rows, columns, totals, [&](int64_t r, int64_t k, auto part) {
        return part.get(dy + r * cols + first + k);
      });
      store_sums(a.dbeta.as<float>() + first, totals, columns, a.accumulate);
    }
  });
}

template <class T>
void backward(const Context& context, const LayerNormGradArgs& a) {
  const int64_t rows = covered_rows(a.x, a.row_count), cols = a.x.dim(1);
  // Before dx, which may alias dy.
  if (a.dgamma) weight_grads<T>(context, a, rows, cols);
  if (a.dx) input_grads<T>(context, a, rows, cols);
}

}  // namespace

void layer_norm_cpu(const Context& context, const LayerNormArgs& a) {
  if (a.x.dtype == DType::f32) return forward<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16);
  forward<uint16_t>(context, a);
}

void layer_norm_grad_cpu(const Context& context, const LayerNormGradArgs& a) {
  if (a.x.dtype == DType::f32) return backward<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16);
  backward<uint16_t>(context, a);
}

}  // namespace rondo::RONDO_ISA
