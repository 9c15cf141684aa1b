#include "kernels/lstm/stack/lstm_stack.h"

#include <algorithm>

#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/lstm/lstm_gpu.h"
#include "kernels/lstm/lstm_impl.h"
#include "kernels/lstm/stack/lstm_stack_impl.h"
#include "kernels/lstm/stack/lstm_wavefront.h"

namespace rondo {
namespace {

// What holds of either direction of the pass.
template <class Args>
void check_layers(const Args& a) {
  RONDO_CHECK(!a.layers.empty() && a.layers.size() <= lstm_stack_layers, "lstm: a stack of ",
              a.layers.size(), " layers, expected 1 to ", lstm_stack_layers);
  const auto& lowest = a.layers.front();
  for (size_t l = 0; l < a.layers.size(); ++l) {
    const auto& layer = a.layers[l];
    check_lstm(layer);
    RONDO_CHECK(layer.dims.directions == 1 && layer.run == LstmRun::both, "lstm: layer ", l,
                " of a stack has ", layer.dims.directions, " directions");
    RONDO_CHECK(lstm_compute_dtype(layer) == lstm_compute_dtype(lowest) &&
                    layer.layout.extent == lowest.layout.extent &&
                    layer.layout.capacity == lowest.layout.capacity,
                "lstm: layer ", l, " of a stack is of another batch or dtype than the lowest");
  }
}

void stack_forward_ref(const Context& context, const LstmStackForwardArgs& a) {
  check_lstm_stack(a);
  for (const LstmForwardArgs& layer : a.layers) lstm_forward_ref(context, layer);
}
void stack_backward_ref(const Context& context, const LstmStackBackwardArgs& a) {
  check_lstm_stack(a);
  for (size_t l = a.layers.size(); l-- > 0;) lstm_backward_ref(context, a.layers[l]);
}

// By the variants that run() chooses.
void stack_forward_layers(const Context& context, const LstmStackForwardArgs& a) {
  check_lstm_stack(a);
  for (LstmForwardArgs layer : a.layers) {
    layer.workspace = a.workspace;
    run(context, layer);
  }
}
void stack_backward_layers(const Context& context, const LstmStackBackwardArgs& a) {
  check_lstm_stack(a);
  for (size_t l = a.layers.size(); l-- > 0;) {
    LstmBackwardArgs layer = a.layers[l];
    layer.workspace = a.workspace;
    run(context, layer);
  }
}

template <class Args>
bool gpu_layers_accept(const Context& context, const void* args) {
  using LayerArgs = typename decltype(Args::layers)::value_type;
  return !args ||
         lstm_gpu_accepts<LayerArgs>(context, &static_cast<const Args*>(args)->layers.front());
}

}  // namespace

void check_lstm_stack(const LstmStackForwardArgs& a) {
  check_layers(a);
  for (size_t l = 1; l < a.layers.size(); ++l) {
    RONDO_CHECK(a.layers[l].x.data == a.layers[l - 1].y.data, "lstm: layer ", l,
                " of a stack does not read what the one below writes");
  }
}

void check_lstm_stack(const LstmStackBackwardArgs& a) {
  check_layers(a);
  for (size_t l = 1; l < a.layers.size(); ++l) {
    RONDO_CHECK(a.layers[l - 1].dy.data == a.layers[l].dx.data, "lstm: layer ", l - 1,
                " of a stack does not read the gradient that the one above writes");
  }
}

size_t lstm_stack_workspace_bytes(const Context& context, LstmPhase phase,
                                  std::span<const LstmDims> layers, DType compute,
                                  const PackedCapacity& capacity) {
  size_t bytes = 0;
  for (const LstmDims& dims : layers) {
    bytes = std::max(bytes, lstm_workspace_bytes(context, phase, dims, compute, capacity));
  }
  if (context.backend == Backend::sim || context.backend == Backend::cuda) {
    const LstmWavefront wavefront = lstm_wavefront(layers, capacity);
    bytes = std::max(bytes, lstm_wavefront_bytes(context, phase, wavefront, compute, capacity));
  }
  return bytes;
}

// `wavefront` is there to be asked for.
#define RONDO_STACK_ON(BACKEND, space, backend, Args, stem)                                 \
  variant<Args, stem##_layers>("layers", backend, Role::standard, gpu_layers_accept<Args>), \
      BACKEND(Args, lstm_##stem##_wavefront, "wavefront", Role::named,                      \
              space::lstm_##stem##_wavefront_accepts)
#define RONDO_CPU_STACK(Args, stem)               \
  variant<Args, stem##_ref>("ref", Backend::ref), \
      variant<Args, stem##_layers>("layers", Backend::cpu)
#ifdef RONDO_WITH_CUDA
#define RONDO_STACK(Args, stem)                                                                  \
  RONDO_CPU_STACK(Args, stem), RONDO_STACK_ON(RONDO_SIM_VARIANT, sim, Backend::sim, Args, stem), \
      RONDO_STACK_ON(RONDO_CUDA_VARIANT, cuda, Backend::cuda, Args, stem)
#else
#define RONDO_STACK(Args, stem) \
  RONDO_CPU_STACK(Args, stem), RONDO_STACK_ON(RONDO_SIM_VARIANT, sim, Backend::sim, Args, stem)
#endif

std::span<const Variant> lstm_stack_forward_variants() {
  static constexpr Variant list[] = {RONDO_STACK(LstmStackForwardArgs, stack_forward)};
  return list;
}

std::span<const Variant> lstm_stack_backward_variants() {
  static constexpr Variant list[] = {RONDO_STACK(LstmStackBackwardArgs, stack_backward)};
  return list;
}

bool lstm_stack_layers_at_once(const Variant& variant) {
  return std::string_view(variant.name) == "wavefront";
}

}  // namespace rondo
