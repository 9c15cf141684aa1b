// The table, in a file of its own: librondo_ctc.a goes without it, and so without the simulator.
#include "kernels/base/cpu.h"
#include "kernels/ctc/ctc.h"
#include "kernels/ctc/ctc_gpu.h"
#include "kernels/ctc/ctc_impl.h"

namespace rondo {

std::span<const Variant> ctc_variants() {
  static constexpr Variant variants[] = {
    variant<CtcArgs, ctc_ref>("ref", Backend::ref),
    variant<CtcArgs, ctc_avx512>("avx512", Backend::cpu, Role::standard, has_avx512),
    variant<CtcArgs, ctc_avx2>("avx2", Backend::cpu, Role::standard, has_avx2),
    variant<CtcArgs, ctc_generic>("generic", Backend::cpu),
    variant<CtcArgs, ctc_wide_avx512>("wide_avx512", Backend::cpu, Role::named, has_avx512),
    variant<CtcArgs, ctc_wide_avx2>("wide_avx2", Backend::cpu, Role::named, has_avx2),
    variant<CtcArgs, ctc_wide_generic>("wide_generic", Backend::cpu, Role::named),
    RONDO_GPU_VARIANTS(CtcArgs, ctc_fast, "fast", Role::standard, ctc_gpu_accepts),
    RONDO_GPU_VARIANTS(CtcArgs, ctc_log_space, "log_space", Role::standard, ctc_gpu_accepts),
#if defined(RONDO_WITH_CUDA) && __has_include(<cudnn.h>)
    variant<CtcArgs, ctc_cudnn>("cudnn", Backend::cuda, Role::peer, ctc_cudnn_accepts),
#endif
  };
  return variants;
}

}  // namespace rondo
