#include "bench/cases/peers/lstm_step.h"

#include "kernels/base/dispatch.h"
#include "kernels/lstm/lstm_gpu.h"

namespace rondo {
namespace {

// By the variants that run() chooses.
void lstm_step(const Context& context, const LstmStepArgs& a) {
  run(context, a.forward);
  run(context, a.backward);
  run(context, a.weight_grad);
}

template <bool (*accepts)(const Context&, const void*)>
bool step_accepts(const Context& context, const void* args) {
  return accepts(context, args ? &static_cast<const LstmStepArgs*>(args)->forward : nullptr);
}

}  // namespace

std::span<const Variant> lstm_step_variants() {
  static constexpr Variant variants[] = {
      variant<LstmStepArgs, lstm_step>("ref", Backend::ref),
      variant<LstmStepArgs, lstm_step>("composed", Backend::cpu),
      variant<LstmStepArgs, lstm_step>("composed", Backend::sim, Role::standard,
                                       step_accepts<lstm_gpu_accepts<LstmForwardArgs>>),
#ifdef RONDO_WITH_CUDA
      variant<LstmStepArgs, lstm_step>("composed", Backend::cuda, Role::standard,
                                       step_accepts<lstm_gpu_accepts<LstmForwardArgs>>),
#endif
  };
  return variants;
}

}  // namespace rondo
