// The sums of the resampler. For resample.cc alone.
#pragma once

#include <cstdint>

namespace rondo::data {

struct FilterKernels {
  // The inner product of two arrays of n floats.
  float (*dot)(const float* a, const float* b, int64_t n);
  // out[m] = sum over the taps i of row[i] * x(first + i)[m], for m in [0, filter_lanes). x(k) is
  // column k mod `count` of those at `columns`, from element k / count on; column k begins `stride`
  // floats after column k - 1.
  void (*convolve)(const float* row, int64_t taps, const float* columns, int64_t count,
                   int64_t stride, int64_t first, float* out);
};
constexpr int64_t filter_lanes = 64;

}  // namespace rondo::data

namespace rondo::isa_generic {
data::FilterKernels filter_kernels();
}
namespace rondo::isa_avx2 {
data::FilterKernels filter_kernels();
}
namespace rondo::isa_avx512 {
data::FilterKernels filter_kernels();
}
