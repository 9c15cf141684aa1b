// Division without the slow path that exact division branches to, for *.cu files.
#pragma once

#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {

// a / b: within 2 ulp while |b| is in [2^-126, 2^126], zero beyond that for finite a.
#if defined(__CUDACC__)
__device__ inline float divide_fast(float a, float b) { return __fdividef(a, b); }
#else
// (Within 2 ulp in the build of tests/simt/rounding.)
#if !defined(RONDO_OTHER_QUOTIENT)
#define RONDO_OTHER_QUOTIENT(a, b) ((a) / (b))
#endif
inline float divide_fast(float a, float b) {
  return std::abs(b) > 0x1p126f ? a * 0.0f : RONDO_OTHER_QUOTIENT(a, b);
}
#endif

}  // namespace rondo::RONDO_GPU
