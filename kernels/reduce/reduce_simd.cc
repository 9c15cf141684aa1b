// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/base/variants.h"
#include "kernels/reduce/reduce.h"

namespace rondo::RONDO_ISA {
namespace {

typedef double vd __attribute__((vector_size(W * 4)));
typedef float vf_half __attribute__((vector_size(W * 2)));

// A flat array is cut into at most this many parts, whatever the number of threads; each part has
// one sum, and the sums are added in order.
constexpr int64_t most_parts = 64;

struct Parts {
  int64_t n, size, count;
  explicit Parts(int64_t n_) : n(n_), size((n_ + most_parts - 1) / most_parts) {
    size = (size + 1023) / 1024 * 1024;
    if (size < 8192) size = 8192;
    count = (n + size - 1) / size;
  }
  int64_t begin(int64_t i) const { return i * size; }
  int64_t length(int64_t i) const { return begin(i) + size < n ? size : n - begin(i); }
};

vd low_half(vf v) {
  vf_half h;
  for (int i = 0; i < W / 2; ++i) h[i] = v[i];
  return __builtin_convertvector(h, vd);
}
vd high_half(vf v) {
  vf_half h;
  for (int i = 0; i < W / 2; ++i) h[i] = v[W / 2 + i];
  return __builtin_convertvector(h, vd);
}

template <class T>
double squares(const T* x, int64_t n) {
  vd low{}, high{};
  for_vectors(n, [&](int64_t i, auto part) {
    const vf v = part.get(x + i);
    const vd a = low_half(v), b = high_half(v);
    low += a * a;
    high += b * b;
  });
  const vd both = low + high;
  double total = 0;
  for (int i = 0; i < W / 2; ++i) total += both[i];
  return total;
}

template <class T>
int64_t nonfinite(const T* x, int64_t n) {
  vi count{};
  for_vectors(n, [&](int64_t i, auto part) {
    const vi exponent = bits_of(part.get(x + i)) & 0x7f800000;
    count -= exponent == 0x7f800000;  // a true lane is -1
  });
  int64_t total = 0;
  for (int i = 0; i < W; ++i) total += count[i];
  return total;
}

// body(part) -> Sum over all parts, added in order.
template <class Sum, class F>
Sum over_parts(const Context& context, const Parts& parts, F body) {
  Sum partial[most_parts] = {};
  context.pool->for_range(parts.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) partial[i] = body(parts.begin(i), parts.length(i));
  });
  Sum total = 0;
  for (Sum p : partial) total += p;
  return total;
}

template <class T>
void rows(const Context& context, const ReduceRowsArgs& a) {
  const int64_t count = covered_rows(a.x, a.row_count), cols = a.x.dim(1);
  const T* x = static_cast<const T*>(a.x.data);
  float* y = a.y.as<float>();
  const int64_t tiles = (cols + sum_columns - 1) / sum_columns;
  const int64_t grain = count * sum_columns < 16384 ? 16384 / (count * sum_columns + 1) + 1 : 1;
  context.pool->for_range(tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * sum_columns;
      const int64_t columns = cols - first < sum_columns ? cols - first : sum_columns;
      double totals[sum_columns];
      sum_tile(count, columns, totals,
               [&](int64_t r, int64_t k, auto part) { return part.get(x + r * cols + first + k); });
      for (int64_t k = 0; k < columns; ++k) {
        const double before = a.accumulate ? static_cast<double>(y[first + k]) : 0;
        y[first + k] = static_cast<float>(before + totals[k]);
      }
    }
  });
}

}  // namespace

void reduce_rows_cpu(const Context& context, const ReduceRowsArgs& a) {
  if (a.x.dtype == DType::f32) return rows<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16);
  rows<uint16_t>(context, a);
}

void sum_squares_cpu(const Context& context, const SumSquaresArgs& a) {
  RONDO_CHECK(a.x.dtype == DType::f32 || a.x.dtype == DType::bf16);
  const bool wide = a.x.dtype == DType::f32;
  const double sum =
      over_parts<double>(context, Parts(a.x.numel()), [&](int64_t begin, int64_t length) {
        return wide ? squares(static_cast<const float*>(a.x.data) + begin, length)
                    : squares(static_cast<const uint16_t*>(a.x.data) + begin, length);
      });
  if (a.out.dtype == DType::f64) {
    double* out = a.out.as<double>();
    *out = (a.accumulate ? *out : 0) + sum;
  } else {
    float* out = a.out.as<float>();
    *out = static_cast<float>((a.accumulate ? static_cast<double>(*out) : 0) + sum);
  }
}

void count_nonfinite_cpu(const Context& context, const CountNonfiniteArgs& a) {
  RONDO_CHECK(a.x.dtype == DType::f32 || a.x.dtype == DType::bf16);
  const bool wide = a.x.dtype == DType::f32;
  const int64_t count =
      over_parts<int64_t>(context, Parts(a.x.numel()), [&](int64_t begin, int64_t length) {
        return wide ? nonfinite(static_cast<const float*>(a.x.data) + begin, length)
                    : nonfinite(static_cast<const uint16_t*>(a.x.data) + begin, length);
      });
  int32_t* out = a.out.as<int32_t>();
  *out = (a.accumulate ? *out : 0) + static_cast<int32_t>(count);
}

}  // namespace rondo::RONDO_ISA
