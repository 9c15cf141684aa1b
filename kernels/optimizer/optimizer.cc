#include "kernels/optimizer/optimizer.h"

#include "kernels/optimizer/optimizer_impl.h"

namespace rondo {

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
