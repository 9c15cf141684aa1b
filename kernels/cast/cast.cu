// Copies with a change of type or scale: flat arrays, vector by vector.
#include <cstring>

#include "kernels/base/check_view.h"
#include "kernels/cast/cast_impl.h"
#include "kernels/simt/memory_bound.h"

namespace rondo::RONDO_GPU {
namespace {

__device__ float narrow(double x) { return static_cast<float>(x); }
template <class T>
__device__ float narrow(T x) {
  return to_float(x);
}

// Flat arrays of rows * cols elements, of which the first *row_count rows count.
struct Extent {
  int64_t rows, cols;
  const int32_t* row_count;

  Extent(const TensorView& view, const int32_t* count)
      : rows(view.rank == 2 ? view.dim(0) : view.numel()),
        cols(view.rank == 2 ? view.dim(1) : 1),
        row_count(count) {}
  __device__ int64_t elements() const { return live_rows(rows, row_count) * cols; }
};

// y = alpha * x, and + y to accumulate.
enum class Linear : uint8_t { copy, scale, accumulate };

template <Linear kind, class Y, class X>
__global__ void linear(Y* y, const X* x, float alpha, Extent extent, bool vectors) {
  for_elements<wide<X, Y>>(extent.elements(), vectors, [&](int64_t i, auto chunk) {
    auto v = chunk.get(x + i);
    if constexpr (kind == Linear::scale) {
      for (int k = 0; k < chunk.n; ++k) v[k] *= alpha;
    }
    if constexpr (kind == Linear::accumulate) {
      const auto old = chunk.get(y + i);
      for (int k = 0; k < chunk.n; ++k) v[k] = old[k] + alpha * v[k];
    }
    chunk.put(y + i, v);
  });
}

// Where one side is f64.
template <class Y, class X>
__global__ void cast_double(Y* y, const X* x, Extent extent) {
  const int64_t n = extent.elements(), stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    if constexpr (std::is_same_v<X, Y>) {
      y[i] = x[i];
    } else if constexpr (std::is_same_v<Y, double>) {
      y[i] = static_cast<double>(to_float(x[i]));
    } else {
      y[i] = to<Y>(narrow(x[i]));
    }
  }
}

template <Linear kind, class Y, class X>
void linear_as(const Context& context, const char* name, const TensorView& y, const TensorView& x,
               float alpha, const int32_t* row_count) {
  constexpr int N = wide<X, Y>;
  X* from = x.as<X>();
  Y* to = y.as<Y>();
  launch(context, elements_launch(name, x.numel(), N), linear<kind, Y, X>, to, from, alpha,
         Extent(x, row_count), aligned<N>(from, to));
}

template <Linear kind>
void run_linear(const Context& context, const char* name, const TensorView& y, const TensorView& x,
                float alpha, const int32_t* row_count) {
  check_elements(name, "y", y, x.numel());
  if (x.numel() == 0) return;
  visit_narrow(x.dtype, [&]<class X>(X) {
    visit_narrow(y.dtype,
                 [&]<class Y>(Y) { linear_as<kind, Y, X>(context, name, y, x, alpha, row_count); });
  });
}

template <class Word>
__global__ void fill_words(Word* y, Word value, Extent extent) {
  const int64_t n = extent.elements(), stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) y[i] = value;
}

// The bits of `value` as the type of the view.
uint64_t bits_of(DType dtype, double value) {
  uint64_t bits = 0;
  const auto take = [&](auto typed) { std::memcpy(&bits, &typed, sizeof typed); };
  switch (dtype) {
    case DType::f32:
      take(static_cast<float>(value));
      break;
    case DType::bf16:
      take(rondo::bf16(value));
      break;
    case DType::f64:
      take(value);
      break;
    case DType::i32:
      take(static_cast<int32_t>(value));
      break;
    case DType::i64:
      take(static_cast<int64_t>(value));
      break;
    case DType::u8:
      take(static_cast<uint8_t>(value));
      break;
  }
  return bits;
}

template <class Word>
void fill_as(const Context& context, const FillArgs& a) {
  launch(context, elements_launch("fill", a.y.numel(), 1), fill_words<Word>,
         static_cast<Word*>(a.y.data), static_cast<Word>(bits_of(a.y.dtype, a.value)),
         Extent(a.y, a.row_count));
}

}  // namespace

void cast_gpu(const Context& context, const CastArgs& a) {
  check_elements("cast", "y", a.y, a.x.numel());
  if (a.x.numel() == 0) return;
  if (a.x.dtype != DType::f64 && a.y.dtype != DType::f64) {
    return run_linear<Linear::copy>(context, "cast", a.y, a.x, 1, a.row_count);
  }
  visit_floating(a.x.dtype, [&]<class X>(X) {
    visit_floating(a.y.dtype, [&]<class Y>(Y) {
      if constexpr (std::is_same_v<X, double> || std::is_same_v<Y, double>) {
        launch(context, elements_launch("cast", a.x.numel(), 1), cast_double<Y, X>, a.y.as<Y>(),
               a.x.as<X>(), Extent(a.x, a.row_count));
      }
    });
  });
}

void scale_gpu(const Context& context, const ScaleArgs& a) {
  run_linear<Linear::scale>(context, "scale", a.y, a.x, a.alpha, a.row_count);
}

void accumulate_gpu(const Context& context, const AccumulateArgs& a) {
  run_linear<Linear::accumulate>(context, "accumulate", a.y, a.x, a.alpha, a.row_count);
}

void fill_gpu(const Context& context, const FillArgs& a) {
  if (a.y.numel() == 0) return;
  switch (size_of(a.y.dtype)) {
    case 1:
      return fill_as<uint8_t>(context, a);
    case 2:
      return fill_as<uint16_t>(context, a);
    case 4:
      return fill_as<uint32_t>(context, a);
    default:
      return fill_as<uint64_t>(context, a);
  }
}

}  // namespace rondo::RONDO_GPU
