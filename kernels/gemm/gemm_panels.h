// What the tiles of the blocked product have in common: panels of b, and the way of a tile to c.
// Included by the *_simd.cc files inside their instruction set's namespace after
// kernels/gemm/gemm_pack.h. The including file defines
//   constexpr int nv       vectors of a tile's width
//   constexpr int depth    values of k per unit
//   constexpr int step     units of k per step of the product
// Everything has internal linkage (see simd.h).

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

// Steps of k that pack_across takes from all panels before it goes on: whole cache lines are read
// in both directions, also when rows lie a power of two apart and compete for the same lines.
constexpr int64_t across_steps = 8;

// Units of a panel for k values: whole steps, the last one filled with zeros.
int64_t stored_units(int64_t k) { return (k + depth * step - 1) / (depth * step) * step; }

template <class T>
void pack_b_of(const GemmPack& g) {
  const T* x = static_cast<const T*>(g.x);
  const int64_t units = (g.k + depth - 1) / depth, stored = stored_units(g.k);
  const int64_t steps = g.k_contiguous ? units : across_steps;
  constexpr int64_t nr = nv * W;
  for (int64_t u = 0; u < units; u += steps) {
    for (int64_t col = 0; col < g.count; col += W) {  // past count nothing is read: tiles narrow
      const int64_t left = g.count - col;
      float* out = g.out + col / nr * nr * stored + col % nr;
      if (g.k_contiguous) {
        pack_along<depth>(x + col * g.ld, g.ld, static_cast<int>(left < W ? left : W), g.k, out,
                          nr);
      } else {
        pack_across<depth>(x + col, g.ld, left, g.k, u, u + steps < units ? u + steps : units, out,
                           nr);
      }
    }
  }
  if (units == stored) return;
  for (int64_t col = 0; col < g.count; col += nr) {
    float* end = g.out + col * stored + units * nr;
    for (int64_t i = 0; i < (stored - units) * nr; i += W) store(end + i, vf{});
  }
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
