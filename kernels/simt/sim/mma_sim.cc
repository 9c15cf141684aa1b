#include "kernels/simt/sim/mma_sim.h"

#include <cstring>

namespace rondo::simt {
namespace {

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
// One half of a pair of bf16.
float half_of(uint32_t pair, int upper) {
  return float_of(upper ? pair & 0xffff0000u : pair << 16);
}

// c = a b, and what each lane has of it.
template <int depth>
void multiply(const float (&a)[16][depth], const float (&b)[depth][8], Exchange::Slots& slots) {
  float c[16][8] = {};
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < depth; ++k) {
      for (int j = 0; j < 8; ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, q = lane % 4;
    const MmaProduct out = {{c[g][2 * q], c[g][2 * q + 1], c[g + 8][2 * q], c[g + 8][2 * q + 1]}};
    std::memcpy(slots.bytes[lane], &out, sizeof out);
  }
}

MmaOperands operands_of(const Exchange::Slots& slots, int lane) {
  MmaOperands in;
  std::memcpy(&in, slots.bytes[lane], sizeof in);
  return in;
}

}  // namespace

void mma_tile(Exchange::Slots& slots) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaOperands in = operands_of(slots, lane);
    const int g = lane / 4, q = lane % 4;
    for (int r = 0; r < 4; ++r) {
      for (int h = 0; h < 2; ++h) a[g + r % 2 * 8][2 * q + r / 2 * 8 + h] = half_of(in.a[r], h);
    }
    for (int r = 0; r < 2; ++r) {
      for (int h = 0; h < 2; ++h) b[2 * q + r * 8 + h][g] = half_of(in.b[r], h);
    }
  }
  multiply(a, b, slots);
}

void mma_tile_tf32(Exchange::Slots& slots) {
  float a[16][8], b[8][8];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaOperands in = operands_of(slots, lane);
    const int g = lane / 4, q = lane % 4;
    for (int r = 0; r < 4; ++r) a[g + r % 2 * 8][q + r / 2 * 4] = float_of(in.a[r]);
    for (int r = 0; r < 2; ++r) b[q + r * 4][g] = float_of(in.b[r]);
  }
  multiply(a, b, slots);
}

}  // namespace rondo::simt
