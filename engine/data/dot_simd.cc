// The inner product of the resampler, compiled once per instruction set.
#include "engine/data/dot_kernel.h"
#include "kernels/base/simd.h"

namespace rondo::RONDO_ISA {
namespace {

float dot(const float* a, const float* b, int64_t n) {
  vf first = broadcast(0), second = broadcast(0);
  int64_t i = 0;
  for (; i + 2 * W <= n; i += 2 * W) {
    first += load(a + i) * load(b + i);
    second += load(a + i + W) * load(b + i + W);
  }
  for (; i + W <= n; i += W) first += load(a + i) * load(b + i);
  float rest = 0;
  for (; i < n; ++i) rest += a[i] * b[i];
  return sum(first + second) + rest;
}

}  // namespace

data::DotKernel dot_kernel() { return dot; }

}  // namespace rondo::RONDO_ISA
