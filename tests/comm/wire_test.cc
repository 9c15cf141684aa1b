// What Wire::bf16 does to numbers, against rondo::bf16 element by element, to the bit.
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "comm/group/wire_arithmetic.h"
#include "kernels/base/cpu.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

struct Isa {
  const char* name;
  const WireArithmetic* arithmetic;
};

std::vector<Isa> isas() {
  std::vector<Isa> all = {{"generic", &isa_generic::wire_arithmetic}};
  if (cpu_features().avx2) all.push_back({"avx2", &isa_avx2::wire_arithmetic});
  if (cpu_features().avx512) all.push_back({"avx512", &isa_avx512::wire_arithmetic});
  return all;
}

// Every exponent with every kind of lower half: exact, ties under even and odd neighbours, just off
// ties, about to carry into the exponent. Zeros, subnormals, infinities and NaNs of both signs, the
// quiet and the signalling, among them such as lose all payload with the lower half.
std::vector<float> numbers() {
  std::vector<float> all;
  for (uint32_t upper = 0; upper < 0x10000u; upper += 1) {
    const uint32_t within = upper & 0x7fu;  // of the mantissa
    if (within > 2 && within < 0x7e && within != 0x40) continue;
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      all.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return all;
}

uint32_t bits(float v) { return std::bit_cast<uint32_t>(v); }
float rounded(float v) { return static_cast<float>(bf16(v)); }

// Places where two arrays differ, NaNs by their bits.
template <class T>
size_t differences(const std::vector<T>& a, const std::vector<T>& b) {
  REQUIRE(a.size() == b.size());
  size_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) n += std::memcmp(&a[i], &b[i], sizeof(T)) != 0 ? 1 : 0;
  return n;
}

}  // namespace

TEST_CASE("numbers are rounded for the wire to the bits of rondo::bf16", "[wire]") {
  const std::vector<float> x = numbers();
  const auto n = static_cast<int64_t>(x.size());
  std::vector<bf16> expected;
  for (float v : x) expected.push_back(bf16(v));
  std::vector<float> wide;
  for (bf16 v : expected) wide.push_back(static_cast<float>(v));
  for (const Isa& isa : isas()) {
    INFO(isa.name);
    std::vector<bf16> narrow(x.size());
    isa.arithmetic->narrow(x.data(), narrow.data(), n);
    CHECK(differences(narrow, expected) == 0);
    std::vector<float> back(x.size());
    isa.arithmetic->widen(narrow.data(), back.data(), n);
    CHECK(differences(back, wide) == 0);
  }
}

TEST_CASE("what arrives is added in f32, and rounded where it stays", "[wire]") {
  // Each number with one of another size and sign. Of two NaNs the processor may keep either.
  const std::vector<float> x = numbers();
  std::vector<bf16> more;
  for (size_t i = 0; i < x.size(); ++i) {
    const float other = x[(i * 7919 + 31) % x.size()];
    more.push_back(bf16(std::isnan(x[i]) && std::isnan(other) ? 1.5f : other));
  }
  std::vector<float> sums, rounded_sums;
  size_t finite = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sums.push_back(x[i] + static_cast<float>(more[i]));
    rounded_sums.push_back(rounded(sums.back()));
    finite += std::isfinite(sums.back()) && bits(sums.back()) != bits(rounded_sums.back()) ? 1 : 0;
  }
  CHECK(finite > x.size() / 4);  // rounding does something
  for (const Isa& isa : isas()) {
    INFO(isa.name);
    std::vector<float> y = x;
    isa.arithmetic->add(y.data(), more.data(), static_cast<int64_t>(y.size()));
    // inf - inf makes a NaN whose sign is the processor's choice.
    for (size_t i = 0; i < y.size(); ++i) {
      if (std::isnan(y[i]) && std::isnan(sums[i])) y[i] = sums[i];
    }
    CHECK(differences(y, sums) == 0);
    y = x;
    isa.arithmetic->add_and_round(y.data(), more.data(), static_cast<int64_t>(y.size()));
    for (size_t i = 0; i < y.size(); ++i) {
      if (std::isnan(y[i]) && std::isnan(sums[i])) y[i] = rounded_sums[i];
    }
    CHECK(differences(y, rounded_sums) == 0);
  }
}

TEST_CASE("arrays of every length, aligned as their elements, and nothing beside them", "[wire]") {
  constexpr size_t longest = 70, around = 20;
  for (const Isa& isa : isas()) {
    for (size_t n = 0; n <= longest; ++n) {
      for (const size_t skew : {0u, 1u, 3u}) {
        CAPTURE(isa.name, n, skew);
        std::vector<float> x(longest + around), y(x.size(), -3.0f), sums(x.size(), 2.0f);
        std::vector<bf16> narrow(x.size(), bf16(-3.0f));
        std::vector<float> want_y = y, want_sums = sums, want_rounded = sums;
        std::vector<bf16> want_narrow = narrow;
        for (size_t i = 0; i < x.size(); ++i) x[i] = 0.1f * static_cast<float>(i + 1);
        for (size_t i = skew; i < skew + n; ++i) {
          want_narrow[i] = bf16(x[i]);
          want_y[i] = rounded(x[i]);
          want_sums[i] = 2.0f + rounded(x[i]);
          want_rounded[i] = rounded(want_sums[i]);
        }
        const auto count = static_cast<int64_t>(n);
        isa.arithmetic->narrow(x.data() + skew, narrow.data() + skew, count);
        CHECK(differences(narrow, want_narrow) == 0);
        isa.arithmetic->widen(narrow.data() + skew, y.data() + skew, count);
        CHECK(differences(y, want_y) == 0);
        std::vector<float> kept = sums;
        isa.arithmetic->add(kept.data() + skew, narrow.data() + skew, count);
        CHECK(differences(kept, want_sums) == 0);
        isa.arithmetic->add_and_round(sums.data() + skew, narrow.data() + skew, count);
        CHECK(differences(sums, want_rounded) == 0);
      }
    }
  }
}
