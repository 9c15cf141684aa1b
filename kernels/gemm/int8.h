// Products whose operands are rounded to 8 bits, for gemm and the time loops of the LSTM.
//
// A row of values x is held as integers q in [-127, 127] and one scale: q = x * (127 / m), rounded
// to nearest even, m the row's largest magnitude, and scale = m / 127. A row whose m is below
// int8_least counts as zeros. The sum over k of products of two rows is an exact integer, and
// stands for float(sum) * (scale * scale'). Each of these steps is one operation in f32, none
// contracted with the next: so the result has the same bits on every processor. A row that holds
// NaN or an infinity gives results that are not finite.
//
// What is kept rounded in a file stays as it is: of q * scale, where scale has few enough bits for
// the product to be exact (int8_stored_scale), the rule above makes the same q and scale.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace rondo {

inline constexpr float int8_least = 0x1p-100f;
// An exact sum fits into 32 bits up to so many products, also of q + 128 with q.
inline constexpr int64_t int8_most_k = 65536;

struct Int8Scale {
  float scale;    // of the integers
  float inverse;  // what values are multiplied with
};

// `magnitude`: the largest of a row; NaN where the row holds one.
[[gnu::always_inline]] inline Int8Scale int8_scale(float magnitude) {
  if (magnitude < int8_least) return {0, 0};
  return {magnitude / 127.0f, 127.0f / magnitude};
}

// `scale` with 17 significant bits, so that its products with integers below 128 are exact.
inline float int8_stored_scale(float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  return std::bit_cast<float>((bits + 0x40u) & ~0x7fu);
}

// One value. In plain code, which other processors' vectors repeat.
[[gnu::always_inline]] inline int8_t int8_of(float x, float inverse) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float product = x * inverse;
  const float shifted = product + magic;
  return static_cast<int8_t>(std::bit_cast<uint32_t>(shifted));
}

// Bytes between rows of integers: whole vectors, with zeros behind the last value.
constexpr int64_t int8_row_bytes(int64_t k) { return (k + 63) / 64 * 64; }

// A right side to be packed: element (k, column) is w[column * column_stride + k * k_stride]; with
// `cells` column u of gate g is column g * columns + u, as in kernels/lstm/lstm_loop.h. A panel is
// of four vectors of W columns: their scales, then what vpdpbusd's sums have too much, then four
// values of k of each column after the other.
struct Int8Matrix {
  const float* w = nullptr;
  int64_t columns = 0, k = 0;
  int64_t column_stride = 0, k_stride = 0;
  bool cells = false;
  void* packed = nullptr;
};

// Rows of integers times the panels [first_panel, last_panel) of a packed matrix of `columns`
// columns: c = float(sum) * (scale * scale'), plus bias.
struct Int8Product {
  int64_t rows = 0, k = 0, columns = 0;
  const int8_t* a = nullptr;  // int8_row_bytes(k) apart
  const float* scales = nullptr;
  const void* packed = nullptr;
  int64_t first_panel = 0, last_panel = 0;
  float* c = nullptr;  // of column 0
  int64_t ldc = 0;
  const float* bias = nullptr;
};

// One instruction set's.
struct Int8Kernel {
  int width;  // W
  int64_t (*panels)(const Int8Matrix& matrix);
  size_t (*panel_bytes)(int64_t k);
  void (*pack)(const Int8Matrix& matrix, int64_t first_panel, int64_t last_panel);
  // `rows` rows, `ld` floats apart, as integers and their scales.
  void (*quantize)(const float* x, int64_t ld, int64_t rows, int64_t k, int8_t* q, float* scales);
  void (*multiply)(const Int8Product& product);
};

// nullptr where the compiler does not know the instruction set.
#define RONDO_DECLARE(isa)                         \
  namespace isa {                                  \
  extern const Int8Kernel* const gemm_int8_kernel; \
  }
RONDO_DECLARE(isa_generic)
RONDO_DECLARE(isa_avx2)
RONDO_DECLARE(isa_avx512vnni)
#undef RONDO_DECLARE

}  // namespace rondo
