// The tiles of pairs of bf16, summed in f32 (vdpbf16ps; it flushes subnormals to zero and rounds to
// nearest even whatever the mode).
#include "kernels/base/cpu/simd.h"

#include "kernels/conv/conv_tiles.h"

#if defined(__AVX512BF16__)

#include <utility>

#include "kernels/base/cpu/simd_rows.h"

namespace rondo::RONDO_ISA {
namespace {

constexpr int depth = 2;

struct Dot {
  static vf madd(vf acc, vf a, vf b) { return add_bf16_products(acc, a, b); }
};

#include "kernels/conv/conv_depthwise.h"
#include "kernels/conv/conv_micro.h"

}  // namespace

const ConvKernel* const conv_bf16_kernel = &kernel;

}  // namespace rondo::RONDO_ISA

#else

namespace rondo::RONDO_ISA {
const ConvKernel* const conv_bf16_kernel = nullptr;
}

#endif
