// The f32 tile, compiled once per instruction set (kernels/base/cpu/simd.h). bf16 inputs are
// widened while packing.
#include "kernels/base/cpu/simd.h"

#include <utility>

#include "kernels/gemm/gemm_blocked.h"
#include "kernels/gemm/gemm_pack.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rondo::RONDO_ISA {
namespace {

// As many accumulators as the registers hold beside the vectors of b and one of a.
#if defined(__AVX512F__)
constexpr int mr = 14, nv = 2;
#elif defined(__AVX2__)
constexpr int mr = 6, nv = 2;
#else
constexpr int mr = 4, nv = 2;
#endif
constexpr int depth = 1;

vf madd(vf a, vf b, vf c);
struct Dot {
  static vf madd(vf acc, vf a, vf b) { return RONDO_ISA::madd(a, b, acc); }
};

#include "kernels/gemm/gemm_micro.h"

constexpr GemmKernel kernel = {mr, nv* W, depth, step, pack_a, pack_b, multiply};

}  // namespace

const GemmKernel* const gemm_f32_kernel = &kernel;

}  // namespace rondo::RONDO_ISA
