// Pooling over images on GPUs: a thread per value of the result, which goes through its window
// twice for the gradient.
#include "kernels/pool2d/pool2d_impl.h"
#include "kernels/simt/memory_bound.h"

namespace rondo::RONDO_GPU {
namespace {

// A window of one channel.
struct Window {
  Pool2dDims d;
  PackedView from;
  Pool2dFrames frames;
  int64_t g, c;

  __device__ int64_t place(int64_t k, int64_t s) const {
    const int64_t row = from.row_offsets[frames.first + s] + frames.n;
    return (row * d.height + g * d.rows + k) * d.channels + c;
  }
  // f(place), row by row.
  template <class F>
  __device__ void each(F f) const {
    for (int64_t k = 0; k < d.rows; ++k) {
      for (int64_t s = 0; s < frames.count; ++s) f(place(k, s));
    }
  }
  template <class T>
  __device__ float greatest(const T* x) const {
    float best = to_float(x[place(0, 0)]);
    each([&](int64_t p) {
      const float value = to_float(x[p]);
      if (value > best || value != value) best = value;
    });
    return best;
  }
};

__device__ inline Window window_of(const Pool2dDims& d, const PackedView& from,
                                   const PackedView& to, int64_t i) {
  const int64_t cols = int64_t{d.out_height()} * d.channels;
  return {d, from, pool2d_frames(from, to, d.columns, i / cols), i % cols / d.channels,
          i % d.channels};
}

template <class T>
__global__ void pool2d(Pooling2d pooling, Pool2dDims d, PackedView from, PackedView to, const T* x,
                       T* y) {
  for_elements<1>(to.extent->rows * int64_t{d.out_height()} * d.channels, true,
                  [&](int64_t i, auto) {
                    const Window w = window_of(d, from, to, i);
                    float value = 0;
                    if (pooling == Pooling2d::greatest) {
                      value = w.greatest(x);
                    } else {
                      w.each([&](int64_t p) { value += to_float(x[p]); });
                      value *= 1.0f / static_cast<float>(w.frames.count * d.rows);
                    }
                    y[i] = rondo::RONDO_GPU::to<T>(value);
                  });
}

template <class T>
__global__ void pool2d_grad(Pooling2d pooling, Pool2dDims d, PackedView from, PackedView to,
                            const T* x, const T* dy, T* dx) {
  for_elements<1>(to.extent->rows * int64_t{d.out_height()} * d.channels, true,
                  [&](int64_t i, auto) {
                    const Window w = window_of(d, from, to, i);
                    const float gradient = to_float(dy[i]);
                    if (pooling == Pooling2d::mean) {
                      const float share = 1.0f / static_cast<float>(w.frames.count * d.rows);
                      w.each([&](int64_t p) { dx[p] = rondo::RONDO_GPU::to<T>(gradient * share); });
                      return;
                    }
                    const float best = w.greatest(x);
                    bool open = true;
                    w.each([&](int64_t p) {
                      const bool hit = open && (to_float(x[p]) == best || best != best);
                      dx[p] = rondo::RONDO_GPU::to<T>(hit ? gradient : 0.0f);
                      if (hit) open = false;
                    });
                  });
}

// What fills no window: the last rows of every frame, and the frames behind the last window.
template <class T>
__global__ void pool2d_dropped(Pool2dDims d, PackedView from, PackedView to, T* dx) {
  const int64_t kept = int64_t{d.out_height()} * d.rows * d.channels;
  const int64_t cols = d.height * d.channels;
  for_elements<1>(from.extent->rows * cols, true, [&](int64_t i, auto) {
    const int64_t r = i / cols, t = from.row_frame[r], n = r - from.row_offsets[t];
    if (i % cols >= kept || t >= int64_t{to.lengths[n]} * d.columns)
      dx[i] = rondo::RONDO_GPU::to<T>(0.0f);
  });
}

}  // namespace

void pool2d_gpu(const Context& context, const Pool2dArgs& a) {
  check_pool2d(a);
  if (a.y.numel() == 0) return;
  visit_narrow(a.x.dtype, [&]<class T>(T) {
    launch(context, elements_launch("pool2d", a.y.numel(), 1), pool2d<T>, a.pooling, a.dims, a.from,
           a.to, static_cast<const T*>(a.x.as<T>()), a.y.as<T>());
  });
}

void pool2d_grad_gpu(const Context& context, const Pool2dGradArgs& a) {
  check_pool2d(a);
  if (a.dx.numel() == 0) return;
  visit_narrow(a.dx.dtype, [&]<class T>(T) {
    launch(context, elements_launch("pool2d_dropped", a.dx.numel(), 1), pool2d_dropped<T>, a.dims,
           a.from, a.to, a.dx.as<T>());
    if (a.dy.numel() == 0) return;
    launch(context, elements_launch("pool2d_grad", a.dy.numel(), 1), pool2d_grad<T>, a.pooling,
           a.dims, a.from, a.to, static_cast<const T*>(a.x.as<T>()),
           static_cast<const T*>(a.dy.as<T>()), a.dx.as<T>());
  });
}

}  // namespace rondo::RONDO_GPU
