// The sums of the resampler, compiled once per instruction set.
#include "engine/data/audio/filter_kernel.h"
#include "kernels/base/cpu/simd.h"

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

void convolve(const float* row, int64_t taps, const float* columns, int64_t count, int64_t stride,
              int64_t first, float* out) {
  constexpr int64_t at_once = 4 * W;
  static_assert(data::filter_lanes % at_once == 0);
  for (int64_t m = 0; m < data::filter_lanes; m += at_once) {
    vf a = broadcast(0), b = a, c = a, d = a;
    int64_t column = first % count;
    const float* x = columns + column * stride + first / count + m;
    for (int64_t i = 0; i < taps; ++i) {
      const vf weight = broadcast(row[i]);
      a += weight * load(x);
      b += weight * load(x + W);
      c += weight * load(x + 2 * W);
      d += weight * load(x + 3 * W);
      x += stride;
      if (++column == count) {
        column = 0;
        x -= count * stride - 1;
      }
    }
    store(out + m, a);
    store(out + m + W, b);
    store(out + m + 2 * W, c);
    store(out + m + 3 * W, d);
  }
}

}  // namespace

data::FilterKernels filter_kernels() { return {dot, convolve}; }

}  // namespace rondo::RONDO_ISA
