// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/cast/cast_impl.h"

namespace rondo::RONDO_ISA {
namespace {

// f(x, y) with typed pointers, for the four pairs of f32 and bf16.
template <class F>
void visit_pair(const TensorView& x, const TensorView& y, F f) {
  const bool from32 = x.dtype == DType::f32, to32 = y.dtype == DType::f32;
  RONDO_CHECK(from32 || x.dtype == DType::bf16);
  RONDO_CHECK(to32 || y.dtype == DType::bf16);
  const auto* x32 = static_cast<const float*>(x.data);
  const auto* x16 = static_cast<const uint16_t*>(x.data);
  auto* y32 = static_cast<float*>(y.data);
  auto* y16 = static_cast<uint16_t*>(y.data);
  if (from32 && to32) return f(x32, y32);
  if (from32) return f(x32, y16);
  if (to32) return f(x16, y32);
  f(x16, y16);
}

void cast_from_f64(const Context& context, const double* x, const TensorView& y, int64_t n) {
  context.pool->for_range(n, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto narrow = static_cast<float>(x[i]);
      if (y.dtype == DType::f64) {
        static_cast<double*>(y.data)[i] = x[i];
      } else if (y.dtype == DType::f32) {
        static_cast<float*>(y.data)[i] = narrow;
      } else {
        uint16_t rounded[W];
        store_bf16(rounded, broadcast(narrow));
        static_cast<uint16_t*>(y.data)[i] = rounded[0];
      }
    }
  });
}

void cast_to_f64(const Context& context, const TensorView& x, double* y, int64_t n) {
  context.pool->for_range(n, 16384, [&](int64_t begin, int64_t end) {
    if (x.dtype == DType::f32) {
      const auto* from = static_cast<const float*>(x.data);
      for (int64_t i = begin; i < end; ++i) y[i] = from[i];
    } else {
      const auto* from = static_cast<const uint16_t*>(x.data);
      for (int64_t i = begin; i < end; ++i) {
        y[i] = __builtin_bit_cast(float, static_cast<uint32_t>(from[i]) << 16);
      }
    }
  });
}

template <class T>
void fill_all(const Context& context, const TensorView& view, int64_t n, T value) {
  T* y = static_cast<T*>(view.data);
  context.pool->for_range(n, 65536, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = value;
  });
}

}  // namespace

void cast_cpu(const Context& context, const CastArgs& a) {
  const int64_t n = covered_elements(a.x, a.row_count);
  if (a.x.dtype == DType::f64) {
    return cast_from_f64(context, static_cast<const double*>(a.x.data), a.y, n);
  }
  if (a.y.dtype == DType::f64) {
    return cast_to_f64(context, a.x, static_cast<double*>(a.y.data), n);
  }
  visit_pair(a.x, a.y, [&](const auto* x, auto* y) {
    for_vectors_threaded(*context.pool, n,
                         [&](int64_t i, auto part) { part.put(y + i, part.get(x + i)); });
  });
}

void fill_cpu(const Context& context, const FillArgs& a) {
  const int64_t n = covered_elements(a.y, a.row_count);
  switch (a.y.dtype) {
    case DType::f32:
      return fill_all(context, a.y, n, static_cast<float>(a.value));
    case DType::bf16: {
      uint16_t rounded[W];
      store_bf16(rounded, broadcast(static_cast<float>(a.value)));
      return fill_all(context, a.y, n, rounded[0]);
    }
    case DType::f64:
      return fill_all(context, a.y, n, a.value);
    case DType::i32:
      return fill_all(context, a.y, n, static_cast<int32_t>(a.value));
    case DType::i64:
      return fill_all(context, a.y, n, static_cast<int64_t>(a.value));
    case DType::u8:
      return fill_all(context, a.y, n, static_cast<uint8_t>(a.value));
  }
}

void scale_cpu(const Context& context, const ScaleArgs& a) {
  visit_pair(a.x, a.y, [&](const auto* x, auto* y) {
    for_vectors_threaded(*context.pool, covered_elements(a.x, a.row_count),
                         [&](int64_t i, auto part) { part.put(y + i, part.get(x + i) * a.alpha); });
  });
}

void accumulate_cpu(const Context& context, const AccumulateArgs& a) {
  visit_pair(a.x, a.y, [&](const auto* x, auto* y) {
    for_vectors_threaded(*context.pool, covered_elements(a.x, a.row_count),
                         [&](int64_t i, auto part) {
                           part.put(y + i, part.get(y + i) + part.get(x + i) * a.alpha);
                         });
  });
}

}  // namespace rondo::RONDO_ISA
