#include "kernels/lstm/lstm_gpu.h"

#include <algorithm>

#include "kernels/gemm/gemm.h"
#include "kernels/lstm/lstm_cpu.h"
#include "kernels/lstm/lstm_impl.h"
#include "kernels/ops.h"
#include "kernels/reduce/reduce.h"

namespace rondo {
namespace {

// pre = x W^T + b.
GemmArgs input_product(const LstmDims& dims, DType t, int64_t rows) {
  GemmArgs g = lstm_product(rows, 4 * dims.hidden, dims.input, t, DType::f32);
  g.transpose_b = true;
  g.lda = g.ldb = dims.input, g.ldc = 4 * dims.hidden;
  return g;
}

// dx (+)= dgates W.
GemmArgs input_gradient(const LstmDims& dims, DType t, int64_t rows) {
  GemmArgs g = lstm_product(rows, dims.input, 4 * dims.hidden, t, t);
  g.lda = 4 * dims.hidden, g.ldb = g.ldc = dims.input;
  return g;
}

// c (+)= a^T b over rows, a [rows, m], b [rows, n].
GemmArgs weight_product(int64_t m, int64_t n, DType t, int64_t rows) {
  GemmArgs g = lstm_product(m, n, rows, t, DType::f32);
  g.transpose_a = true;
  g.lda = m, g.ldb = g.ldc = n;
  return g;
}

uint32_t* take_flags(LstmCarver& carver, const LstmDims& dims) {
  return carver.take<uint32_t>(static_cast<int64_t>(lstm_grid_flag_bytes(dims)), 1);
}

bf16* take_exchange(LstmCarver& carver, const Context& context, LstmPhase phase,
                    const LstmDims& dims, DType t, const PackedCapacity& capacity) {
  if (!lstm_suits("grid_cluster", context.backend, dims, t)) return nullptr;
  return carver.take<bf16>(static_cast<int64_t>(lstm_exchange_bytes(phase, dims, capacity)), 1);
}

void* take_gemm(LstmCarver& carver, size_t bytes) {
  return carver.take(static_cast<int64_t>(bytes), 1);
}

LstmGpuForwardSpace forward_space(LstmCarver& carver, const Context& context, const LstmDims& dims,
                                  DType t, const PackedCapacity& capacity) {
  const int64_t D = dims.directions, H = dims.hidden, states = D * capacity.sequences;
  LstmGpuForwardSpace s;
  s.pre = carver.take<float>(D * capacity.rows * 4 * H, sizeof(float));
  s.c = carver.take<float>(states * H, sizeof(float));
  s.h_cell = dims.projection ? carver.take(states * H, size_of(t)) : nullptr;
  s.flags = take_flags(carver, dims);
  s.exchange = take_exchange(carver, context, LstmPhase::forward, dims, t, capacity);
  s.gemm_bytes = gemm_workspace_bytes(context, input_product(dims, t, capacity.rows));
  s.gemm = take_gemm(carver, s.gemm_bytes);
  return s;
}

LstmGpuBackwardSpace backward_space(LstmCarver& carver, const Context& context,
                                    const LstmDims& dims, DType t, const PackedCapacity& capacity) {
  LstmGpuBackwardSpace s;
  s.dc = carver.take<float>(dims.directions * capacity.sequences * dims.hidden, sizeof(float));
  s.flags = take_flags(carver, dims);
  s.exchange = take_exchange(carver, context, LstmPhase::backward, dims, t, capacity);
  s.gemm_bytes = gemm_workspace_bytes(context, input_gradient(dims, t, capacity.rows));
  s.gemm = take_gemm(carver, s.gemm_bytes);
  return s;
}

LstmGpuWeightGradSpace weight_grad_space(LstmCarver& carver, const Context& context,
                                         const LstmDims& dims, DType t,
                                         const PackedCapacity& capacity) {
  const int64_t G = 4 * dims.hidden, P = dims.output(), rows = capacity.rows;
  LstmGpuWeightGradSpace s;
  s.h_before = carver.take(rows * P, size_of(t));
  s.sums_bytes = reduce_rows_workspace_bytes(context, rows, G);
  s.sums = carver.take(static_cast<int64_t>(s.sums_bytes), 1);
  s.gemm_bytes = std::max(gemm_workspace_bytes(context, weight_product(G, dims.input, t, rows)),
                          gemm_workspace_bytes(context, weight_product(G, P, t, rows)));
  if (dims.projection) {
    s.gemm_bytes = std::max(s.gemm_bytes,
                            gemm_workspace_bytes(context, weight_product(P, dims.hidden, t, rows)));
  }
  s.gemm = take_gemm(carver, s.gemm_bytes);
  return s;
}

}  // namespace

size_t lstm_exchange_bytes(LstmPhase phase, const LstmDims& dims, const PackedCapacity& capacity) {
  const int64_t values =
      phase == LstmPhase::forward ? capacity.rows + capacity.sequences : capacity.rows * 4;
  return static_cast<size_t>(dims.directions * values * lstm_exchanged_cells(dims.hidden)) *
         sizeof(bf16);
}

size_t lstm_gpu_workspace_bytes(const Context& context, LstmPhase phase, const LstmDims& dims,
                                DType compute, const PackedCapacity& capacity) {
  LstmCarver carver({});
  switch (phase) {
    case LstmPhase::forward:
      forward_space(carver, context, dims, compute, capacity);
      break;
    case LstmPhase::backward:
      backward_space(carver, context, dims, compute, capacity);
      break;
    case LstmPhase::weight_grad:
      weight_grad_space(carver, context, dims, compute, capacity);
      break;
  }
  return carver.used();
}

LstmGpuForwardSpace lstm_gpu_space(const Context& context, const LstmForwardArgs& a) {
  LstmCarver carver(a.workspace);
  const auto s = forward_space(carver, context, a.dims, a.x.dtype, a.layout.capacity);
  lstm_check_workspace(a.workspace, carver.used());
  return s;
}

LstmGpuBackwardSpace lstm_gpu_space(const Context& context, const LstmBackwardArgs& a) {
  LstmCarver carver(a.workspace);
  const auto s = backward_space(carver, context, a.dims, a.dy.dtype, a.layout.capacity);
  lstm_check_workspace(a.workspace, carver.used());
  return s;
}

LstmGpuWeightGradSpace lstm_gpu_space(const Context& context, const LstmWeightGradArgs& a) {
  LstmCarver carver(a.workspace);
  const auto s = weight_grad_space(carver, context, a.dims, a.x.dtype, a.layout.capacity);
  lstm_check_workspace(a.workspace, carver.used());
  return s;
}

void lstm_gpu_input_products(const Context& context, const LstmForwardArgs& a,
                             const LstmGpuForwardSpace& space) {
  const int64_t rows = a.layout.capacity.rows;
  for (int d = 0; d < a.dims.directions; ++d) {
    GemmArgs g = input_product(a.dims, a.x.dtype, rows);
    g.row_count = &a.layout.extent->rows;
    g.spare_rows = true;
    g.a = a.x.data;
    g.b = a.weights[d].w.data;
    g.c = space.pre + d * rows * 4 * a.dims.hidden;
    g.bias = a.weights[d].b;
    lstm_set_gemm_workspace(g, space);
    run(context, g);
  }
}

void lstm_gpu_input_gradients(const Context& context, const LstmBackwardArgs& a,
                              const LstmGpuBackwardSpace& space) {
  if (!a.dx) return;
  const int64_t rows = a.layout.capacity.rows;
  for (int d = 0; d < a.dims.directions; ++d) {
    GemmArgs g = input_gradient(a.dims, a.dy.dtype, rows);
    g.row_count = &a.layout.extent->rows;
    g.spare_rows = true;
    g.a = lstm_at(a.dgates, d * rows * 4 * a.dims.hidden);
    g.b = a.weights[d].w.data;
    g.c = a.dx.data;
    g.beta = d == 0 ? 0 : 1;
    lstm_set_gemm_workspace(g, space);
    run(context, g);
  }
}

void lstm_gpu_weight_product(const Context& context, const LstmWeightGradArgs& a,
                             const LstmGpuWeightGradSpace& space, const void* left,
                             const void* right, const TensorView& out) {
  if (!out) return;
  GemmArgs g = weight_product(out.dim(0), out.dim(1), a.x.dtype, a.layout.capacity.rows);
  g.row_count = &a.layout.extent->rows;
  g.spare_rows = true;
  g.a = left;
  g.b = right;
  g.c = out.data;
  g.beta = a.accumulate ? 1 : 0;
  lstm_set_gemm_workspace(g, space);
  run(context, g);
}

void lstm_gpu_bias_gradient(const Context& context, const LstmWeightGradArgs& a,
                            const LstmGpuWeightGradSpace& space, const void* dgates,
                            const TensorView& out) {
  if (!out) return;
  ReduceRowsArgs r;
  r.x = {const_cast<void*>(dgates), a.dgates.dtype, {a.layout.capacity.rows, 4 * a.dims.hidden}};
  r.y = out;
  r.accumulate = a.accumulate;
  r.row_count = &a.layout.extent->rows;
  r.workspace = {space.sums, DType::u8, {static_cast<int64_t>(space.sums_bytes)}};
  run(context, r);
}

}  // namespace rondo
