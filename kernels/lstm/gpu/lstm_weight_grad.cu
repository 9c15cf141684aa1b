// The weight gradients of the LSTM on GPUs: products over all rows through the gemm op, the h
// before each row gathered first, so that they are matrices; and sums of columns for the bias.
#include "kernels/lstm/gpu/lstm_arrays.h"
#include "kernels/lstm/lstm_impl.h"
#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int block_threads = 256;

// to_rows[row, P] = h_{t-1} of each row of direction d.
template <class T>
__global__ void gather_h_before(LstmShape s, const T* y, const T* h0, T* to_rows, int64_t d) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t row = i / s.output, k = i % s.output;
  if (row >= s.layout.extent->rows) return;
  const int64_t t = s.layout.row_frame[row], n = row - s.layout.row_offsets[t];
  const int64_t before = s.row_before(d, n, t);
  T value = to<T>(0.0f);
  if (before >= 0) {
    value = y[(before * s.directions + d) * s.output + k];
  } else if (h0) {
    value = h0[s.state(d, n) * s.output + k];
  }
  to_rows[i] = value;
}

template <class T>
void weight_grad(const Context& context, const LstmWeightGradArgs& a) {
  const LstmGpuWeightGradSpace space = lstm_gpu_space(context, a);
  const LstmShape shape(a.dims, a.layout);
  const int64_t G = 4 * a.dims.hidden, P = a.dims.output(), rows = a.layout.capacity.rows;
  for (int64_t d = 0; d < a.dims.directions; ++d) {
    const LstmWeights& out = a.grads[d];
    const T* dgates = a.dgates.as<T>() + d * rows * G;
    lstm_gpu_weight_product(context, a, space, dgates, a.x.data, out.w);
    if (out.r) {
      if (rows > 0) {
        launch(context,
               {.kernel = "lstm gather_h_before",
                .grid = {blocks_for(rows * P, block_threads)},
                .block = {block_threads}},
               gather_h_before<T>, shape, a.y.as<T>(), a.h0.as<T>(),
               static_cast<T*>(space.h_before), d);
      }
      lstm_gpu_weight_product(context, a, space, dgates, space.h_before, out.r);
    }
    lstm_gpu_bias_gradient(context, a, space, dgates, out.b);
    if (a.dims.projection) {
      lstm_gpu_weight_product(context, a, space, a.dprojected.as<T>() + d * rows * P,
                              a.hidden.as<T>() + d * rows * a.dims.hidden, out.p);
    }
  }
}

}  // namespace

void lstm_weight_grad_gpu(const Context& context, const LstmWeightGradArgs& a) {
  lstm_run_typed(context, a, weight_grad<float>, weight_grad<bf16>);
}

}  // namespace rondo::RONDO_GPU
