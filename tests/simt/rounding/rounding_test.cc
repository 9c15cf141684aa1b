// No case of checkop may depend on how the host rounds: its bounds are for GPUs, whose compiler
// fuses products and sums and whose functions are off by other amounts than the host's.
//
// A name as an argument ("[errors]") runs one test; RONDO_LIBM_ULPS sets the error of the first.
#include "tests/simt/rounding/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/cases/check/check.h"
#include "kernels/base/cpu.h"
#include "kernels/devices.h"
#include "tests/catch.h"

namespace rondo::test {
namespace {

// (avx2: with FMA.)
const bool can_fuse = [] {
#if defined(__x86_64__)
  if (!cpu_features().avx2) {
    std::printf("skipped: this processor fuses no products and sums\n");
    std::exit(77);
  }
#endif
  return true;
}();

check::Summary run(check::Options options, int ulps) {
  REQUIRE(can_fuse);
  set_libm_error(ulps);
  options.backend = "sim";
  options.orders = 1;
  options.peers = false;
  return check::run_suite(check::full_suite(), options);
}

TEST_CASE("kernels are compiled and linked with another rounding", "[build]") {
  // The square has twice as many bits: what rounding took away is left where nothing rounds before
  // the sum.
  const float a = 1 + 0x1p-23f, rounded = 1 + 0x1p-22f;
  CHECK(product_and_sum(a, a, -rounded) == std::fma(a, a, -rounded));
  CHECK(product_and_sum(a, a, -rounded) != 0);
  set_libm_error(gpu_libm_ulps);
  int moved = 0;
  double largest = 0;
  for (int i = 0; i < 1000; ++i) {
    const float x = static_cast<float>(i - 500) * 0.01f, exact = std::exp(x);
    const float got = kernels_exp(x);
    CHECK(kernels_exp(x) == got);
    moved += got != exact;
    largest = std::max(largest, double{std::abs(got - exact) / exact});
  }
  CHECK(moved > 700);
  CHECK(largest > 1.5 * 0x1p-23);
  CHECK(largest <= 2 * 0x1p-23);
}

TEST_CASE("no case depends on the host's rounding", "[cases]") {
  const char* const asked = std::getenv("RONDO_LIBM_ULPS");
  const check::Summary all = run({}, asked ? std::atoi(asked) : gpu_libm_ulps);
  CHECK(all.failed == 0);
  CHECK(all.passed > 5000);
}

// What would not notice these would not notice a wrong function either.
TEST_CASE("errors of ten thousand units are noticed in every op that calls such functions",
          "[errors]") {
  for (const std::string op :
       {"lstm_forward", "lstm_backward", "ctc/", "ctc_chunk", "linear_ctc", "pointwise/",
        "log_softmax", "cross_entropy", "optimizer_prepare", "beam_search"}) {
    INFO(op);
    check::Options options;
    options.filters = {op};
    options.parts = 20;
    CHECK(run(options, 10000).failed > 0);
  }
}

}  // namespace
}  // namespace rondo::test
