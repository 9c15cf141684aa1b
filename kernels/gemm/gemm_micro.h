// Panels of a and the register tile of the blocked product, included by the *_simd.cc files
// inside their instruction set's namespace after kernels/gemm/gemm_pack.h. The including file
// defines
//   struct Dot { static vf madd(vf acc, vf a, vf b); }   acc + a * b, per unit
//   constexpr int mr, nv                                 the tile: mr rows, nv vectors
//   constexpr int depth                                  values of k per unit
// Everything has internal linkage (see simd.h).
//
// Every element of c is the same sequence of operations wherever the tile edges lie, so the result
// does not depend on how threads split m and n.

constexpr int step = 1;

#include "kernels/gemm/gemm_panels.h"

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
        pack_along<depth>(x + row * g.ld, g.ld, static_cast<int>(width), g.k, out, width);
      } else {
        pack_across<depth>(x + row, g.ld, g.count - row, g.k, u,
                           u + steps < units ? u + steps : units, out, width);
      }
    }
  }
}

void pack_a(const GemmPack& g) {
  return g.dtype == DType::bf16 ? pack_a_of<uint16_t>(g) : pack_a_of<float>(g);
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
