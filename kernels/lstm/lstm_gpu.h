// The GPU variants of the LSTM ops: what they share with their table, and with each other on the
// host; for kernels/lstm alone.
//
//   portable      per time step a product by the gemm op, of all directions, and a launch for the
//                 cells (twice with a projection)
//   cluster_split the time loop in one launch, R in registers, h (or dh) exchanged through
//                 distributed shared memory; a barrier of the cluster in two, stores and loads of
//                 memory between its parts
//   grid          the time loop in one cooperative launch, R in registers or shared memory, h (or
//                 dgates) exchanged through memory, a flag per block and step
//   grid_cluster  as grid, but a cluster shares the columns of its rows of R, and what is exchanged
//                 through memory says itself that it is there
//
// kernels/lstm/lstm_conditions.h says which shapes each takes. `portable` runs unless a trial on
// the device chose another one (engine/trial/trial.h). All compute x W^T of every row before the
// time loop, dx and the weight gradients after it, by the gemm and reduce_rows ops.
#pragma once

#include "kernels/lstm/lstm_conditions.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_GPU(lstm_forward_portable, LstmForwardArgs);
RONDO_DECLARE_GPU(lstm_backward_portable, LstmBackwardArgs);
RONDO_DECLARE_GPU(lstm_weight_grad_gpu, LstmWeightGradArgs);

inline DType lstm_compute_dtype(const LstmForwardArgs& a) { return a.x.dtype; }
inline DType lstm_compute_dtype(const LstmBackwardArgs& a) { return a.dy.dtype; }
inline DType lstm_compute_dtype(const LstmWeightGradArgs& a) { return a.x.dtype; }

// GPUs take f32 and bf16. Only `portable` computes one direction of two by itself.
template <class Args>
bool lstm_gpu_accepts(const Context&, const void* args) {
  const auto* a = static_cast<const Args*>(args);
  return !a || (lstm_compute_dtype(*a) != DType::f64 && !a->dims.int8);
}

RONDO_DECLARE_GPU(lstm_forward_cluster_split, LstmForwardArgs);
RONDO_DECLARE_GPU(lstm_backward_cluster_split, LstmBackwardArgs);
RONDO_DECLARE_GPU(lstm_forward_grid, LstmForwardArgs);
RONDO_DECLARE_GPU(lstm_backward_grid, LstmBackwardArgs);
RONDO_DECLARE_GPU(lstm_forward_grid_cluster, LstmForwardArgs);
RONDO_DECLARE_GPU(lstm_backward_grid_cluster, LstmBackwardArgs);
namespace sim {
bool lstm_forward_cluster_split_accepts(const Context&, const void* args);
bool lstm_backward_cluster_split_accepts(const Context&, const void* args);
bool lstm_forward_grid_accepts(const Context&, const void* args);
bool lstm_backward_grid_accepts(const Context&, const void* args);
bool lstm_forward_grid_cluster_accepts(const Context&, const void* args);
bool lstm_backward_grid_cluster_accepts(const Context&, const void* args);
}  // namespace sim
namespace cuda {
bool lstm_forward_cluster_split_accepts(const Context&, const void* args);
bool lstm_backward_cluster_split_accepts(const Context&, const void* args);
bool lstm_forward_grid_accepts(const Context&, const void* args);
bool lstm_backward_grid_accepts(const Context&, const void* args);
bool lstm_forward_grid_cluster_accepts(const Context&, const void* args);
bool lstm_backward_grid_cluster_accepts(const Context&, const void* args);
}  // namespace cuda

// As lstm_workspace_bytes(), for Backend::sim and Backend::cuda.
size_t lstm_gpu_workspace_bytes(const Context& context, LstmPhase phase, const LstmDims& dims,
                                DType compute, const PackedCapacity& capacity);

// A flag per block of the grid variants, whose blocks own 8 cells or more.
inline size_t lstm_grid_flag_bytes(const LstmDims& dims) {
  return static_cast<size_t>(dims.directions * ((dims.hidden + 7) / 8)) * sizeof(uint32_t);
}

// The cells of a row that the grid_cluster variants exchange: H, padded so that rows are of 16-byte
// words.
inline int64_t lstm_exchanged_cells(int64_t hidden) { return (hidden + 7) / 8 * 8; }
// Its bytes. Forward: h, [D, rows + N, cells]: that of every row, then the initial one of every
// sequence. Backward: the gradients of the pre-activations, [D, rows, cells, 4].
size_t lstm_exchange_bytes(LstmPhase phase, const LstmDims& dims, const PackedCapacity& capacity);

// Pieces of the workspace.
struct LstmGpuForwardSpace {
  void* pre;     // [D, rows, 4H] of the compute dtype: x W^T, in f32 with b
  float* c;      // [D, N, H]
  void* h_cell;  // [D, N, H] of the compute dtype: h' before the projection; else absent
  uint32_t* flags;
  bf16* exchange;  // lstm_exchange_bytes(); absent where grid_cluster does not suit
  // What follows is `portable`'s; T: the compute dtype.
  void* h;           // [D, N, P] T: the latest of every sequence
  float* recurrent;  // [D, N, 4H]: h R^T
  float* projected;  // [D, N, P]: h_cell P^T; absent without projection
  int32_t* counts;   // [D, frames]: the sequences that a step visits
  void* gemm;
  size_t gemm_bytes;
};
struct LstmGpuBackwardSpace {
  float* dc;  // [D, N, H]
  uint32_t* flags;
  bf16* exchange;  // as above
  // What follows is `portable`'s.
  void* last_dgates;  // [D, N, 4H] T: the latest of every sequence
  float* recurrent;   // [D, N, P]: dgates R
  void* last_dh;      // [D, N, P] T: the latest gradient of h; absent without projection
  float* dh_cell;     // [D, N, H]: the gradient of h' that comes of it; absent without projection
  int32_t* active;    // [D, frames]: the sequences that a step visits
  int32_t* started;   // [D, frames]: those of them whose dgates R is wanted
  void* gemm;
  size_t gemm_bytes;
};
struct LstmGpuWeightGradSpace {
  void* h_before;  // [rows, P] of the compute dtype, one direction at a time
  void* sums;      // of reduce_rows
  size_t sums_bytes;
  void* gemm;
  size_t gemm_bytes;
};

// Throw Error when the workspace is too small.
LstmGpuForwardSpace lstm_gpu_space(const Context& context, const LstmForwardArgs& args);
LstmGpuBackwardSpace lstm_gpu_space(const Context& context, const LstmBackwardArgs& args);
LstmGpuWeightGradSpace lstm_gpu_space(const Context& context, const LstmWeightGradArgs& args);

// space.pre, of the directions that are computed.
void lstm_gpu_input_products(const Context& context, const LstmForwardArgs& args,
                             const LstmGpuForwardSpace& space);
// dx, when wanted, from args.dgates. With bf16 and two directions the first one's part is rounded
// on the way.
void lstm_gpu_input_gradients(const Context& context, const LstmBackwardArgs& args,
                              const LstmGpuBackwardSpace& space);
// The products of one step of `portable`, for the directions that are computed: space.recurrent
// and, with a projection, space.projected.
void lstm_gpu_recurrent_products(const Context& context, const LstmForwardArgs& args,
                                 const LstmGpuForwardSpace& space, int64_t step);
void lstm_gpu_projections(const Context& context, const LstmForwardArgs& args,
                          const LstmGpuForwardSpace& space, int64_t step);
// The same in the backward pass: space.recurrent of what `step` left in last_dgates, for the step
// visited before it (or dh0), and space.dh_cell.
void lstm_gpu_recurrent_gradients(const Context& context, const LstmBackwardArgs& args,
                                  const LstmGpuBackwardSpace& space, int64_t step);
void lstm_gpu_projection_gradients(const Context& context, const LstmBackwardArgs& args,
                                   const LstmGpuBackwardSpace& space, int64_t step);
// out (+)= left^T right over the batch's rows; left [rows, out.dim(0)], right [rows, out.dim(1)].
void lstm_gpu_weight_product(const Context& context, const LstmWeightGradArgs& args,
                             const LstmGpuWeightGradSpace& space, const void* left,
                             const void* right, const TensorView& out);
// out (+)= sums of dgates [rows, 4H] over the batch's rows.
void lstm_gpu_bias_gradient(const Context& context, const LstmWeightGradArgs& args,
                            const LstmGpuWeightGradSpace& space, const void* dgates,
                            const TensorView& out);

}  // namespace rondo
