// Philox4x32-10 and the numbers dropout derives from it; see kernels/dropout/dropout.h.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace rondo {

struct Philox {
  static constexpr uint32_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  static constexpr uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  static constexpr int rounds = 10;
};

// Replaces the counter by its random words.
[[gnu::always_inline]] RONDO_HOST_DEVICE inline constexpr void philox4x32(uint32_t (&counter)[4],
                                                                          uint64_t key) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < Philox::rounds; ++round) {
    const uint64_t p0 = uint64_t{Philox::multiplier0} * counter[0];
    const uint64_t p1 = uint64_t{Philox::multiplier1} * counter[2];
    counter[0] = static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0;
    counter[1] = static_cast<uint32_t>(p1);
    counter[2] = static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1;
    counter[3] = static_cast<uint32_t>(p0);
    k0 += Philox::weyl0;
    k1 += Philox::weyl1;
  }
}

constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, uint64_t key) {
  uint32_t words[4] = {counter[0], counter[1], counter[2], counter[3]};
  philox4x32(words, key);
  return {words[0], words[1], words[2], words[3]};
}

// Mixes seed and layer into one key (the finaliser of splitmix64: a bijection of the seed for each
// layer).
[[gnu::always_inline]] RONDO_HOST_DEVICE inline constexpr uint64_t dropout_key(uint64_t step_seed,
                                                                               uint32_t layer) {
  uint64_t z = step_seed + 0x9e3779b97f4a7c15ull * (uint64_t{layer} + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// round(p * 2^32) for p in [0, 1), at most 2^32 - 1.
[[gnu::always_inline]] inline constexpr uint32_t dropout_threshold(double p) {
  const double scaled = p * 4294967296.0 + 0.5;
  return scaled >= 4294967295.0 ? 0xffffffffu : static_cast<uint32_t>(scaled);
}

}  // namespace rondo
