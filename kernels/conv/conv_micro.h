// The register tiles of convolutions over images, included by the *_simd.cc files inside their
// instruction set's namespace after kernels/conv/conv_depthwise.h. The including file defines
//   struct Dot { static vf madd(vf acc, vf a, vf b); }   acc + a * b, per slot
//   constexpr int depth                                  values per slot
// Everything has internal linkage (see simd.h).
//
// A tile is so many pixels by so many vectors of output channels. Every output is the same sequence
// of operations whatever tile it falls into, so results do not depend on how pixels are divided.

// Tiles that the registers hold beside the vectors of weights and a broadcast value: of 1, 2 or 4
// vectors, that many rows.
#if defined(__AVX512F__)
constexpr int rows_of_1 = 12, rows_of_2 = 12, rows_of_4 = 6;
#else
constexpr int rows_of_1 = 8, rows_of_2 = 6, rows_of_4 = 0;  // 16 registers
#endif

template <int V>
constexpr int most_rows = V == 1   ? rows_of_1
                          : V == 2 ? rows_of_2
                                   : rows_of_4;

vf broadcast_slot(const float* p) {
  // Through integers: a pair of bf16 is no float, and must keep its bits.
  typedef int32_t slot __attribute__((may_alias));
  return float_of(broadcast_int(*reinterpret_cast<const slot*>(p)));
}

int64_t panel(int64_t channels, int64_t pixels) {
  if (channels <= W) return W;
  // Few pixels leave registers for more channels.
  if (rows_of_4 > 0 && channels > 2 * W && pixels <= rows_of_4) return 4 * W;
  return 2 * W;
}

// sums[m][v] = the products of pixel `first` + m.
template <int M, int V>
void add_terms(const ConvPixels& a, int64_t first, vf* sums) {
  vf acc[M * V] = {};
  const int64_t step = a.x_step;
  for (int64_t s = 0; s < a.segment_count; ++s) {
    const ConvSegment& segment = a.segments[s];
    const float* w = a.w + segment.first_term * V * W;
    // A pointer for every third pixel: the two after it are addressed by `step` and 2 `step`.
    const float* x[(M + 2) / 3];
#pragma GCC unroll 8
    for (int i = 0; i < (M + 2) / 3; ++i) x[i] = segment.x + (first + 3 * i) * step;
    for (int64_t k = 0; k < segment.length; ++k, w += V * W) {
      vf wv[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) wv[v] = load(w + v * W);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const vf xv = broadcast_slot(x[m / 3] + (m % 3) * step);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) acc[m * V + v] = Dot::madd(acc[m * V + v], xv, wv[v]);
      }
#pragma GCC unroll 8
      for (int i = 0; i < (M + 2) / 3; ++i) ++x[i];
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < M * V; ++i) sums[i] = acc[i];
}

// acc[m][v] += sums of x[m] dy[v] over all pixels, from term `first` on.
template <int M, int V>
void add_outer(const ConvOuter& a, int64_t first) {
  vf acc[M * V] = {};
  for (int64_t f = 0; f < a.frames; ++f) {
    const float* x = a.x[f] + first;
    const float* dy = a.dy[f];
    for (int64_t p = 0; p < a.pixels; ++p, x += a.x_step, dy += a.dy_step) {
      vf dyv[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) dyv[v] = load(dy + v * W);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const vf xv = broadcast_slot(x + m);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) acc[m * V + v] = Dot::madd(acc[m * V + v], xv, dyv[v]);
      }
    }
  }
  float* sums = a.sums + first * V * W;
#pragma GCC unroll 32
  for (int i = 0; i < M * V; ++i) store(sums + i * W, load(sums + i * W) + acc[i]);
}

template <class T>
void put_pixels(const ConvPixels& a, int64_t first, int rows, int vectors, const vf* sums) {
  T* y = static_cast<T*>(a.y) + first * a.y_step;
  for (int m = 0; m < rows; ++m, y += a.y_step) {
    for (int v = 0; v < vectors && v * W < a.channels; ++v) {
      const vf value = sums[m * vectors + v] + load(a.bias + v * W);
      const int64_t left = a.channels - v * W;
      if (left >= W) {
        WholeVector::put(y + v * W, value);
      } else {
        PartVector{left}.put(y + v * W, value);
      }
    }
  }
}

using AddTerms = void (*)(const ConvPixels&, int64_t, vf*);
using AddOuter = void (*)(const ConvOuter&, int64_t);

template <int V, int... M>
void pixels_of(const ConvPixels& a, std::integer_sequence<int, M...>) {
  static constexpr AddTerms tiles[] = {add_terms<M + 1, V>...};
  constexpr int most = sizeof...(M);
  const int64_t count = (a.pixels + most - 1) / most;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = a.pixels * i / count;
    const int rows = static_cast<int>(a.pixels * (i + 1) / count - first);
    vf sums[most * V];
    tiles[rows - 1](a, first, sums);
    if (a.dtype == DType::bf16) {
      put_pixels<uint16_t>(a, first, rows, V, sums);
    } else {
      put_pixels<float>(a, first, rows, V, sums);
    }
  }
}

template <int V, int... M>
void outer_of(const ConvOuter& a, std::integer_sequence<int, M...>) {
  static constexpr AddOuter tiles[] = {add_outer<M + 1, V>...};
  constexpr int most = sizeof...(M);
  const int64_t count = (a.terms + most - 1) / most;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = a.terms * i / count;
    tiles[a.terms * (i + 1) / count - first - 1](a, first);
  }
}

// use(vectors, rows) for the tiles of a panel.
template <class F>
void for_panel(int64_t panel, F use) {
  const auto with = [&]<int V>(std::integral_constant<int, V>) {
    use.template operator()<V>(std::make_integer_sequence<int, most_rows<V>>{});
  };
  if constexpr (rows_of_4 > 0) {
    if (panel == 4 * W) return with(std::integral_constant<int, 4>{});
  }
  if (panel == 2 * W) return with(std::integral_constant<int, 2>{});
  with(std::integral_constant<int, 1>{});
}

void pixels(const ConvPixels& a) {
  for_panel(a.panel, [&]<int V>(auto rows) { pixels_of<V>(a, rows); });
}

void outer(const ConvOuter& a) {
  for_panel(a.panel, [&]<int V>(auto rows) { outer_of<V>(a, rows); });
}

constexpr ConvKernel kernel = {depth, panel, pixels, outer, depthwise_pixels, depthwise_outer};
