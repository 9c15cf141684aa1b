#include "kernels/base/cpu/simd.h"
#include "tests/simd/simd_functions.h"

namespace rondo::RONDO_ISA {
namespace {

template <vf f(vf)>
void map(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += W) store(y + i, f(load(x + i)));
}

void to_bf16(const float* x, uint16_t* y, int64_t n) {
  for (int64_t i = 0; i < n; i += W) store_bf16(y + i, load(x + i));
}

void from_bf16(const uint16_t* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += W) store(y + i, load_bf16(x + i));
}

}  // namespace

const SimdFunctions simd_functions = {map<exp>,     map<log>, map<tanh>,
                                      map<sigmoid>, to_bf16,  from_bf16};

}  // namespace rondo::RONDO_ISA
