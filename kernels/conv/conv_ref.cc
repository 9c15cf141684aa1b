#include <algorithm>
#include <array>
#include <vector>

#include "kernels/conv/conv_impl.h"
#include "kernels/gemm/int8_ref.h"

namespace rondo {
namespace {

// Frames of a batch, before its sequences and behind them; each may be absent.
using Frames = std::array<TensorView, 3>;

// f(y, part, x, w) for every product: that of element x of part `part` of `frames` with element w
// of the weights is a term of element y of the result. Written out here, so that it shares nothing
// with what it checks.
template <class F>
void for_products(const ConvDims& d, const PackedView& from, const PackedView& to,
                  const Frames& frames, F f) {
  const int64_t in = d.in / d.groups, out = d.out / d.groups, sequences = from.capacity.sequences;
  const auto in_frame = [&](int64_t n, int64_t s, int64_t g, int64_t o, int64_t y, int64_t l) {
    const int64_t length = from.lengths[n];
    const int part = s < 0 ? 1 : s < length ? 0 : 2;
    if (!frames[part]) return;
    const int64_t j = part == 1 ? s + frames[1].dim(0) : s - length;
    if (part != 0 && (j < 0 || j >= frames[part].dim(0))) return;
    const int64_t row = part == 0 ? from.row_offsets[s] + n : j * sequences + n;
    for (int64_t k = 0; k < d.height.kernel; ++k) {
      const int64_t h = g * d.height.stride + k * d.height.dilation - d.height.before;
      if (h < 0 || h >= d.in_height) continue;
      for (int64_t i = 0; i < in; ++i) {
        f(y, part, (row * d.in_height + h) * d.in + o / out * in + i,
          ((o * in + i) * d.height.kernel + k) * d.time.kernel + l);
      }
    }
  };
  for (int64_t n = 0; n < to.extent->sequences; ++n) {
    for (int64_t t = 0; t < to.lengths[n]; ++t) {
      for (int64_t p = 0; p < d.out_cols(); ++p) {
        for (int64_t l = 0; l < d.time.kernel; ++l) {
          in_frame(n, t * d.time.stride + l * d.time.dilation - d.time.before, p / d.out, p % d.out,
                   (to.row_offsets[t] + n) * d.out_cols() + p, l);
        }
      }
    }
  }
}

// Sums in double, that `to` gets at last.
template <class T>
class Sums {
 public:
  Sums(const TensorView& to, int64_t count, bool accumulate = false)
      : to_(to ? to.as<T>() : nullptr), sums_(to ? static_cast<size_t>(count) : 0) {
    for (size_t i = 0; accumulate && i < sums_.size(); ++i) sums_[i] = static_cast<double>(to_[i]);
  }
  double& operator[](int64_t i) { return sums_[static_cast<size_t>(i)]; }
  explicit operator bool() const { return to_ != nullptr; }
  void store() const {
    for (size_t i = 0; i < sums_.size(); ++i) to_[i] = static_cast<T>(sums_[i]);
  }

 private:
  T* to_;
  std::vector<double> sums_;
};

template <class T>
double product(const TensorView& a, int64_t i, const TensorView& b, int64_t j) {
  return static_cast<double>(a.as<T>()[i]) * static_cast<double>(b.as<T>()[j]);
}

// With operands of 8 bits. What of a window lies outside the sequence is zero, and changes neither
// its scale nor a sum.
void compute_int8(const ConvArgs& a) {
  const Frames frames = {a.x, a.before, a.after};
  const int64_t cols = a.dims.weight_cols(), out = a.dims.out;
  struct Window {
    std::vector<float> values;
    std::vector<int64_t> places;  // of their weights, in a row of them
  };
  std::vector<Window> windows(static_cast<size_t>(a.to.extent->rows * out));
  for_products(a.dims, a.from, a.to, frames, [&](int64_t i, int part, int64_t x, int64_t w) {
    windows[static_cast<size_t>(i)].values.push_back(frames[part].as<float>()[x]);
    windows[static_cast<size_t>(i)].places.push_back(w % cols);
  });
  for (int64_t i = 0; i < a.to.extent->rows * out; ++i) {
    const Window& window = windows[static_cast<size_t>(i)];
    const Int8Row x(window.values.data(), static_cast<int64_t>(window.values.size()));
    const Int8Row w(a.w.as<float>() + i % out * cols, cols);
    int32_t sum = 0;
    for (size_t j = 0; j < x.values.size(); ++j)
      sum += x.values[j] * w.values[static_cast<size_t>(window.places[j])];
    const float scale = x.scale * w.scale;
    float value = static_cast<float>(sum) * scale;
    if (a.bias) value += a.bias.as<float>()[i % out];
    a.y.as<float>()[i] = value;
  }
}

template <class T, class Weight>
void compute(const ConvArgs& a) {
  if (a.dims.int8) return compute_int8(a);
  const Frames frames = {a.x, a.before, a.after};
  Sums<T> y(a.y, a.to.extent->rows * a.dims.out_cols());
  for (int64_t i = 0; a.bias && i < a.to.extent->rows * a.dims.out_cols(); ++i)
    y[i] = static_cast<double>(a.bias.as<Weight>()[i % a.dims.out]);
  for_products(a.dims, a.from, a.to, frames, [&](int64_t i, int part, int64_t x, int64_t w) {
    y[i] += product<T>(frames[part], x, a.w, w);
  });
  y.store();
}

template <class T, class Weight>
void compute(const ConvGradInputArgs& a) {
  const Frames frames = {a.dx, a.dbefore, a.dafter};
  Sums<T> sums[] = {{a.dx, a.from.extent->rows * a.dims.in_cols()},
                    {a.dbefore, a.dbefore ? a.dbefore.numel() : 0},
                    {a.dafter, a.dafter ? a.dafter.numel() : 0}};
  for_products(a.dims, a.from, a.to, frames, [&](int64_t y, int part, int64_t x, int64_t w) {
    sums[part][x] += product<T>(a.dy, y, a.w, w);
  });
  for (const Sums<T>& s : sums) s.store();
}

template <class T, class Weight>
void compute(const ConvGradWeightArgs& a) {
  const Frames frames = {a.x, a.before, a.after};
  Sums<Weight> dw(a.dw, a.dims.out * a.dims.weight_cols(), a.accumulate && a.dw);
  Sums<Weight> dbias(a.dbias, a.dims.out, a.accumulate && a.dbias);
  for_products(a.dims, a.from, a.to, frames, [&](int64_t y, int part, int64_t x, int64_t w) {
    if (dw) dw[w] += product<T>(a.dy, y, frames[part], x);
  });
  for (int64_t y = 0; dbias && y < a.to.extent->rows * a.dims.out_cols(); ++y)
    dbias[y % a.dims.out] += static_cast<double>(a.dy.as<T>()[y]);
  dw.store();
  dbias.store();
}

template <class Args>
void compute_as(DType dtype, const Args& a) {
  check_conv(a);
  visit_floating(dtype, [&]<class T>(T) {
    compute<T, std::conditional_t<std::is_same_v<T, double>, double, float>>(a);
  });
}

}  // namespace

void conv_ref(const Context&, const ConvArgs& a) { compute_as(a.x.dtype, a); }
void conv_ref(const Context&, const ConvGradInputArgs& a) { compute_as(a.dy.dtype, a); }
void conv_ref(const Context&, const ConvGradWeightArgs& a) { compute_as(a.dy.dtype, a); }

}  // namespace rondo
