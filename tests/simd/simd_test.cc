// Accuracy of kernels/base/cpu/simd.h against libm in double, over floats of every exponent.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/base/cpu.h"
#include "kernels/base/dtype.h"
#include "tests/catch.h"
#include "tests/simd/simd_functions.h"

namespace {

using rondo::SimdFunctions;

struct Isa {
  const char* name;
  const SimdFunctions* functions;
};

std::vector<Isa> isas() {
  std::vector<Isa> list = {{"generic", &rondo::isa_generic::simd_functions}};
  if (rondo::cpu_features().avx2) list.push_back({"avx2", &rondo::isa_avx2::simd_functions});
  if (rondo::cpu_features().avx512) list.push_back({"avx512", &rondo::isa_avx512::simd_functions});
  return list;
}

// Every `step`-th bit pattern: all exponents, both signs, subnormals, infinities and NaNs.
std::vector<float> floats(uint32_t step) {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  const float edges[] = {
      0.0f,    -0.0f,   1.0f,     -1.0f,     88.72283f, 88.72284f, -87.33655f,
      -103.9f, -104.5f, 0.625f,   -0.625f,   0x1p-126f, 0x1p-149f, 0x1.fffffep-127f,
      1e30f,   -1e30f,  INFINITY, -INFINITY, NAN,       -NAN,      0x1.fffffep127f};
  x.insert(x.end(), std::begin(edges), std::end(edges));
  x.resize((x.size() + 15) / 16 * 16, 0.5f);
  return x;
}

// In units of the last place that a float has at `want`.
double ulps_off(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isnan(got)) return INFINITY;
  const auto rounded = static_cast<float>(want);
  if (std::isinf(rounded) || std::isinf(got)) {
    return got == rounded ? 0 : INFINITY;
  }
  const int exponent = std::max(want == 0 ? -126 : std::ilogb(want), -126);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

struct Worst {
  double ulps = 0;
  float x = 0, got = 0;
  double want = 0;
};

using Vector = void (*)(const float*, float*, int64_t);

Worst worst_of(Vector f, const std::vector<float>& x, const std::vector<double>& want) {
  std::vector<float> y(x.size(), -7.0f);
  f(x.data(), y.data(), static_cast<int64_t>(x.size()));
  Worst worst;
  for (size_t i = 0; i < x.size(); ++i) {
    const double off = ulps_off(y[i], want[i]);
    if (!(off <= worst.ulps)) worst = {off, x[i], y[i], want[i]};
  }
  return worst;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void check_all(uint32_t step, bool print) {
  struct Function {
    const char* name;
    Vector SimdFunctions::*vector;
    double (*exact)(double);
    double bound;  // stated in kernels/base/cpu/simd.h
  };
  const Function functions[] = {
      {"exp", &SimdFunctions::exp, [](double v) { return std::exp(v); }, 1.1},
      {"log", &SimdFunctions::log, [](double v) { return std::log(v); }, 0.9},
      {"tanh", &SimdFunctions::tanh, [](double v) { return std::tanh(v); }, 1.4},
      {"sigmoid", &SimdFunctions::sigmoid, sigmoid, 2.8},
  };
  const std::vector<float> x = floats(step);
  for (const Function& f : functions) {
    std::vector<double> want;
    for (float v : x) want.push_back(f.exact(static_cast<double>(v)));
    for (const Isa& isa : isas()) {
      const Worst w = worst_of(isa.functions->*f.vector, x, want);
      if (print) {
        std::printf("%-8s %-8s %.3f ulp at %.9g (%.9g, exact %.12g)\n", f.name, isa.name, w.ulps,
                    static_cast<double>(w.x), static_cast<double>(w.got), w.want);
      }
      INFO(f.name << " " << isa.name << " at " << w.x << ": " << w.got << ", exact " << w.want);
      CHECK(w.ulps <= f.bound);
    }
  }
}

}  // namespace

TEST_CASE("exp, log, tanh and sigmoid keep their stated accuracy") { check_all(16381, false); }

// Run by the suite `full`; prints what kernels/base/cpu/simd.h states.
TEST_CASE("the same over a denser grid", "[.][dense]") { check_all(509, true); }

TEST_CASE("bf16 loads and stores agree with rondo::bf16") {
  std::vector<float> x = floats(16381);
  for (const Isa& isa : isas()) {
    INFO(isa.name);
    std::vector<uint16_t> stored(x.size());
    isa.functions->to_bf16(x.data(), stored.data(), static_cast<int64_t>(x.size()));
    size_t wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) wrong += stored[i] != rondo::bf16(x[i]).bits;
    CHECK(wrong == 0);

    std::vector<uint16_t> all(1 << 16);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    std::vector<float> loaded(all.size());
    isa.functions->from_bf16(all.data(), loaded.data(), static_cast<int64_t>(all.size()));
    for (size_t i = 0; i < all.size(); ++i) {
      wrong += std::bit_cast<uint32_t>(loaded[i]) != static_cast<uint32_t>(i) << 16;
    }
    CHECK(wrong == 0);
  }
}

#if defined(__x86_64__)
TEST_CASE("the processor can do what Linux says that it can") {
  if (std::getenv("RONDO_ISA") != nullptr) return;
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) {
  }
  std::istringstream words(line);
  const std::set<std::string> flags{std::istream_iterator<std::string>(words), {}};
  if (flags.empty()) return;
  const auto all = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(),
                       [&](const char* n) { return flags.contains(n); });
  };
  const rondo::CpuFeatures& f = rondo::cpu_features();
  CHECK(f.avx2 == all({"avx2", "fma", "f16c"}));
  CHECK(f.avx512 == (f.avx2 && all({"avx512f", "avx512bw", "avx512dq", "avx512vl"})));
  CHECK(f.avx512_vnni == (f.avx512 && all({"avx512_vnni"})));
  CHECK(f.avx512_bf16 == (f.avx512 && all({"avx512_bf16"})));
  // The system may refuse the tiles to a process.
  CHECK((!f.amx || all({"amx_tile", "amx_bf16"})));
}
#endif
