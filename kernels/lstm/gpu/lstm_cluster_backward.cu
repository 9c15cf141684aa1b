// The backward pass of one layer in clusters.
#include "kernels/lstm/gpu/lstm_cluster_backward.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::RONDO_GPU {
namespace {

using namespace cluster;
using backward::Backward, backward::BackwardShared;

template <class T, int blocks, int tiles, Barrier barrier>
__global__ void __launch_bounds__(threads, 1) cluster_backward(Backward<T> b) {
  backward::run_sequences<T, blocks, tiles, barrier>(b, blockIdx.y);
}

// Either Barrier's kernels; they have names of their own, as profiles tell them apart by that.
template <class T, Barrier barrier, class F>
void with_typed_kernel(const LstmBackwardArgs& a, F f) {
  const int64_t sequences = a.layout.capacity.sequences;
  const int directions = a.dims.directions;
  const auto launch_of = [&](auto blocks, auto tiles) {
    return configuration(
        barrier == Barrier::split ? "lstm cluster_split_backward" : "lstm cluster_backward", blocks,
        tiles, directions, sequences, sizeof(BackwardShared<T, blocks, tiles>));
  };
  with_geometry<T>(
      a.dims.hidden, directions, sequences,
      [&](auto blocks, auto tiles) {
        return resident_clusters(launch_of(blocks, tiles),
                                 cluster_backward<T, blocks, tiles, barrier>);
      },
      [&](auto blocks, auto tiles) {
        f(launch_of(blocks, tiles), cluster_backward<T, blocks, tiles, barrier>);
      });
}

// f(launch, kernel) for the call.
template <Barrier barrier, class F>
void with_kernel(const LstmBackwardArgs& a, F f) {
  a.dy.dtype == DType::f32 ? with_typed_kernel<float, barrier>(a, f)
                           : with_typed_kernel<bf16, barrier>(a, f);
}

template <Barrier barrier>
bool accepts(const char* variant, const Context& context, const void* args) {
  const auto* a = static_cast<const LstmBackwardArgs*>(args);
  if (!a) {
    return cluster_machine(cluster_backward<bf16, 2, 1, barrier>,
                           sizeof(BackwardShared<bf16, 2, 1>));
  }
  if (a->run != LstmRun::both) return false;
  if (!lstm_suits(variant, context.backend, a->dims, a->dy.dtype)) return false;
  bool fits = false;
  with_kernel<barrier>(*a, [&](const LaunchConfig& config, auto kernel) {
    fits = resident_clusters(config, kernel) > 0;
  });
  return fits;
}

template <Barrier barrier>
void run_backward(const Context& context, const LstmBackwardArgs& a) {
  check_lstm(a);
  if (a.layout.capacity.sequences == 0) return;
  const LstmGpuBackwardSpace space = lstm_gpu_space(context, a);
  with_kernel<barrier>(a, [&]<class T>(const LaunchConfig& config, void (*kernel)(Backward<T>)) {
    launch(context, config, kernel, Backward<T>(a, space));
  });
  lstm_gpu_input_gradients(context, a, space);
}

}  // namespace

bool lstm_backward_cluster_accepts(const Context& context, const void* args) {
  return accepts<Barrier::whole>("cluster", context, args);
}
bool lstm_backward_cluster_split_accepts(const Context& context, const void* args) {
  return accepts<Barrier::split>("cluster_split", context, args);
}

void lstm_backward_cluster(const Context& context, const LstmBackwardArgs& a) {
  run_backward<Barrier::whole>(context, a);
}
void lstm_backward_cluster_split(const Context& context, const LstmBackwardArgs& a) {
  run_backward<Barrier::split>(context, a);
}

}  // namespace rondo::RONDO_GPU
