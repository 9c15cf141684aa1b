#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "tests/simt/rounding/rounding.h"

namespace rondo::test {
namespace {

int most_ulps = gpu_libm_ulps;

uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

// `exact`, up to most_ulps away: as far for the same arguments each time, for others by chance.
// Zero, infinity and NaN stay what they are, and no error leads to one of them or to another sign.
// So do results for 0, which are exact on GPUs as well (ex2.approx of 0 is 1, says the PTX ISA):
// kernels rely on it that the class they subtract has the probability 1 before it is divided, in
// every frame.
template <class T>
T off(T exact, uint64_t function, T x, T y = 0) {
  if (exact == 0 || !std::isfinite(exact) || x == 0) return exact;
  using Bits = BitsOf<T>;
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  const auto bits = std::bit_cast<Bits>(exact);
  const uint64_t hash =
      mixed(std::bit_cast<Bits>(x) + mixed(std::bit_cast<Bits>(y) + mixed(function)));
  const int64_t ulps =
      static_cast<int64_t>(hash % (2 * static_cast<uint64_t>(most_ulps) + 1)) - most_ulps;
  const auto moved = static_cast<Bits>(bits + static_cast<Bits>(ulps));
  const T result = std::bit_cast<T>(moved);
  return (moved & sign) == (bits & sign) && result != 0 && std::isfinite(result) ? result : exact;
}

}  // namespace

void set_libm_error(int ulps) { most_ulps = ulps; }

}  // namespace rondo::test

extern "C" {
#define RONDO_OTHER(function, number)                                                         \
  double other_##function(double x) { return rondo::test::off(std::function(x), number, x); } \
  float other_##function##f(float x) { return rondo::test::off(std::function(x), number, x); }
RONDO_OTHER(exp, 1)
RONDO_OTHER(exp2, 2)
RONDO_OTHER(expm1, 3)
RONDO_OTHER(log, 4)
RONDO_OTHER(log1p, 5)
RONDO_OTHER(log2, 6)
RONDO_OTHER(tanh, 7)
#undef RONDO_OTHER
double other_pow(double x, double y) { return rondo::test::off(std::pow(x, y), 8, x, y); }
float other_powf(float x, float y) { return rondo::test::off(std::pow(x, y), 8, x, y); }
float other_quotient(float a, float b) { return rondo::test::off(a / b, 9, a, b); }
}
