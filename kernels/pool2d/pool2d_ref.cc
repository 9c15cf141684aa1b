#include <vector>

#include "kernels/pool2d/pool2d_impl.h"

namespace rondo {
namespace {

// f(row of y, its sequence, its frame) for every frame of y.
template <class F>
void for_frames(const PackedView& to, F f) {
  for (int64_t n = 0; n < to.extent->sequences; ++n) {
    for (int64_t t = 0; t < to.lengths[n]; ++t) f(to.row_offsets[t] + n, n, t);
  }
}

// The places in x, or dx, of a window's pixels, row by row.
std::vector<int64_t> window(const Pool2dDims& d, const PackedView& from, int64_t n, int64_t t,
                            int64_t g, int64_t c) {
  std::vector<int64_t> places;
  for (int64_t k = g * d.rows; k < (g + 1) * d.rows; ++k) {
    for (int64_t s = t * d.columns; s < (t + 1) * d.columns && s < from.lengths[n]; ++s) {
      places.push_back(((from.row_offsets[s] + n) * d.height + k) * d.channels + c);
    }
  }
  return places;
}

// Which of a window's pixels is the greatest; the first NaN where there is one.
template <class T>
int64_t greatest(const T* x, const std::vector<int64_t>& places) {
  int64_t best = places[0];
  for (int64_t p : places) {
    const auto value = static_cast<double>(x[p]);
    if (value != value) return p;
    if (value > static_cast<double>(x[best])) best = p;
  }
  return best;
}

}  // namespace

void pool2d_ref(const Context&, const Pool2dArgs& a) {
  check_pool2d(a);
  const Pool2dDims& d = a.dims;
  visit_floating(a.x.dtype, [&]<class T>(T) {
    const T* x = a.x.as<T>();
    for_frames(a.to, [&](int64_t row, int64_t n, int64_t t) {
      for (int64_t g = 0; g < d.out_height(); ++g) {
        for (int64_t c = 0; c < d.channels; ++c) {
          const std::vector<int64_t> places = window(d, a.from, n, t, g, c);
          T& y = a.y.as<T>()[(row * d.out_height() + g) * d.channels + c];
          if (a.pooling == Pooling2d::greatest) {
            y = x[greatest(x, places)];
            continue;
          }
          double sum = 0;
          for (int64_t p : places) sum += static_cast<double>(x[p]);
          y = static_cast<T>(sum / static_cast<double>(places.size()));
        }
      }
    });
  });
}

void pool2d_grad_ref(const Context&, const Pool2dGradArgs& a) {
  check_pool2d(a);
  const Pool2dDims& d = a.dims;
  const int64_t cols = d.height * d.channels;
  visit_floating(a.dx.dtype, [&]<class T>(T) {
    T* dx = a.dx.as<T>();
    for_frames(a.from, [&](int64_t row, int64_t, int64_t) {
      for (int64_t i = 0; i < cols; ++i) dx[row * cols + i] = T(0.0f);
    });
    for_frames(a.to, [&](int64_t row, int64_t n, int64_t t) {
      for (int64_t g = 0; g < d.out_height(); ++g) {
        for (int64_t c = 0; c < d.channels; ++c) {
          const std::vector<int64_t> places = window(d, a.from, n, t, g, c);
          const T dy = a.dy.as<T>()[(row * d.out_height() + g) * d.channels + c];
          if (a.pooling == Pooling2d::greatest) {
            const T* x = a.x.as<T>();
            const int64_t best = greatest(x, places);
            const auto value = static_cast<double>(x[best]);
            dx[value == value ? best : places[0]] = dy;
            continue;
          }
          const double share = 1 / static_cast<double>(places.size());
          for (int64_t p : places) dx[p] = static_cast<T>(static_cast<double>(dy) * share);
        }
      }
    });
  });
}

}  // namespace rondo
