#include "kernels/conv/conv_impl.h"

namespace rondo {
namespace {

// The pixels of sequences. Written out here, so that it shares nothing with what it checks.
template <class T>
struct Image {
  const PackedView& layout;
  const TensorView own;
  const TensorView before, after;  // [frames, sequences, columns], or absent
  int64_t height, channels;

  // Pixel g of frame t of sequence n; nullptr: zeros.
  const T* at(int64_t n, int64_t t, int64_t g) const {
    if (g < 0 || g >= height) return nullptr;
    const T* frame = frame_at(n, t);
    return frame ? frame + g * channels : nullptr;
  }

 private:
  const T* frame_at(int64_t n, int64_t t) const {
    const int64_t length = layout.lengths[n];
    if (t >= length) return of(after, n, t - length);
    if (t < 0) return before ? of(before, n, before.dim(0) + t) : nullptr;
    return own.as<T>() + (layout.row_offsets[t] + n) * height * channels;
  }
  const T* of(const TensorView& halo, int64_t n, int64_t j) const {
    if (!halo || j < 0 || j >= halo.dim(0)) return nullptr;
    return halo.as<T>() + (j * layout.capacity.sequences + n) * height * channels;
  }
};

template <class T>
Image<T> input_of(const ConvDims& d, const PackedView& from, const TensorView& x,
                  const TensorView& before, const TensorView& after) {
  return {from, x, before, after, d.in_height, d.in};
}

// f(n, t, row) for every frame of a layout.
template <class F>
void for_frames(const PackedView& layout, F f) {
  for (int32_t n = 0; n < layout.extent->sequences; ++n) {
    for (int32_t t = 0; t < layout.lengths[n]; ++t) f(n, t, layout.row_offsets[t] + n);
  }
}

int64_t reached(const ConvAxis& a, int64_t position, int64_t tap) {
  return position * a.stride + tap * a.dilation - a.before;
}

// The position whose window has `from` as its tap; -1: none.
int64_t reaching(const ConvAxis& a, int64_t from, int64_t tap) {
  const int64_t at = from + a.before - tap * a.dilation;
  return at < 0 || at % a.stride != 0 ? -1 : at / a.stride;
}

// i: among the channels of the group.
template <class T>
T& weight(T* w, const ConvDims& d, int64_t o, int64_t i, int64_t k, int64_t l) {
  return w[((o * (d.in / d.groups) + i) * d.height.kernel + k) * d.time.kernel + l];
}

// The first channel of x that channel o of y is made of, and the first of y that channel i of x
// reaches.
int64_t first_input(const ConvDims& d, int64_t o) {
  return o / (d.out / d.groups) * (d.in / d.groups);
}
int64_t first_output(const ConvDims& d, int64_t i) {
  return i / (d.in / d.groups) * (d.out / d.groups);
}

// f(k, l) over the kernel.
template <class F>
void for_kernel(const ConvDims& d, F f) {
  for (int64_t k = 0; k < d.height.kernel; ++k) {
    for (int64_t l = 0; l < d.time.kernel; ++l) f(k, l);
  }
}

template <class T>
void forward(const ConvArgs& a) {
  const ConvDims& d = a.dims;
  const Image<T> x = input_of<T>(d, a.from, a.x, a.before, a.after);
  const T* w = a.w.as<T>();
  for_frames(a.to, [&](int64_t n, int64_t t, int64_t row) {
    for (int64_t g = 0; g < d.out_height; ++g) {
      for (int64_t o = 0; o < d.out; ++o) {
        double sum = 0;
        if (a.bias) {
          sum = a.bias.dtype == DType::f64 ? a.bias.as<double>()[o]
                                           : static_cast<double>(a.bias.as<float>()[o]);
        }
        for_kernel(d, [&](int64_t k, int64_t l) {
          const T* pixel = x.at(n, reached(d.time, t, l), reached(d.height, g, k));
          for (int64_t i = 0; pixel && i < d.in / d.groups; ++i) {
            sum += static_cast<double>(weight(w, d, o, i, k, l)) *
                   static_cast<double>(pixel[first_input(d, o) + i]);
          }
        });
        a.y.as<T>()[(row * d.out_height + g) * d.out + o] = static_cast<T>(sum);
      }
    }
  });
}

// dx of frame s of sequence n.
template <class T>
void input_gradient(const ConvGradInputArgs& a, int64_t n, int64_t s, T* dx) {
  const ConvDims& d = a.dims;
  const Image<T> dy{a.to, a.dy, {}, {}, d.out_height, d.out};
  const T* w = a.w.as<T>();
  for (int64_t g = 0; g < d.in_height; ++g) {
    for (int64_t i = 0; i < d.in; ++i) {
      double sum = 0;
      for_kernel(d, [&](int64_t k, int64_t l) {
        const T* pixel = dy.at(n, reaching(d.time, s, l), reaching(d.height, g, k));
        const int64_t first = first_output(d, i);
        for (int64_t o = first; pixel && o < first + d.out / d.groups; ++o) {
          sum += static_cast<double>(weight(w, d, o, i % (d.in / d.groups), k, l)) *
                 static_cast<double>(pixel[o]);
        }
      });
      dx[g * d.in + i] = static_cast<T>(sum);
    }
  }
}

template <class T>
void grad_input(const ConvGradInputArgs& a) {
  const int64_t cols = a.dims.in_cols(), sequences = a.from.capacity.sequences;
  if (a.dx) {
    for_frames(a.from, [&](int64_t n, int64_t s, int64_t row) {
      input_gradient(a, n, s, a.dx.as<T>() + row * cols);
    });
  }
  const auto halo = [&](const TensorView& out, bool behind) {
    if (!out) return;
    for (int64_t j = 0; j < out.dim(0); ++j) {
      for (int64_t n = 0; n < sequences; ++n) {
        T* dx = out.as<T>() + (j * sequences + n) * cols;
        if (n < a.from.extent->sequences) {
          input_gradient(a, n, behind ? a.from.lengths[n] + j : j - out.dim(0), dx);
        } else {
          for (int64_t i = 0; i < cols; ++i) dx[i] = T(0.0f);
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
  const Image<T> x = input_of<T>(d, a.from, a.x, a.before, a.after);
  const T* dy = a.dy.as<T>();
  // f(n, t, g, dy of channel o) for every pixel.
  const auto for_pixels = [&](int64_t o, auto f) {
    for_frames(a.to, [&](int64_t n, int64_t t, int64_t row) {
      for (int64_t g = 0; g < d.out_height; ++g) {
        f(n, t, g, static_cast<double>(dy[(row * d.out_height + g) * d.out + o]));
      }
    });
  };
  for (int64_t o = 0; o < d.out; ++o) {
    for (int64_t i = 0; a.dw && i < d.in / d.groups; ++i) {
      for_kernel(d, [&](int64_t k, int64_t l) {
        Weight& dw = weight(a.dw.as<Weight>(), d, o, i, k, l);
        double sum = a.accumulate ? static_cast<double>(dw) : 0;
        for_pixels(o, [&](int64_t n, int64_t t, int64_t g, double value) {
          const T* pixel = x.at(n, reached(d.time, t, l), reached(d.height, g, k));
          if (pixel) sum += value * static_cast<double>(pixel[first_input(d, o) + i]);
        });
        dw = static_cast<Weight>(sum);
      });
    }
    if (!a.dbias) continue;
    Weight& db = a.dbias.as<Weight>()[o];
    double sum = a.accumulate ? static_cast<double>(db) : 0;
    for_pixels(o, [&](int64_t, int64_t, int64_t, double value) { sum += value; });
    db = static_cast<Weight>(sum);
  }
}

}  // namespace

void conv_ref(const Context&, const ConvArgs& a) {
  check_conv(a);
  visit_floating(a.x.dtype, [&]<class T>(T) { forward<T>(a); });
}

void conv_ref(const Context&, const ConvGradInputArgs& a) {
  check_conv(a);
  visit_floating(a.dy.dtype, [&]<class T>(T) { grad_input<T>(a); });
}

void conv_ref(const Context&, const ConvGradWeightArgs& a) {
  check_conv(a);
  visit_floating(a.dy.dtype, [&]<class T>(T) {
    using Weight = std::conditional_t<std::is_same_v<T, double>, double, float>;
    grad_weight<T, Weight>(a);
  });
}

}  // namespace rondo
