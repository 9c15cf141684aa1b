// Compiled once per instruction set; see kernels/base/cpu/simd.h. Vectors lie along the channels of
// a pixel.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/pool2d/pool2d_impl.h"

namespace rondo::RONDO_ISA {
namespace {

constexpr int most_columns = 64;  // of a window: pool2d.h

// f(to, first) for every window of row `r` of the result: its result's pixel begins at `to`, its
// own pixel of row k and frame s at first[s] + k * channels.
template <class F>
void for_windows(const Pool2dDims& d, const PackedView& from, const Pool2dFrames& frames, int64_t r,
                 F f) {
  int64_t first[most_columns];
  for (int64_t g = 0; g < d.out_height(); ++g) {
    for (int64_t s = 0; s < frames.count; ++s) {
      const int64_t row = from.row_offsets[frames.first + s] + frames.n;
      first[s] = (row * d.height + g * d.rows) * d.channels;
    }
    f((r * d.out_height() + g) * d.channels, static_cast<const int64_t*>(first));
  }
}

template <class T, class Part>
vf greatest_of(const Pool2dDims& d, const Pool2dFrames& frames, const T* x, const int64_t* first,
               int64_t c, Part part) {
  vf best = part.get(x + first[0] + c);
  for (int32_t k = 0; k < d.rows; ++k) {
    for (int64_t s = 0; s < frames.count; ++s) {
      const vf value = part.get(x + first[s] + k * d.channels + c);
      best = select((value > best) | (value != value), value, best);
    }
  }
  return best;
}

template <class T>
void forward(const Context& context, const Pool2dArgs& a) {
  const Pool2dDims& d = a.dims;
  const T* x = static_cast<const T*>(a.x.data);
  T* y = static_cast<T*>(a.y.data);
  const auto row = [&](int64_t r) {
    const Pool2dFrames frames = pool2d_frames(a.from, a.to, d.columns, r);
    const vf share = broadcast(1.0f / static_cast<float>(frames.count * d.rows));
    for_windows(d, a.from, frames, r, [&](int64_t to, const int64_t* first) {
      for_vectors(d.channels, [&](int64_t c, auto part) {
        if (a.pooling == Pooling2d::greatest) {
          part.put(y + to + c, greatest_of(d, frames, x, first, c, part));
          return;
        }
        vf sum = {};
        for (int32_t k = 0; k < d.rows; ++k) {
          for (int64_t s = 0; s < frames.count; ++s)
            sum += part.get(x + first[s] + k * d.channels + c);
        }
        part.put(y + to + c, sum * share);
      });
    });
  };
  context.pool->for_range(a.to.extent->rows, row_grain(d.height * d.channels),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t r = begin; r < end; ++r) row(r);
                          });
}

// A window's part of dx, one vector of channels.
template <class T, class Part>
void spread(const Pool2dGradArgs& a, const Pool2dFrames& frames, const int64_t* first, int64_t c,
            vf dy, Part part) {
  const Pool2dDims& d = a.dims;
  const T* x = static_cast<const T*>(a.x.data);
  T* dx = static_cast<T*>(a.dx.data);
  vf best = {};
  if (a.pooling == Pooling2d::greatest) best = greatest_of(d, frames, x, first, c, part);
  vi open = broadcast_int(-1);  // where no pixel has had it
  for (int32_t k = 0; k < d.rows; ++k) {
    for (int64_t s = 0; s < frames.count; ++s) {
      const int64_t at = first[s] + k * d.channels + c;
      if (a.pooling == Pooling2d::mean) {
        part.put(dx + at, dy);
        continue;
      }
      const vf value = part.get(x + at);
      const vi hit = ((value == best) | (best != best)) & open;
      part.put(dx + at, select(hit, dy, vf{}));
      open = open & ~hit;
    }
  }
}

template <class T>
void backward(const Context& context, const Pool2dGradArgs& a) {
  const Pool2dDims& d = a.dims;
  const T* dy = static_cast<const T*>(a.dy.data);
  T* dx = static_cast<T*>(a.dx.data);
  const int64_t kept = int64_t{d.out_height()} * d.rows * d.channels;
  const auto row = [&](int64_t r) {
    const Pool2dFrames frames = pool2d_frames(a.from, a.to, d.columns, r);
    const vf share = broadcast(
        a.pooling == Pooling2d::greatest ? 1.0f : 1.0f / static_cast<float>(frames.count * d.rows));
    for_windows(d, a.from, frames, r, [&](int64_t to, const int64_t* first) {
      for_vectors(d.channels, [&](int64_t c, auto part) {
        spread<T>(a, frames, first, c, part.get(dy + to + c) * share, part);
      });
    });
  };
  // What fills no window: the last rows of every frame, and the frames behind the last window.
  const auto rest = [&](int64_t r) {
    const int64_t t = a.from.row_frame[r], n = r - a.from.row_offsets[t];
    const bool dropped = t >= int64_t{a.to.lengths[n]} * d.columns;
    T* column = dx + r * d.height * d.channels;
    const int64_t first = dropped ? 0 : kept;
    for_vectors(d.height * d.channels - first,
                [&](int64_t i, auto part) { part.put(column + first + i, vf{}); });
  };
  context.pool->for_range(a.to.extent->rows, row_grain(d.height * d.channels),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t r = begin; r < end; ++r) row(r);
                          });
  context.pool->for_range(a.from.extent->rows, row_grain(d.height * d.channels),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t r = begin; r < end; ++r) rest(r);
                          });
}

}  // namespace

void pool2d_cpu(const Context& context, const Pool2dArgs& a) {
  check_pool2d(a);
  if (a.x.dtype == DType::f32) return forward<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16);
  forward<uint16_t>(context, a);
}

void pool2d_grad_cpu(const Context& context, const Pool2dGradArgs& a) {
  check_pool2d(a);
  if (a.dx.dtype == DType::f32) return backward<float>(context, a);
  RONDO_CHECK(a.dx.dtype == DType::bf16);
  backward<uint16_t>(context, a);
}

}  // namespace rondo::RONDO_ISA
