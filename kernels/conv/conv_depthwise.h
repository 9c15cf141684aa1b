// The tiles of depthwise convolutions over images, included by the *_simd.cc files inside their
// instruction set's namespace after kernels/conv/conv_tiles.h. Everything has internal linkage
// (see simd.h).
//
// Vectors lie along the channels, of which each is made of its own alone: so many pixels below one
// another share every load of weights, and so many rows of the kernel every load of dy. Every
// output is the same sequence of operations whatever tile it falls into.

struct FloatDot {
  // fma where there is one; never left to the compiler's contraction, which may differ by tile.
  static vf madd(vf acc, vf a, vf b) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, acc);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(a, b, acc);
#else
    return a * b + acc;
#endif
  }
};

// Pixels first, first + 1, ... and channels c, c + 1, ...
template <int M, int N, class T, class Part>
void put_depthwise(const ConvDepthwise& a, int64_t first, int64_t c, Part part) {
  vf acc[M * N] = {};
  for (int64_t i = 0; i < a.count; ++i) {
    const ConvColumn& column = a.columns[i];
    const T* x = static_cast<const T*>(column.x) + first * a.x_step + c;
    const float* w = column.w + c;
    for (int64_t k = 0; k < column.taps; ++k, x += a.channels, w += a.channels) {
      vf wv[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) wv[v] = part.get(w + v * W);
      // A pointer that moves, as the compiler would keep a register for each of the pixels.
      const T* pixel = x;
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m, pixel += a.x_step) {
        asm("" : "+r"(pixel));
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v)
          acc[m * N + v] = FloatDot::madd(acc[m * N + v], part.get(pixel + v * W), wv[v]);
      }
    }
  }
  T* y = static_cast<T*>(a.y) + first * a.y_step + c;
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v)
      part.put(y + m * a.y_step + v * W, acc[m * N + v] + part.get(a.bias + c + v * W));
  }
}

// f(vectors, channel, part) for strips of channels: of two vectors, of one, and what is left.
template <class F>
void for_channel_strips(int64_t channels, F f) {
  int64_t c = 0;
  for (; c + 2 * W <= channels; c += 2 * W) f(std::integral_constant<int, 2>{}, c, WholeVector{});
  for (; c + W <= channels; c += W) f(std::integral_constant<int, 1>{}, c, WholeVector{});
  if (c < channels) f(std::integral_constant<int, 1>{}, c, PartVector{channels - c});
}

template <int M, class T>
void put_depthwise(const ConvDepthwise& a, int64_t first) {
  // Tiles go over a frame's channels and the window's columns by turns, from which the processor
  // does not guess what comes next.
  if (a.ahead != nullptr) {
    const T* ahead = static_cast<const T*>(a.ahead) + first * a.channels;
    for (int64_t i = 0; i < M * a.channels; i += 64 / static_cast<int64_t>(sizeof(T)))
      __builtin_prefetch(ahead + i);
  }
  for_channel_strips(a.channels, [&](auto vectors, int64_t c, auto part) {
    put_depthwise<M, vectors, T>(a, first, c, part);
  });
}

template <class T>
void depthwise_pixels_of(const ConvDepthwise& a) {
  int64_t first = 0;
  for (; first + 6 <= a.pixels; first += 6) put_depthwise<6, T>(a, first);
  for (; first + 2 <= a.pixels; first += 2) put_depthwise<2, T>(a, first);
  if (first < a.pixels) put_depthwise<1, T>(a, first);
}

void depthwise_pixels(const ConvDepthwise& a) {
  if (a.dtype == DType::bf16) {
    depthwise_pixels_of<uint16_t>(a);
  } else {
    depthwise_pixels_of<float>(a);
  }
}

// M rows of the kernel from row `first` on.
template <int M, int N, class Part>
void add_depthwise_outer(const ConvOuter& a, int64_t first, int64_t c, Part part) {
  vf acc[M * N] = {};
  for (int64_t f = 0; f < a.frames; ++f) {
    const float* x = a.x[f] + first * a.channels + c;
    const float* dy = a.dy[f] + c;
    for (int64_t p = 0; p < a.pixels; ++p, x += a.x_step, dy += a.dy_step) {
      vf dyv[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) dyv[v] = part.get(dy + v * W);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v)
          acc[m * N + v] =
              FloatDot::madd(acc[m * N + v], part.get(x + m * a.channels + v * W), dyv[v]);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    float* sums = a.sums + (first + m) * a.channels + c;
    for (int v = 0; v < N; ++v) part.put(sums + v * W, part.get(sums + v * W) + acc[m * N + v]);
  }
}

void depthwise_outer(const ConvOuter& a) {
  const int64_t rows = a.terms / a.channels;
  for_channel_strips(a.channels, [&](auto vectors, int64_t c, auto part) {
    int64_t first = 0;
    for (; first + 3 <= rows; first += 3) add_depthwise_outer<3, vectors>(a, first, c, part);
    for (; first < rows; ++first) add_depthwise_outer<1, vectors>(a, first, c, part);
  });
}
