#include "engine/parallel/data_parallel.h"

#include "kernels/base/error.h"

namespace rondo {

void GroupReducer::reduce(TensorView gradients, std::span<double> counts) {
  Work sums = group_.all_reduce(gradients, Reduction::sum);
  Work totals = group_.all_reduce(
      {counts.data(), DType::f64, {static_cast<int64_t>(counts.size())}}, Reduction::sum);
  sums.wait();
  totals.wait();
}

void broadcast_weights(ProcessGroup& group, Parameters& parameters) {
  RONDO_CHECK(parameters.device().host_memory(), "weights must be in host memory");
  group.broadcast(parameters.weights(), 0).wait();
}

}  // namespace rondo
