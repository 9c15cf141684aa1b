// The forward pass of one layer in clusters.
#include "kernels/lstm/gpu/lstm_cluster_forward.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::RONDO_GPU {
namespace {

using namespace cluster;
using forward::Forward, forward::ForwardShared;

template <class T, int blocks, int tiles>
__global__ void __launch_bounds__(threads, 1) cluster_forward(Forward<T> f) {
  forward::run_sequences<T, blocks, tiles>(f, blockIdx.y);
}

template <class T, class F>
void with_typed_kernel(const LstmForwardArgs& a, F f) {
  const int64_t sequences = a.layout.capacity.sequences;
  const int directions = a.dims.directions;
  const auto launch_of = [&](auto blocks, auto tiles) {
    return configuration("lstm cluster_split_forward", blocks, tiles, directions, sequences,
                         sizeof(ForwardShared<T, blocks, tiles>));
  };
  with_geometry<T>(
      a.dims.hidden, directions, sequences,
      [&](auto blocks, auto tiles) {
        return resident_clusters(launch_of(blocks, tiles), cluster_forward<T, blocks, tiles>);
      },
      [&](auto blocks, auto tiles) {
        f(launch_of(blocks, tiles), cluster_forward<T, blocks, tiles>);
      });
}

// f(launch, kernel) for the call.
template <class F>
void with_kernel(const LstmForwardArgs& a, F f) {
  a.x.dtype == DType::f32 ? with_typed_kernel<float>(a, f) : with_typed_kernel<bf16>(a, f);
}

}  // namespace

bool lstm_forward_cluster_split_accepts(const Context& context, const void* args) {
  const auto* a = static_cast<const LstmForwardArgs*>(args);
  if (!a) return cluster_machine(cluster_forward<bf16, 2, 1>, sizeof(ForwardShared<bf16, 2, 1>));
  if (a->run != LstmRun::both) return false;
  if (!lstm_suits("cluster_split", context.backend, a->dims, a->x.dtype)) return false;
  bool fits = false;
  with_kernel(*a, [&](const LaunchConfig& config, auto kernel) {
    fits = resident_clusters(config, kernel) > 0;
  });
  return fits;
}

void lstm_forward_cluster_split(const Context& context, const LstmForwardArgs& a) {
  check_lstm(a);
  if (a.layout.capacity.sequences == 0) return;
  const LstmGpuForwardSpace space = lstm_gpu_space(context, a);
  lstm_gpu_input_products(context, a, space);
  with_kernel(a, [&]<class T>(const LaunchConfig& config, void (*kernel)(Forward<T>)) {
    launch(context, config, kernel, Forward<T>(a, space));
  });
}

}  // namespace rondo::RONDO_GPU
