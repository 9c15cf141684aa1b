// The bf16 product by AMX tiles (kernels/base/cpu/tiles.h).
#include "kernels/base/cpu/simd.h"
#include "kernels/base/cpu/tiles.h"
#include "kernels/gemm/gemm_blocked.h"
#include "kernels/gemm/gemm_pack.h"

#if defined(__AMX_BF16__)

#include <utility>

namespace rondo::RONDO_ISA {
namespace {

constexpr int mr = 2 * tile_rows, nv = 2;
constexpr int depth = 2, step = tile_depth / depth;

#include "kernels/gemm/gemm_panels.h"

static_assert(W == step && W == tile_columns, "a row of a tile is a vector");

// Panels of a as gemm_blocked.h has them for steps of 16 units, the rows of tiles below each other.
void pack_a(const GemmPack& g) {
  const auto* x = static_cast<const uint16_t*>(g.x);
  const int64_t units = stored_units(g.k), panels = (g.count + mr - 1) / mr;
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t row = g.count * i / panels, width = g.count * (i + 1) / panels - row;
    float* out = g.out + row * units;
    for (int64_t u = 0; u < units; u += step, out += width * step) {
      const int64_t left = g.k - u * depth;
      if (g.k_contiguous) {
        for (int64_t r = 0; r < width; ++r) {
          store(out + r * step, units_along<depth>(x + (row + r) * g.ld + u * depth, left));
        }
        continue;
      }
      for (int64_t r = 0; r < width; r += W) {
        const uint16_t* from = x + u * depth * g.ld + row + r;
        vf pairs[W];
        for (int s = 0; s < W; ++s) {
          const int64_t values = left - s * depth;
          pairs[s] = values > 0 ? units_across<depth>(from + s * depth * g.ld, g.ld,
                                                      g.count - row - r, values)
                                : vf{};
        }
        transpose(pairs);
        for (int s = 0; s < W && r + s < width; ++s) store(out + (r + s) * step, pairs[s]);
      }
    }
  }
}

// The panel of b stays in the first-level cache, those of a pass by in front of it. A panel of a,
// of more than 16 rows if `tall`, by a panel of b, of more than 16 columns if `wide`, to rows of
// one or two vectors. Where a panel ends inside a tile, the rows below are of no use, and their
// sums are not looked at.
template <bool tall, bool wide>
void tile(int64_t units, const float* a, int64_t rows, const float* b, float* sums) {
  constexpr int64_t nr = nv * W, row_bytes = W * 4;
  zero_tile<0>(), zero_tile<1>(), zero_tile<2>(), zero_tile<3>();
  for (int64_t u = 0; u < units; u += step, a += rows * step, b += step * nr) {
    load_tile<6>(b, nr * 4);
    stream_tile<4>(a, row_bytes);
    add_tile_product<0, 4, 6>();
    if constexpr (wide) {
      load_tile<7>(b + W, nr * 4);
      add_tile_product<1, 4, 7>();
    }
    if constexpr (tall) {
      stream_tile<5>(a + tile_rows * step, row_bytes);
      add_tile_product<2, 5, 6>();
      if constexpr (wide) add_tile_product<3, 5, 7>();
    }
  }
  constexpr int64_t apart = wide ? 2 * W : W;
  store_tile<0>(sums, apart * 4);
  if constexpr (wide) store_tile<1>(sums + W, apart * 4);
  if constexpr (tall) store_tile<2>(sums + tile_rows * apart, apart * 4);
  if constexpr (tall && wide) store_tile<3>(sums + tile_rows * apart + W, apart * 4);
}

template <class C>
void multiply_into(const GemmBlock& g) {
  TileRegisters registers;
  registers.shape(tile_rows, tile_rows, tile_rows, tile_rows);
  const int64_t panels = (g.m + mr - 1) / mr;
  for (int64_t col = 0; col < g.n; col += nv * W) {
    const int64_t left = g.n - col;
    const bool wide = left > W;
    Target t{nullptr, g.ldc, left, g.alpha, g.beta, g.bias ? g.bias + col : nullptr};
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t row = g.m * i / panels, rows = g.m * (i + 1) / panels - row;
      const bool tall = rows > tile_rows;
      t.c = static_cast<C*>(g.c) + row * g.ldc + col;
      vf sums[mr * nv];
      constexpr decltype(&tile<true, true>) tiles[2][2] = {{tile<false, false>, tile<false, true>},
                                                           {tile<true, false>, tile<true, true>}};
      tiles[tall][wide](g.units, g.a + row * g.units, rows, g.b + col * g.units,
                        reinterpret_cast<float*>(sums));
      finish<C>(t, sums, static_cast<int>(rows), wide ? nv : 1);
    }
  }
}

void multiply(const GemmBlock& g) {
  return g.c_dtype == DType::bf16 ? multiply_into<uint16_t>(g) : multiply_into<float>(g);
}

constexpr GemmKernel kernel = {mr, nv* W, depth, step, pack_a, pack_b, multiply};

}  // namespace

const GemmKernel* const gemm_amx_kernel = &kernel;

}  // namespace rondo::RONDO_ISA

#else

namespace rondo::RONDO_ISA {
const GemmKernel* const gemm_amx_kernel = nullptr;
}

#endif
