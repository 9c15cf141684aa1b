// The bf16 tile: products of pairs of bf16, summed in f32 (vdpbf16ps; it flushes subnormals to
// zero and rounds to nearest even whatever the mode).
#include "kernels/base/cpu/simd.h"

#include "kernels/gemm/gemm_blocked.h"
#include "kernels/gemm/gemm_pack.h"

#if defined(__AVX512BF16__)

#include <utility>

namespace rondo::RONDO_ISA {
namespace {

constexpr int mr = 14, nv = 2;
constexpr int depth = 2;

struct Dot {
  static vf madd(vf acc, vf a, vf b) { return add_bf16_products(acc, a, b); }
};

#include "kernels/gemm/gemm_micro.h"

constexpr GemmKernel kernel = {mr, nv* W, depth, step, pack_a, pack_b, multiply};

}  // namespace

const GemmKernel* const gemm_bf16_kernel = &kernel;

}  // namespace rondo::RONDO_ISA

#else

namespace rondo::RONDO_ISA {
const GemmKernel* const gemm_bf16_kernel = nullptr;
}

#endif
