// Random numbers for augmentation: a pure function of (seed, epoch, utterance, purpose), so that
// they depend neither on the order of work nor on the number of threads or ranks.
//
// Algorithm: SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
// generators"). Thread safety: one object per thread; they are cheap to make.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <utility>

#include "kernels/base/hash.h"

namespace rondo::data {

// Mixes all 64 bits.
constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t combine64(uint64_t a, uint64_t b) {
  return mix64(mix64(a + 0x9e3779b97f4a7c15u) ^ (b * 0xd6e8feb86659fd93u + 0xcafef00dd15ea5e5u));
}

// The key of an utterance from its name.
constexpr uint64_t hash_name(std::string_view name) { return mix64(fnv1a(name)); }

// What the numbers are for: two uses for one utterance must not see the same ones.
enum class Purpose : uint64_t {
  dither = 1,
  speed,
  noise,
  noise_samples,
  spec_augment,
  order,
  tie,
  draw,
  new_class,
  line_stretch,
  line_shape,
  line_background
};

class Random {
 public:
  Random(uint64_t seed, uint64_t epoch, uint64_t key, Purpose purpose)
      : state_(combine64(combine64(combine64(seed, epoch), key), static_cast<uint64_t>(purpose))) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    return mix64(state_);
  }
  // [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // [0, n); the bias is below n / 2^53.
  int64_t below(int64_t n) { return static_cast<int64_t>(uniform() * static_cast<double>(n)); }
  // Two standard normal numbers, by Box and Muller.
  std::pair<float, float> normals() {
    const uint64_t bits = next();
    // (0, 1], so that the logarithm is finite.
    const float u = static_cast<float>((bits >> 40) + 1) * 0x1.0p-24f;
    const float angle =
        static_cast<float>(bits & 0xffffffu) * (0x1.0p-24f * 2 * std::numbers::pi_v<float>);
    const float radius = std::sqrt(-2.0f * std::log(u));
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }
  float normal() { return normals().first; }

 private:
  uint64_t state_;
};

}  // namespace rondo::data
