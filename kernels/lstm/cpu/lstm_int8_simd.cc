// The LSTM's forward loop with products of 8-bit integers, compiled once per instruction set that
// has them (kernels/base/cpu/simd.h).
#include "kernels/gemm/int8_tile.h"
#include "kernels/lstm/cpu/lstm_forward.h"

namespace rondo::RONDO_ISA {
namespace {

// Each thread rounds the states that it multiplies with for itself: that is little beside their
// products with its panels, and nobody waits.
struct Int8Products {
  using Operand = float;
  int8_t* integers;
  float* scales;

  Int8Products(const LstmForwardLoop& loop, int worker)
      : integers(static_cast<int8_t*>(loop.integers) + worker * loop.integers_bytes),
        scales(reinterpret_cast<float*>(integers + loop.integers_bytes) - loop.shape.sequences) {}

  void begin(const Place& place, int64_t rows, const float* from, int64_t stride, int64_t depth) {
    quantize(from + place.first_sequence * stride, stride, place.count(rows), depth, integers,
             scales);
  }

  [[gnu::always_inline]] inline void multiply(const Place&, const Tile& t, const float*, int64_t,
                                              const void* matrix, int64_t depth, float* sums) {
    const int64_t row_bytes = int8_row_bytes(depth);
    int8_tile(t.rows(), integers + t.begin * row_bytes, row_bytes, scales + t.begin,
              static_cast<const char*>(matrix) + t.panel * int8_panel_bytes(depth), depth, sums);
  }
};

Int8Matrix with_integers(const LstmMatrix& m) {
  return {static_cast<const float*>(m.w),
          m.columns,
          m.k,
          m.column_stride,
          m.k_stride,
          m.cells,
          m.packed};
}

// What choosing a team needs to know (lstm_team.h).
#if defined(__AVX512VNNI__)
constexpr double products_per_ns = 300;
#else
constexpr double products_per_ns = 10.0 * W;
#endif

}  // namespace

constinit const LstmKernels lstm_int8 = {
    1,
    W,
    1,
    products_per_ns,
    [](const LstmMatrix& m, int64_t first, int64_t last) {
      pack_int8(with_integers(m), first, last);
    },
    [](const LstmMatrix& m) { return int8_panels(with_integers(m)); },
    [](const LstmForwardLoop& loop, int worker) {
      Forward<float, Int8Products>{loop, Place(loop.shape, worker), Int8Products(loop, worker)}
          .run();
    },
    nullptr,
    nullptr};

}  // namespace rondo::RONDO_ISA
