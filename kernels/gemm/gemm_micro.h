// Packing and the register tile of the blocked product, included by the *_simd.cc files inside
// their instruction set's namespace after kernels/base/simd.h. The including file defines
//   struct Dot { static vf madd(vf acc, vf a, vf b); }   acc + a * b, per unit
//   constexpr int mr, nv                                 the tile: mr rows, nv vectors
//   constexpr int depth                                  values of k per unit
// Everything has internal linkage (see simd.h).
//
// Every element of c is the same sequence of operations wherever the tile edges lie, so the result
// does not depend on how threads split m and n.

// fma where there is one; never left to the compiler's contraction, which may differ by tile.
vf madd(vf a, vf b, vf c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

vf load_some(const float* p, int64_t n) {
  if (n >= W) return load(p);
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
#else
  vf v{};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
#endif
}

void store_some(float* p, vf v, int64_t n) {
  if (n >= W) return store(p, v);
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
#else
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
#endif
}

vf load_some(const uint16_t* p, int64_t n) {
  if (n >= W) return load_bf16(p);
  uint16_t pad[W] = {};
  for (int64_t i = 0; i < n; ++i) pad[i] = p[i];
  return load_bf16(pad);
}

void store_some(uint16_t* p, vf v, int64_t n) {
  if (n >= W) return store_bf16(p, v);
  uint16_t pad[W];
  store_bf16(pad, v);
  for (int64_t i = 0; i < n; ++i) p[i] = pad[i];
}

// W units of one row, k contiguous; `values` remain in the row.
vf units_along(const float* p, int64_t values) { return load_some(p, values); }
vf units_along(const uint16_t* p, int64_t values) {
  if constexpr (depth == 1) return load_some(p, values);
  typedef float pairs __attribute__((vector_size(W * 4), aligned(2), may_alias));
  if (values >= 2 * W) return *reinterpret_cast<const pairs*>(p);
  uint16_t pad[2 * W] = {};
  for (int64_t i = 0; i < values; ++i) pad[i] = p[i];
  return *reinterpret_cast<const pairs*>(pad);
}

// One unit of W columns, k across rows of `ld`; `columns` remain, `values` of k remain.
vf units_across(const float* p, int64_t, int64_t columns, int64_t) { return load_some(p, columns); }
vf units_across(const uint16_t* p, int64_t ld, int64_t columns, int64_t values) {
  const vi low = bits_of(load_some(p, columns));
  if constexpr (depth == 1) return float_of(low);
  const vi high = values > 1 ? bits_of(load_some(p + ld, columns)) : vi{};
  return float_of(__builtin_bit_cast(vi, __builtin_bit_cast(vu, low) >> 16) | high);
}

// Exchanges lanes and rows at distance S.
template <int S, int... L>
void exchange(vf* r, std::integer_sequence<int, L...>) {
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i) {
    if (i & S) continue;
    const vf a = r[i], b = r[i + S];
    r[i] = __builtin_shufflevector(a, b, ((L & S) ? W + L - S : L)...);
    r[i + S] = __builtin_shufflevector(a, b, ((L & S) ? W + L : L + S)...);
  }
}

void transpose(vf* r) {
  constexpr auto lanes = std::make_integer_sequence<int, W>{};
  if constexpr (W >= 16) exchange<8>(r, lanes);
  if constexpr (W >= 8) exchange<4>(r, lanes);
  exchange<2>(r, lanes);
  exchange<1>(r, lanes);
}

// `width` <= W rows of x become the columns of a panel with `stride` units per step. Writes whole
// vectors in increasing order, so that what a vector writes too much is overwritten by the next.
template <class T>
void pack_along(const T* x, int64_t ld, int width, int64_t k, float* out, int64_t stride) {
  const int64_t units = (k + depth - 1) / depth;
  for (int64_t u = 0; u < units; u += W) {
    vf r[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) {
      r[i] = i < width ? units_along(x + i * ld + u * depth, k - u * depth) : vf{};
    }
    transpose(r);
    const int64_t steps = units - u < W ? units - u : W;
    if (steps == W) {
#pragma GCC unroll 16
      for (int s = 0; s < W; ++s) store(out + (u + s) * stride, r[s]);
    } else {
      for (int64_t s = 0; s < steps; ++s) store(out + (u + s) * stride, r[s]);
    }
  }
}

// Steps of k that pack_across takes from all panels before it goes on: whole cache lines are read
// in both directions, also when rows lie a power of two apart and compete for the same lines.
constexpr int64_t across_steps = 8;

// As pack_along for columns of x and steps [begin, end) of k; `columns` of them may be read. The
// last vectors of a panel may not run over into the next, which is already there.
template <class T>
void pack_across(const T* x, int64_t ld, int64_t columns, int64_t k, int64_t begin, int64_t end,
                 float* out, int64_t stride) {
  const int64_t units = (k + depth - 1) / depth;
  for (int64_t u = begin; u < end; ++u) {
    store_some(out + u * stride, units_across(x + u * depth * ld, ld, columns, k - u * depth),
               (units - u) * stride);
  }
}

template <class T>
void pack_a_of(const GemmPack& g) {
  const T* x = static_cast<const T*>(g.x);
  const int64_t units = (g.k + depth - 1) / depth, panels = (g.count + mr - 1) / mr;
  const int64_t steps = g.k_contiguous ? units : across_steps;
  for (int64_t u = 0; u < units; u += steps) {
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t row = g.count * i / panels, width = g.count * (i + 1) / panels - row;
      float* out = g.out + row * units;
      if (g.k_contiguous) {
        pack_along(x + row * g.ld, g.ld, static_cast<int>(width), g.k, out, width);
      } else {
        pack_across(x + row, g.ld, g.count - row, g.k, u, u + steps < units ? u + steps : units,
                    out, width);
      }
    }
  }
}

template <class T>
void pack_b_of(const GemmPack& g) {
  const T* x = static_cast<const T*>(g.x);
  const int64_t units = (g.k + depth - 1) / depth;
  const int64_t steps = g.k_contiguous ? units : across_steps;
  constexpr int64_t nr = nv * W;
  for (int64_t u = 0; u < units; u += steps) {
    for (int64_t col = 0; col < g.count; col += W) {  // past count nothing is read: tiles narrow
      const int64_t left = g.count - col;
      float* out = g.out + col / nr * nr * units + col % nr;
      if (g.k_contiguous) {
        pack_along(x + col * g.ld, g.ld, static_cast<int>(left < W ? left : W), g.k, out, nr);
      } else {
        pack_across(x + col, g.ld, left, g.k, u, u + steps < units ? u + steps : units, out, nr);
      }
    }
  }
}

void pack_a(const GemmPack& g) {
  return g.dtype == DType::bf16 ? pack_a_of<uint16_t>(g) : pack_a_of<float>(g);
}
void pack_b(const GemmPack& g) {
  return g.dtype == DType::bf16 ? pack_b_of<uint16_t>(g) : pack_b_of<float>(g);
}

// Where one tile goes.
struct Target {
  void* c;
  int64_t ldc, columns;
  float alpha, beta;
  const float* bias;
};

// From the accumulators of a tile, row by row, to c.
template <class C>
void finish(const Target& t, const vf* acc, int rows, int vectors) {
  C* c = static_cast<C*>(t.c);
  const vf alpha = broadcast(t.alpha), beta = broadcast(t.beta);
  for (int i = 0; i < rows; ++i, c += t.ldc) {
    for (int v = 0; v < vectors; ++v) {
      const int64_t left = t.columns - v * W;
      vf x = acc[i * vectors + v];
      x = t.bias ? madd(alpha, x, load_some(t.bias + v * W, left)) : alpha * x;
      if (t.beta != 0) x = madd(beta, load_some(c + v * W, left), x);
      store_some(c + v * W, x, left);
    }
  }
}

vf broadcast_unit(const float* p) {
  // Through integers: a pair of bf16 is no float, and must keep its bits.
  typedef int32_t unit __attribute__((may_alias));
  return float_of(broadcast_int(*reinterpret_cast<const unit*>(p)));
}

// H rows by V vectors. The accumulators stay in registers: H * V, and V + 1 for b and a.
template <int H, int V>
void tile(int64_t units, const float* a, const float* b, vf* out) {
  vf acc[H * V] = {};
  for (int64_t u = 0; u < units; ++u, a += H, b += nv * W) {
    vf bv[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) bv[v] = load(b + v * W);
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i) {
      const vf av = broadcast_unit(a + i);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[i * V + v] = Dot::madd(acc[i * V + v], av, bv[v]);
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < H * V; ++i) out[i] = acc[i];
}

using Tile = void (*)(int64_t, const float*, const float*, vf*);

template <int... H>
Tile pick(int rows, int vectors, std::integer_sequence<int, H...>) {
  static constexpr Tile wide[] = {tile<H + 1, nv>...};
  static constexpr Tile narrow[] = {tile<H + 1, 1>...};
  return vectors == nv ? wide[rows - 1] : narrow[rows - 1];
}

template <class C>
void multiply_into(const GemmBlock& g) {
  constexpr auto heights = std::make_integer_sequence<int, mr>{};
  const int64_t panels = (g.m + mr - 1) / mr;
  for (int64_t col = 0; col < g.n; col += nv * W) {
    const int64_t left = g.n - col;
    const int vectors = left > W ? nv : 1;
    Target t{nullptr, g.ldc, left, g.alpha, g.beta, g.bias ? g.bias + col : nullptr};
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t row = g.m * i / panels;
      const int rows = static_cast<int>(g.m * (i + 1) / panels - row);
      C* c = static_cast<C*>(g.c) + row * g.ldc + col;
      for (int r = 0; r < rows; ++r) {
        __builtin_prefetch(c + r * g.ldc, 1);
        __builtin_prefetch(c + r * g.ldc + (nv - 1) * W, 1);
      }
      vf acc[mr * nv];
      pick(rows, vectors, heights)(g.units, g.a + row * g.units, g.b + col * g.units, acc);
      t.c = c;
      finish<C>(t, acc, rows, vectors);
    }
  }
}

void multiply(const GemmBlock& g) {
  return g.c_dtype == DType::bf16 ? multiply_into<uint16_t>(g) : multiply_into<float>(g);
}
