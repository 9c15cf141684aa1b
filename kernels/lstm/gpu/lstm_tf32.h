// f32 products by tensor cores, three TF32 products for one: what the persistent LSTM kernels
// share. For *.cu files of kernels/lstm.
//
// A number is split into high + low, both TF32 (11 bits); low * low is left out. (Ootomo and
// Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
// theoretical peak performance", 2022.) What is not finite becomes NaN.
#pragma once

#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {

constexpr uint32_t tf32_bits = ~0x1fffu;

// `high` is rounded to nearest, `low` cut: a product of two numbers so split is off by 2^-21 of
// itself at most, in either direction.
__device__ inline void split_tf32(float x, uint32_t& high, uint32_t& low) {
  high = (__float_as_uint(x) + 0x1000u) & tf32_bits;
  low = __float_as_uint(x - __uint_as_float(high)) & tf32_bits;
}

// x such that high is x & tf32_bits and low the rest, two instructions instead of four: rounded to
// 22 bits. Times a number split by split_tf32() the product is off by 2^-20 of itself at most: low
// is up to twice as large as there, but the other factor's has either sign. Below 2^-100, where
// `low` would have no room, to 11 bits.
__device__ inline uint32_t presplit_tf32(float x) {
  constexpr uint32_t exponent_bits = 0x7f800000u, smallest = 27u << 23, quiet_nan = 0x7fc00000u;
  const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
  if (magnitude > exponent_bits) return quiet_nan;
  return magnitude < smallest ? bits & tf32_bits : (bits + 2) & ~3u;
}

struct alignas(16) Four {
  float v[4];
};

}  // namespace rondo::RONDO_GPU
