// gemm's product of 8-bit integers, compiled once per instruction set that has one
// (kernels/base/cpu/simd.h).
#include "kernels/gemm/int8_tile.h"

namespace rondo::RONDO_ISA {
namespace {

// Rows that stay in the second-level cache while panels pass by.
int64_t rows_at_once(int64_t k) {
  constexpr int64_t bytes = 256 << 10;
  const int64_t rows = bytes / (int8_row_bytes(k) + 1) / max_tile_rows * max_tile_rows;
  return rows > max_tile_rows ? rows : max_tile_rows;
}

void finish(const Int8Product& p, int64_t row, int64_t rows, int64_t column, const float* results) {
  for (int64_t r = 0; r < rows; ++r) {
    float* c = p.c + (row + r) * p.ldc + column;
    for (int64_t v = 0; v < 4 && column + v * W < p.columns; ++v) {
      const int64_t left = p.columns - column - v * W;
      vf x = load(results + (r * 4 + v) * W);
      if (p.bias) x += load_some(p.bias + column + v * W, left);
      store_some(c + v * W, x, left);
    }
  }
}

void multiply(const Int8Product& p) {
  const int64_t row_bytes = int8_row_bytes(p.k), block = rows_at_once(p.k);
  alignas(64) float results[max_tile_rows * 4 * W];
  for (int64_t first = 0; first < p.rows; first += block) {
    const int64_t end = first + block < p.rows ? first + block : p.rows;
    for (int64_t j = p.first_panel; j < p.last_panel; ++j) {
      const char* panel = static_cast<const char*>(p.packed) + j * int8_panel_bytes(p.k);
      for (int64_t row = first; row < end; row += max_tile_rows) {
        const int64_t rows = row + max_tile_rows < end ? max_tile_rows : end - row;
        int8_tile(rows, p.a + row * row_bytes, row_bytes, p.scales + row, panel, p.k, results);
        finish(p, row, rows, j * 4 * W, results);
      }
    }
  }
}

constexpr Int8Kernel kernel = {
    W,         int8_panels, [](int64_t k) { return static_cast<size_t>(int8_panel_bytes(k)); },
    pack_int8, quantize,    multiply};

}  // namespace

const Int8Kernel* const gemm_int8_kernel = &kernel;

}  // namespace rondo::RONDO_ISA
