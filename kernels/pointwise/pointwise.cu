// Element-wise maps: one thread per element, in a grid-stride loop. Bound by memory; row_count is
// read by every thread, because only the device knows it.
#include "kernels/pointwise/pointwise_impl.h"
#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int block_threads = 256;
constexpr int64_t most_blocks = 1024;

__device__ float apply(PointwiseFunction f, float x, float z) {
  switch (f) {
    case PointwiseFunction::copy:
      return x;
    case PointwiseFunction::relu:
      return x <= 0.0f ? 0.0f : x;  // NaN stays
    case PointwiseFunction::tanh:
      return tanhf(x);
    case PointwiseFunction::sigmoid:
      return 1.0f / (1.0f + expf(-x));
    case PointwiseFunction::add:
    case PointwiseFunction::bias:
      return x + z;
  }
  return x;
}

__device__ float apply_grad(PointwiseFunction f, float y, float dy) {
  switch (f) {
    case PointwiseFunction::relu:
      return y > 0.0f ? dy : 0.0f;
    case PointwiseFunction::tanh:
      return dy * (1.0f - y * y);
    case PointwiseFunction::sigmoid:
      return dy * (y * (1.0f - y));
    default:
      return dy;
  }
}

// z is read at [i] (add) or [i % cols] (bias, with its own type Z); null otherwise.
template <class T, class Z>
__global__ void forward(PointwiseFunction f, T* y, const T* x, const Z* z, int64_t rows,
                        int64_t cols, const int32_t* row_count) {
  const int64_t n = (row_count ? *row_count : rows) * cols;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    const int64_t at = f == PointwiseFunction::bias ? i % cols : i;
    y[i] = to<T>(apply(f, to_float(x[i]), z ? to_float(z[at]) : 0.0f));
  }
}

template <class T>
__global__ void backward(PointwiseFunction f, T* dx, const T* y, const T* dy, int64_t rows,
                         int64_t cols, const int32_t* row_count) {
  const int64_t n = (row_count ? *row_count : rows) * cols;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    // copy needs no y, which may be absent
    dx[i] = to<T>(apply_grad(f, y ? to_float(y[i]) : 0.0f, to_float(dy[i])));
  }
}

LaunchConfig shape(const char* kernel, int64_t elements) {
  const auto blocks = std::min(most_blocks, (elements + block_threads - 1) / block_threads);
  return {.kernel = kernel, .grid = {static_cast<unsigned>(blocks)}, .block = {block_threads}};
}

template <class T>
void forward_as(const Context& context, const PointwiseArgs& a) {
  const LaunchConfig config = shape("pointwise", a.x.numel());
  const int64_t rows = a.x.dim(0), cols = a.x.dim(1);
  if (a.z && a.z.dtype == DType::f32) {
    launch(context, config, forward<T, float>, a.function, a.y.as<T>(), a.x.as<T>(),
           a.z.as<float>(), rows, cols, a.row_count);
  } else {
    launch(context, config, forward<T, T>, a.function, a.y.as<T>(), a.x.as<T>(), a.z.as<T>(), rows,
           cols, a.row_count);
  }
}

}  // namespace

void pointwise_gpu(const Context& context, const PointwiseArgs& a) {
  if (a.x.numel() == 0) return;
  if (a.x.dtype == DType::f32) return forward_as<float>(context, a);
  forward_as<bf16>(context, a);
}

void pointwise_grad_gpu(const Context& context, const PointwiseGradArgs& a) {
  if (a.dy.numel() == 0) return;
  const LaunchConfig config = shape("pointwise_grad", a.dy.numel());
  const int64_t rows = a.dy.dim(0), cols = a.dy.dim(1);
  if (a.dy.dtype == DType::f32) {
    launch(context, config, backward<float>, a.function, a.dx.as<float>(), a.y.as<float>(),
           a.dy.as<float>(), rows, cols, a.row_count);
  } else {
    launch(context, config, backward<bf16>, a.function, a.dx.as<bf16>(), a.y.as<bf16>(),
           a.dy.as<bf16>(), rows, cols, a.row_count);
  }
}

}  // namespace rondo::RONDO_GPU
