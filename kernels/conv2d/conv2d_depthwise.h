// The tiles of depthwise convolutions over images, included by the *_simd.cc files inside their
// instruction set's namespace after kernels/conv2d/conv2d_tiles.h. Everything has internal linkage
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

// The products of pixels first, first + 1, ... and channels c, c + 1, ...
template <int M, int N, class Part>
void add_depthwise_terms(const Conv2dPixels& a, int64_t first, int64_t c, Part part, vf* sums) {
  vf acc[M * N] = {};
  for (int64_t s = 0; s < a.segment_count; ++s) {
    const Conv2dSegment& segment = a.segments[s];
    const float* x = segment.x + first * a.x_step + c;
    const float* w = a.w + segment.first_term + c;
    for (int64_t k = 0; k < segment.length; k += a.channels, x += a.channels, w += a.channels) {
      vf wv[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) wv[v] = part.get(w + v * W);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v)
          acc[m * N + v] =
              FloatDot::madd(acc[m * N + v], part.get(x + m * a.x_step + v * W), wv[v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M * N; ++i) sums[i] = acc[i];
}

template <int M, int N, class T, class Part>
void put_depthwise(const Conv2dPixels& a, int64_t first, int64_t c, Part part) {
  vf sums[M * N];
  add_depthwise_terms<M, N>(a, first, c, part, sums);
  for (int m = 0; m < M; ++m) {
    T* y = static_cast<T*>(a.y) + (first + m) * a.y_step + c;
    for (int v = 0; v < N; ++v) part.put(y + v * W, sums[m * N + v] + part.get(a.bias + c + v * W));
  }
}

template <int N, class T, class Part>
void depthwise_strip(const Conv2dPixels& a, int64_t c, Part part) {
  int64_t first = 0;
  for (; first + 4 <= a.pixels; first += 4) put_depthwise<4, N, T>(a, first, c, part);
  for (; first < a.pixels; ++first) put_depthwise<1, N, T>(a, first, c, part);
}

// f(vectors, channel, part) for strips of channels: of two vectors, of one, and what is left.
template <class F>
void for_channel_strips(int64_t channels, F f) {
  int64_t c = 0;
  for (; c + 2 * W <= channels; c += 2 * W) f(std::integral_constant<int, 2>{}, c, WholeVector{});
  for (; c + W <= channels; c += W) f(std::integral_constant<int, 1>{}, c, WholeVector{});
  if (c < channels) f(std::integral_constant<int, 1>{}, c, PartVector{channels - c});
}

void depthwise_pixels(const Conv2dPixels& a) {
  for_channel_strips(a.channels, [&](auto vectors, int64_t c, auto part) {
    if (a.dtype == DType::bf16) {
      depthwise_strip<vectors, uint16_t>(a, c, part);
    } else {
      depthwise_strip<vectors, float>(a, c, part);
    }
  });
}

// M rows of the kernel from row `first` on.
template <int M, int N, class Part>
void add_depthwise_outer(const Conv2dOuter& a, int64_t first, int64_t c, Part part) {
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

void depthwise_outer(const Conv2dOuter& a) {
  const int64_t rows = a.terms / a.channels;
  for_channel_strips(a.channels, [&](auto vectors, int64_t c, auto part) {
    int64_t first = 0;
    for (; first + 3 <= rows; first += 3) add_depthwise_outer<3, vectors>(a, first, c, part);
    for (; first < rows; ++first) add_depthwise_outer<1, vectors>(a, first, c, part);
  });
}
