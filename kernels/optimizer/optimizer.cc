#include "kernels/optimizer/optimizer.h"

#include "kernels/base/variants.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

void optimizer_prepare_ref(const Context& context, const OptimizerPrepareArgs& args);
RONDO_DECLARE_KERNEL(SgdArgs, sgd)
RONDO_DECLARE_KERNEL(AdamArgs, adam)
RONDO_DECLARE_KERNEL(EmaArgs, ema)
RONDO_DECLARE_GPU(optimizer_prepare_gpu, OptimizerPrepareArgs);
RONDO_DECLARE_GPU(sgd_gpu, SgdArgs);
RONDO_DECLARE_GPU(adam_gpu, AdamArgs);
RONDO_DECLARE_GPU(ema_gpu, EmaArgs);

std::span<const Variant> optimizer_prepare_variants() {
  // A dozen scalar operations: the reference is the fast one.
  static constexpr Variant variants[] = {
      variant<OptimizerPrepareArgs, optimizer_prepare_ref>("ref", Backend::ref),
      variant<OptimizerPrepareArgs, optimizer_prepare_ref>("scalar", Backend::cpu),
      RONDO_GPU_VARIANTS(OptimizerPrepareArgs, optimizer_prepare_gpu, "portable")};
  return variants;
}

std::span<const Variant> sgd_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(SgdArgs, sgd),
      RONDO_GPU_VARIANTS(SgdArgs, sgd_gpu, "portable", Role::standard,
                         takes_narrow<&SgdArgs::weights>)};
  return variants;
}

std::span<const Variant> adam_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(AdamArgs, adam),
      RONDO_GPU_VARIANTS(AdamArgs, adam_gpu, "portable", Role::standard,
                         takes_narrow<&AdamArgs::weights>)};
  return variants;
}

std::span<const Variant> ema_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(EmaArgs, ema),
      RONDO_GPU_VARIANTS(EmaArgs, ema_gpu, "portable", Role::standard,
                         takes_narrow<&EmaArgs::weights>)};
  return variants;
}

}  // namespace rondo
