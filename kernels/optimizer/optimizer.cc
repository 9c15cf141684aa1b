#include "kernels/optimizer/optimizer.h"

#include "kernels/optimizer/optimizer_impl.h"

namespace rondo {

std::span<const Variant> optimizer_prepare_variants() {
  // A dozen scalar operations: the reference is the fast one.
  static constexpr Variant variants[] = {
      variant<OptimizerPrepareArgs, optimizer_prepare_ref>("ref", Backend::ref),
      variant<OptimizerPrepareArgs, optimizer_prepare_ref>("scalar", Backend::cpu)};
  return variants;
}

std::span<const Variant> sgd_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(SgdArgs, sgd)};
  return variants;
}

std::span<const Variant> adam_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(AdamArgs, adam)};
  return variants;
}

std::span<const Variant> ema_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(EmaArgs, ema)};
  return variants;
}

}  // namespace rondo
