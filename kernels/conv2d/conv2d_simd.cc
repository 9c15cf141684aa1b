// The tiles of floats, compiled once per instruction set (kernels/base/cpu/simd.h).
#include <utility>

#include "kernels/base/cpu/simd_rows.h"
#include "kernels/conv2d/conv2d_tiles.h"

namespace rondo::RONDO_ISA {
namespace {

constexpr int depth = 1;

struct Dot {
  // fma where there is one; never left to the compiler's contraction, which may differ by tile.
  static vf madd(vf acc, vf a, vf b) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, acc);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(a, b, acc);
#else
    return a * b + acc;
#endif
  }
};

#include "kernels/conv2d/conv2d_micro.h"

}  // namespace

const Conv2dKernel* const conv2d_kernel = &kernel;

}  // namespace rondo::RONDO_ISA
