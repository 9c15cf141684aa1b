// Rank-one updates of a thread's tile of sums, for *.cu files.
#pragma once

#include "kernels/simt/simt.h"
#if !defined(__CUDACC__)
#include "kernels/simt/sim/outer_product_sim.h"
#endif

namespace rondo::RONDO_GPU {

// sums[i][j] = fma(a[i], b[j], sums[i][j]), a being `upper` and then `lower`.
__device__ inline void add_outer_product(float (&sums)[8][4], const float (&upper)[4],
                                         const float (&lower)[4], const float (&b)[4]) {
#if defined(__CUDACC__)
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      sums[i][j] = fmaf(upper[i], b[j], sums[i][j]);
      sums[i + 4][j] = fmaf(lower[i], b[j], sums[i + 4][j]);
    }
  }
#else
  simt::add_outer_product(sums, upper, b);
  simt::add_outer_product(sums + 4, lower, b);
#endif
}

}  // namespace rondo::RONDO_GPU
