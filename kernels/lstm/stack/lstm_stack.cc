#include "kernels/lstm/stack/lstm_stack.h"

#include <algorithm>

#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/lstm/lstm_gpu.h"
#include "kernels/lstm/lstm_impl.h"
#include "kernels/lstm/lstm_prediction.h"
#include "kernels/lstm/lstm_proven.h"
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

// On the simulator `wavefront` is there to be asked for.
#define RONDO_LAYERS(Args, stem, backend) \
  variant<Args, stem##_layers>("layers", backend, Role::standard, gpu_layers_accept<Args>)
#define RONDO_SIM_STACK(Args, stem)                                                 \
  variant<Args, stem##_ref>("ref", Backend::ref),                                   \
      variant<Args, stem##_layers>("layers", Backend::cpu),                         \
      RONDO_LAYERS(Args, stem, Backend::sim),                                       \
      RONDO_SIM_VARIANT(Args, lstm_##stem##_wavefront, "wavefront", Role::standard, \
                        sim::lstm_##stem##_wavefront_accepts)
#ifdef RONDO_WITH_CUDA
#define RONDO_STACK(Args, stem)                                                         \
  RONDO_SIM_STACK(Args, stem),                                                          \
      RONDO_CUDA_VARIANT(Args, lstm_##stem##_wavefront, "wavefront",                    \
                         lstm_##stem##_wavefront_proven ? Role::standard : Role::named, \
                         cuda::lstm_##stem##_wavefront_accepts),                        \
      RONDO_LAYERS(Args, stem, Backend::cuda)
#else
#define RONDO_STACK(Args, stem) RONDO_SIM_STACK(Args, stem)
#endif

std::span<const Variant> lstm_stack_forward_variants() {
  static constexpr Variant list[] = {RONDO_STACK(LstmStackForwardArgs, stack_forward)};
  return list;
}

std::span<const Variant> lstm_stack_backward_variants() {
  static constexpr Variant list[] = {RONDO_STACK(LstmStackBackwardArgs, stack_backward)};
  return list;
}

namespace {

template <LstmPhase phase, class Args>
std::string_view choose([[maybe_unused]] const Context& context, [[maybe_unused]] const void* args,
                        [[maybe_unused]] const MayRun& may_run) {
#ifdef RONDO_WITH_CUDA
  if (context.backend == Backend::cuda && args != nullptr) {
    const auto& a = *static_cast<const Args*>(args);
    const auto& lowest = a.layers.front();
    const LstmWavefront w = lstm_wavefront(a);
    const LstmStackShape shape = {phase,         w.layers,
                                  w.hidden,      lowest.layout.capacity.frames,
                                  w.sequences,   lstm_compute_dtype(lowest),
                                  w.chunk_frames};
    // What the layers would run one by one.
    const auto any = [&](std::string_view name) {
      return name == select_variant(context, std::decay_t<decltype(lowest)>::op, &lowest).name;
    };
    const bool quicker =
        lstm_stack_predicted(shape, gpu_limits(*context.device), any).is_quicker_at_once();
    return quicker && may_run("wavefront") ? "wavefront" : "layers";
  }
#endif
  return {};
}

}  // namespace

std::string_view choose_lstm_stack_forward(const Context& context, const void* args,
                                           const MayRun& may_run) {
  return choose<LstmPhase::forward, LstmStackForwardArgs>(context, args, may_run);
}
std::string_view choose_lstm_stack_backward(const Context& context, const void* args,
                                            const MayRun& may_run) {
  return choose<LstmPhase::backward, LstmStackBackwardArgs>(context, args, may_run);
}

bool lstm_stack_layers_at_once(const Variant& variant) {
  return std::string_view(variant.name) == "wavefront";
}

}  // namespace rondo
