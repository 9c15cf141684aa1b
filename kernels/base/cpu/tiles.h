// AMX: products of tiles of 16 rows by 16 columns over 32 values of bf16, summed in f32. For
// *_simd.cc files compiled for isa_amx; internal linkage (see simd.h).
//
// A tile register holds up to 16 rows of 64 bytes. Of a product c += a b, a tile of a is rows of 32
// bf16 along k, a tile of b is 16 rows of 16 pairs (k even, k odd), a row for each pair of k, and a
// tile of c is rows of 16 floats. As vdpbf16ps, tdpbf16ps flushes subnormals to zero and rounds to
// nearest even whatever the mode; it sums even and odd k apart and adds both to c: a fixed order,
// so that a row has the same bits whatever rows are beside it. (Intel's Software Developer's
// Manual, volume 2, TDPBF16PS; the instruction takes as long for one row as for sixteen.)
#pragma once

#include <cstdint>

#if defined(__AMX_BF16__)

namespace rondo::RONDO_ISA {
namespace {

constexpr int tile_rows = 16;   // of a and c; of b these are pairs of k
constexpr int tile_depth = 32;  // values of k
constexpr int tile_columns = 16;

// Assembly, because GCC's intrinsics tell the compiler nothing of the memory they touch, and take
// no template parameter for a register.
template <int tile>
[[gnu::always_inline]] inline void load_tile(const void* rows, int64_t bytes_apart) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
               :
               : "r"(rows), "r"(bytes_apart), "i"(tile)
               : "memory");
}
// What is read once, and had better leave in the first-level cache what is there.
template <int tile>
[[gnu::always_inline]] inline void stream_tile(const void* rows, int64_t bytes_apart) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
               :
               : "r"(rows), "r"(bytes_apart), "i"(tile)
               : "memory");
}
template <int tile>
[[gnu::always_inline]] inline void store_tile(void* rows, int64_t bytes_apart) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(rows), "r"(bytes_apart), "i"(tile)
               : "memory");
}
template <int tile>
[[gnu::always_inline]] inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
template <int c, int a, int b>
[[gnu::always_inline]] inline void add_tile_product() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}

// The tile registers of this thread, from the first shape until the end of the object: one at a
// time, and what runs meanwhile in the same thread may not use them.
class TileRegisters {
 public:
  TileRegisters() = default;
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
  ~TileRegisters() {
    if (shape_[0] >= 0) asm volatile("tilerelease");
  }

  // Rows of registers 0 and 1, of 2 and 3, of 4, and of 5; 6 and 7 have 16. All have 64 bytes a
  // row. A change clears them all, and takes as long as ten products.
  void shape(int rows01, int rows23, int rows4, int rows5) {
    if (rows01 == shape_[0] && rows23 == shape_[1] && rows4 == shape_[2] && rows5 == shape_[3])
      return;
    shape_[0] = rows01, shape_[1] = rows23, shape_[2] = rows4, shape_[3] = rows5;
    // What ldtilecfg reads.
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {};
    } config;
    const int rows[8] = {rows01, rows01, rows23, rows23, rows4, rows5, tile_rows, tile_rows};
    for (int i = 0; i < 8; ++i) config.rows[i] = static_cast<uint8_t>(rows[i]);
    asm volatile("ldtilecfg %0" : : "m"(config));
  }

 private:
  int shape_[4] = {-1, -1, -1, -1};
};

}  // namespace
}  // namespace rondo::RONDO_ISA

#endif
