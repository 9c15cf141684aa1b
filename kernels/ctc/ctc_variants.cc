// The table, in a file of its own: librondo_ctc.a goes without it, and so without the simulator.
#include "kernels/base/cpu.h"
#include "kernels/ctc/ctc.h"
#include "kernels/ctc/ctc_gpu.h"
#include "kernels/ctc/ctc_impl.h"

namespace rondo {
namespace {

template <void (*kernel)(const Context&, const CtcArgs&)>
void checked(const Context& context, const CtcArgs& args) {
  check_ctc(args);
  check_ctc_labels(context, args.layout, args.labels, args.label_offsets, args.max_label_length,
                   args.logits.dim(1), args.blank);
  kernel(context, args);
}

}  // namespace

// What RONDO_GPU_VARIANTS finds by name.
#ifdef RONDO_WITH_SIM
namespace sim {
constexpr auto ctc_fast_checked = checked<ctc_fast>, ctc_log_space_checked = checked<ctc_log_space>,
               ctc_without_stages_checked = checked<ctc_without_stages>;
}
#endif
#ifdef RONDO_WITH_CUDA
namespace cuda {
constexpr auto ctc_fast_checked = checked<ctc_fast>, ctc_log_space_checked = checked<ctc_log_space>,
               ctc_without_stages_checked = checked<ctc_without_stages>;
}
#endif

std::span<const Variant> ctc_variants() {
  static constexpr Variant variants[] = {
      variant<CtcArgs, checked<ctc_ref>>("ref", Backend::ref),
      variant<CtcArgs, checked<ctc_avx512>>("avx512", Backend::cpu, Role::standard, has_avx512),
      variant<CtcArgs, checked<ctc_avx2>>("avx2", Backend::cpu, Role::standard, has_avx2),
      variant<CtcArgs, checked<ctc_generic>>("generic", Backend::cpu),
      variant<CtcArgs, checked<ctc_wide_avx512>>("wide_avx512", Backend::cpu, Role::named,
                                                 has_avx512),
      variant<CtcArgs, checked<ctc_wide_avx2>>("wide_avx2", Backend::cpu, Role::named, has_avx2),
      variant<CtcArgs, checked<ctc_wide_generic>>("wide_generic", Backend::cpu, Role::named),
      RONDO_GPU_VARIANTS(CtcArgs, ctc_fast_checked, "fast", Role::standard, ctc_gpu_accepts),
      RONDO_GPU_VARIANTS(CtcArgs, ctc_log_space_checked, "log_space", Role::standard,
                         ctc_gpu_accepts),
      RONDO_GPU_VARIANTS(CtcArgs, ctc_without_stages_checked, "without_stages", Role::named,
                         ctc_without_stages_accepts),
  };
  return variants;
}

}  // namespace rondo
