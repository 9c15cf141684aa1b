#include "kernels/simt/mma_sim.h"

#include <cstring>

namespace rondo::simt {
namespace {

float half_of(uint32_t pair, int upper) {
  const uint32_t bits = upper ? pair & 0xffff0000u : pair << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

void mma_tile(Exchange::Slots& slots) {
  float a[16][16], b[16][8], c[16][8] = {};
  for (int lane = 0; lane < 32; ++lane) {
    MmaOperands in;
    std::memcpy(&in, slots.bytes[lane], sizeof in);
    const int g = lane / 4, q = lane % 4;
    for (int r = 0; r < 4; ++r) {
      for (int h = 0; h < 2; ++h) a[g + r % 2 * 8][2 * q + r / 2 * 8 + h] = half_of(in.a[r], h);
    }
    for (int r = 0; r < 2; ++r) {
      for (int h = 0; h < 2; ++h) b[2 * q + r * 8 + h][g] = half_of(in.b[r], h);
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 8; ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, q = lane % 4;
    const MmaProduct out = {{c[g][2 * q], c[g][2 * q + 1], c[g + 8][2 * q], c[g + 8][2 * q + 1]}};
    std::memcpy(slots.bytes[lane], &out, sizeof out);
  }
}

}  // namespace rondo::simt
