#include <algorithm>

#include "kernels/conv/conv_impl.h"

namespace rondo {
namespace {

// Where the frames of sequences are. Written out here, so that it shares nothing with what it
// checks.
struct Frames {
  const PackedView& layout;
  const TensorView& own;
  const TensorView before, after;  // [frames, sequences, columns], or absent

  // The columns of frame t of sequence n; nullptr: zeros.
  template <class T>
  const T* at(int64_t cols, int64_t n, int64_t t) const {
    const int64_t length = layout.lengths[n];
    if (t >= length) return of<T>(after, cols, n, t - length);
    if (t < 0) return before ? of<T>(before, cols, n, before.dim(0) + t) : nullptr;
    return own.as<T>() + (layout.row_offsets[t] + n) * cols;
  }

 private:
  template <class T>
  const T* of(const TensorView& halo, int64_t cols, int64_t n, int64_t j) const {
    if (!halo || j < 0 || j >= halo.dim(0)) return nullptr;
    return halo.as<T>() + (j * layout.capacity.sequences + n) * cols;
  }
};

// f(n, t, row) for every frame of a layout.
template <class F>
void for_frames(const PackedView& layout, F f) {
  for (int32_t n = 0; n < layout.extent->sequences; ++n) {
    for (int32_t t = 0; t < layout.lengths[n]; ++t) f(n, t, layout.row_offsets[t] + n);
  }
}

template <class T>
void forward(const ConvArgs& a) {
  const ConvDims& d = a.dims;
  const Frames source{a.from, a.x, a.before, a.after};
  const T* w = a.w.as<T>();
  for_frames(a.to, [&](int64_t n, int64_t t, int64_t row) {
    for (int64_t o = 0; o < d.out; ++o) {
      double sum = 0;
      if (a.bias) {
        sum = a.bias.dtype == DType::f64 ? a.bias.as<double>()[o]
                                         : static_cast<double>(a.bias.as<float>()[o]);
      }
      for (int32_t k = 0; k < d.kernel; ++k) {
        const T* x = source.at<T>(d.in, n, t * d.stride + int64_t{k} * d.dilation - d.left);
        for (int64_t i = 0; x && i < d.in; ++i) {
          sum += static_cast<double>(w[(o * d.in + i) * d.kernel + k]) * static_cast<double>(x[i]);
        }
      }
      a.y.as<T>()[row * d.out + o] = static_cast<T>(sum);
    }
  });
}

// dx of frame s of sequence n.
template <class T>
void input_gradient(const ConvGradInputArgs& a, int64_t n, int64_t s, T* dx) {
  const ConvDims& d = a.dims;
  const Frames source{a.to, a.dy, {}, {}};
  const T* w = a.w.as<T>();
  for (int64_t i = 0; i < d.in; ++i) {
    double sum = 0;
    for (int32_t k = 0; k < d.kernel; ++k) {
      const int64_t at = s + d.left - int64_t{k} * d.dilation;
      if (at < 0 || at % d.stride != 0) continue;
      const T* dy = source.at<T>(d.out, n, at / d.stride);
      for (int64_t o = 0; dy && o < d.out; ++o) {
        sum += static_cast<double>(w[(o * d.in + i) * d.kernel + k]) * static_cast<double>(dy[o]);
      }
    }
    dx[i] = static_cast<T>(sum);
  }
}

template <class T>
void grad_input(const ConvGradInputArgs& a) {
  const int64_t in = a.dims.in, sequences = a.from.capacity.sequences;
  if (a.dx) {
    for_frames(a.from, [&](int64_t n, int64_t s, int64_t row) {
      input_gradient(a, n, s, a.dx.as<T>() + row * in);
    });
  }
  const auto halo = [&](const TensorView& out, bool behind) {
    if (!out) return;
    for (int64_t j = 0; j < out.dim(0); ++j) {
      for (int64_t n = 0; n < sequences; ++n) {
        T* dx = out.as<T>() + (j * sequences + n) * in;
        if (n < a.from.extent->sequences) {
          input_gradient(a, n, behind ? a.from.lengths[n] + j : j - out.dim(0), dx);
        } else {
          std::fill_n(dx, in, T(0.0f));
        }
      }
    }
  };
  halo(a.dbefore, false);
  halo(a.dafter, true);
}

template <class T, class Weight>
void grad_weight(const ConvGradWeightArgs& a) {
  const ConvDims& d = a.dims;
  const Frames source{a.from, a.x, a.before, a.after};
  for (int64_t o = 0; o < d.out; ++o) {
    for (int64_t i = 0; i < d.in; ++i) {
      for (int32_t k = 0; k < d.kernel; ++k) {
        Weight& dw = a.dw.as<Weight>()[(o * d.in + i) * d.kernel + k];
        double sum = a.accumulate ? static_cast<double>(dw) : 0;
        for_frames(a.to, [&](int64_t n, int64_t t, int64_t row) {
          const T* x = source.at<T>(d.in, n, t * d.stride + int64_t{k} * d.dilation - d.left);
          if (x == nullptr) return;
          sum += static_cast<double>(a.dy.as<T>()[row * d.out + o]) * static_cast<double>(x[i]);
        });
        dw = static_cast<Weight>(sum);
      }
    }
  }
}

}  // namespace

void conv_ref(const Context&, const ConvArgs& a) {
  check_conv(a);
  visit_floating(a.x.dtype, [&]<class T>(T) { forward<T>(a); });
}

void conv_grad_input_ref(const Context&, const ConvGradInputArgs& a) {
  check_conv(a);
  visit_floating(a.dy.dtype, [&]<class T>(T) { grad_input<T>(a); });
}

void conv_grad_weight_ref(const Context&, const ConvGradWeightArgs& a) {
  check_conv(a);
  visit_floating(a.dy.dtype, [&]<class T>(T) {
    using Weight = std::conditional_t<std::is_same_v<T, double>, double, float>;
    grad_weight<T, Weight>(a);
  });
}

}  // namespace rondo
