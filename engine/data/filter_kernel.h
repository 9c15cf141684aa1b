// The sums of the resampler. For resample.cc alone.
#pragma once

#include <cstdint>

namespace rondo::data {

struct FilterKernels {
  // The inner product of two arrays of n floats.
  float (*dot)(const float* a, const float* b, int64_t n);
  // out[m] = sum over the taps of row[i] * in[offsets[i] + m], for m in [0, n). `in` and `out` can
  // be read and written up to the next multiple of filter_lanes.
  void (*convolve)(const float* row, const int64_t* offsets, int64_t taps, const float* in,
                   int64_t n, float* out);
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
