// grid_sync(), for all threads of a cooperative launch: what any of them wrote before, all see
// after. Apart from kernels/simt/simt.h because on GPUs it is cooperative_groups', a header that
// takes nvcc longer than most kernels do.
#pragma once

#if defined(__CUDACC__)
#include <cooperative_groups.h>
#endif

#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {

#if defined(__CUDACC__)
__device__ inline void grid_sync() { cooperative_groups::this_grid().sync(); }
#else
inline void grid_sync(simt::Where w = simt::Where::current()) { simt::grid_sync(w); }
#endif

}  // namespace rondo::RONDO_GPU
