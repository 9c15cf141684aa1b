// What lstm_tile.h has, by AMX (kernels/base/cpu/tiles.h): operands are bf16, and a panel is filled
// with zeros up to whole tiles of k. A row has the same bits in every tile here too.
#pragma once

#if defined(__AMX_BF16__)

#include <immintrin.h>

#include "kernels/base/cpu/simd.h"
#include "kernels/base/cpu/tiles.h"

namespace rondo::RONDO_ISA {
namespace {

constexpr int max_tile_rows = 2 * tile_rows, fine_rows = tile_rows;

// What choosing a team needs to know (lstm_team.h): a product of one row takes as long as one
// of 16.
constexpr int rows_at_once = tile_rows;
template <class A>
constexpr double products_per_ns = 900;

template <class A>
constexpr int64_t sum_steps(int64_t k) {
  static_assert(sizeof(A) == 2);
  return (k + tile_depth - 1) / tile_depth * (tile_depth / 2);
}

// The next 32 values of k of `rows` rows, `values` of which there are, with zeros behind them: NaN
// lies there as likely as anything else, and times zero is no zero.
struct LastStep {
  alignas(64) uint16_t rows[max_tile_rows][tile_depth];

  LastStep(const uint16_t* a, int64_t lda, int64_t count, int64_t values) {
    const auto live = static_cast<__mmask32>((1u << values) - 1);
    for (int64_t r = 0; r < count; ++r) {
      _mm512_store_si512(rows[r], _mm512_maskz_loadu_epi16(live, a + r * lda));
    }
  }
};

// Up to 16 rows by four tiles of 16 columns; 4 KiB of the panel.
[[gnu::always_inline]] inline void short_step(const void* a, int64_t bytes_apart,
                                              const float* panel) {
  constexpr int64_t panel_row = 4 * W * 4;
  load_tile<4>(a, bytes_apart);
  load_tile<6>(panel, panel_row);
  add_tile_product<0, 4, 6>();
  load_tile<7>(panel + W, panel_row);
  add_tile_product<1, 4, 7>();
  load_tile<6>(panel + 2 * W, panel_row);
  add_tile_product<2, 4, 6>();
  load_tile<7>(panel + 3 * W, panel_row);
  add_tile_product<3, 4, 7>();
}

// 17 to 32 rows by two.
[[gnu::always_inline]] inline void tall_step(const void* a, int64_t bytes_apart,
                                             const float* panel) {
  constexpr int64_t panel_row = 4 * W * 4;
  load_tile<4>(a, bytes_apart);
  load_tile<6>(panel, panel_row);
  add_tile_product<0, 4, 6>();
  load_tile<7>(panel + W, panel_row);
  add_tile_product<1, 4, 7>();
  load_tile<5>(static_cast<const char*>(a) + tile_rows * bytes_apart, bytes_apart);
  add_tile_product<2, 5, 6>();
  add_tile_product<3, 5, 7>();
}

// The product of up to max_tile_rows rows and a panel.
void tile_product(TileRegisters& registers, int64_t rows, const uint16_t* a, int64_t lda,
                  const uint16_t* panel, int64_t depth, const uint16_t*, float* out) {
  constexpr int64_t row_bytes = 4 * W * 4;
  if (rows <= 0) return;
  const bool tall = rows > tile_rows;
  const int low = static_cast<int>(tall ? tile_rows : rows);
  const int high = static_cast<int>(tall ? rows - tile_rows : rows);
  registers.shape(low, high, low, high);
  const int64_t whole = depth / tile_depth, rest = depth % tile_depth;
  const auto* const weights = reinterpret_cast<const float*>(panel);
  constexpr int64_t step_floats = tile_depth / 2 * 4 * W;
  for (int pass = 0; pass < (tall ? 2 : 1); ++pass, out += 2 * W) {
    const float* w = weights + pass * 2 * W;
    const auto step = [&](const void* x, int64_t bytes_apart) {
      tall ? tall_step(x, bytes_apart, w) : short_step(x, bytes_apart, w);
      w += step_floats;
    };
    zero_tile<0>(), zero_tile<1>(), zero_tile<2>(), zero_tile<3>();
    for (int64_t i = 0; i < whole; ++i) step(a + i * tile_depth, lda * 2);
    if (rest != 0) {
      const LastStep last(a + whole * tile_depth, lda, rows, rest);
      step(last.rows, tile_depth * 2);
    }
    store_tile<0>(out, row_bytes);
    store_tile<1>(out + W, row_bytes);
    store_tile<2>(tall ? out + tile_rows * 4 * W : out + 2 * W, row_bytes);
    store_tile<3>(tall ? out + tile_rows * 4 * W + W : out + 3 * W, row_bytes);
  }
}

}  // namespace
}  // namespace rondo::RONDO_ISA

#endif
