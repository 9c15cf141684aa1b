#include "kernels/lstm/lstm_gpu.h"

#include <algorithm>

#include "kernels/base/dispatch.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lstm/lstm_cpu.h"
#include "kernels/lstm/lstm_impl.h"
#include "kernels/reduce/reduce.h"

namespace rondo {
namespace {

// pre = x W^T, in f32 with b.
GemmArgs input_product(const LstmDims& dims, DType t, int64_t rows) {
  GemmArgs g = lstm_product(rows, 4 * dims.hidden, dims.input, t, t);
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

// c [n, 4H or P] = a [n, k] b^T, b [.., k]: forward, by R or P.
GemmArgs state_product(int64_t sequences, int64_t width, int64_t k, DType t) {
  GemmArgs g = lstm_product(sequences, width, k, t, DType::f32);
  g.transpose_b = true;
  g.lda = g.ldb = k, g.ldc = width;
  return g;
}

// c [n, width] = a [n, k] b, b [k, width]: backward, by R or P.
GemmArgs state_gradient(int64_t sequences, int64_t width, int64_t k, DType t) {
  GemmArgs g = lstm_product(sequences, width, k, t, DType::f32);
  g.lda = k, g.ldb = g.ldc = width;
  return g;
}

// The rows that `counts` tells of [D, N, ...] arrays, all directions in one product, so that they
// take the launches and the time of one; b is each one's r or p.
template <class Args, class Space>
void state_products(const Context& context, const Args& a, const Space& space, GemmArgs g,
                    const void* from, TensorView LstmWeights::*matrix, float* to,
                    const int32_t* counts, int64_t step) {
  const PackedCapacity& c = a.layout.capacity;
  g.spare_rows = true;
  lstm_set_gemm_workspace(g, space);
  const int64_t first = lstm_first_direction(a.run), end = lstm_end_direction(a.dims, a.run);
  const auto matrix_of = [&](int64_t d) {
    return static_cast<const char*>((a.weights[d].*matrix).data);
  };
  g.a = static_cast<const char*>(from) +
        static_cast<size_t>(first * c.sequences * g.lda) * size_of(g.dtype);
  g.b = matrix_of(first);
  g.c = to + first * c.sequences * g.ldc;
  g.row_count = counts + first * c.frames + step;
  g.batch = end - first;
  g.a_stride = c.sequences * g.lda;
  g.c_stride = c.sequences * g.ldc;
  g.row_count_stride = c.frames;
  if (g.batch > 1) {
    g.b_stride = (matrix_of(first + 1) - matrix_of(first)) / static_cast<int64_t>(size_of(g.dtype));
  }
  run(context, g);
}

uint32_t* take_flags(Carver& carver, const LstmDims& dims) {
  return carver.take<uint32_t>(static_cast<int64_t>(lstm_grid_flag_bytes(dims)), 1);
}

bf16* take_exchange(Carver& carver, const Context& context, LstmPhase phase, const LstmDims& dims,
                    DType t, const PackedCapacity& capacity) {
  if (!lstm_suits("grid_cluster", context.backend, dims, t)) return nullptr;
  return carver.take<bf16>(static_cast<int64_t>(lstm_exchange_bytes(phase, dims, capacity)), 1);
}

void* take_gemm(Carver& carver, size_t bytes) {
  return carver.take(static_cast<int64_t>(bytes), 1);
}

LstmGpuForwardSpace forward_space(Carver& carver, const Context& context, const LstmDims& dims,
                                  DType t, const PackedCapacity& capacity) {
  const int64_t D = dims.directions, H = dims.hidden, P = dims.output();
  const int64_t N = capacity.sequences, states = D * N;
  LstmGpuForwardSpace s;
  s.pre = carver.take(D * capacity.rows * 4 * H, size_of(t));
  s.c = carver.take<float>(states * H, sizeof(float));
  s.h_cell = dims.projection ? carver.take(states * H, size_of(t)) : nullptr;
  s.flags = take_flags(carver, dims);
  s.exchange = take_exchange(carver, context, LstmPhase::forward, dims, t, capacity);
  s.h = carver.take(states * P, size_of(t));
  s.recurrent = carver.take<float>(states * 4 * H, sizeof(float));
  s.projected = dims.projection ? carver.take<float>(states * P, sizeof(float)) : nullptr;
  s.counts = carver.take<int32_t>(D * capacity.frames, sizeof(int32_t));
  s.gemm_bytes = std::max({gemm_workspace_bytes(context, input_product(dims, t, capacity.rows)),
                           gemm_workspace_bytes(context, state_product(N, 4 * H, P, t)),
                           gemm_workspace_bytes(context, state_product(N, P, H, t))});
  s.gemm = take_gemm(carver, s.gemm_bytes);
  return s;
}

LstmGpuBackwardSpace backward_space(Carver& carver, const Context& context, const LstmDims& dims,
                                    DType t, const PackedCapacity& capacity) {
  const int64_t D = dims.directions, H = dims.hidden, P = dims.output();
  const int64_t N = capacity.sequences, states = D * N;
  LstmGpuBackwardSpace s;
  s.dc = carver.take<float>(states * H, sizeof(float));
  s.flags = take_flags(carver, dims);
  s.exchange = take_exchange(carver, context, LstmPhase::backward, dims, t, capacity);
  s.last_dgates = carver.take(states * 4 * H, size_of(t));
  s.recurrent = carver.take<float>(states * P, sizeof(float));
  s.last_dh = dims.projection ? carver.take(states * P, size_of(t)) : nullptr;
  s.dh_cell = dims.projection ? carver.take<float>(states * H, sizeof(float)) : nullptr;
  s.active = carver.take<int32_t>(D * capacity.frames, sizeof(int32_t));
  s.started = carver.take<int32_t>(D * capacity.frames, sizeof(int32_t));
  s.gemm_bytes = std::max({gemm_workspace_bytes(context, input_gradient(dims, t, capacity.rows)),
                           gemm_workspace_bytes(context, state_gradient(N, P, 4 * H, t)),
                           gemm_workspace_bytes(context, state_gradient(N, H, P, t))});
  s.gemm = take_gemm(carver, s.gemm_bytes);
  return s;
}

LstmGpuWeightGradSpace weight_grad_space(Carver& carver, const Context& context,
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
  Carver carver(nullptr);
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
  Carver carver(a.workspace.data);
  const auto s = forward_space(carver, context, a.dims, a.x.dtype, a.layout.capacity);
  lstm_check_workspace(a.workspace, carver.used());
  return s;
}

LstmGpuBackwardSpace lstm_gpu_space(const Context& context, const LstmBackwardArgs& a) {
  Carver carver(a.workspace.data);
  const auto s = backward_space(carver, context, a.dims, a.dy.dtype, a.layout.capacity);
  lstm_check_workspace(a.workspace, carver.used());
  return s;
}

LstmGpuWeightGradSpace lstm_gpu_space(const Context& context, const LstmWeightGradArgs& a) {
  Carver carver(a.workspace.data);
  const auto s = weight_grad_space(carver, context, a.dims, a.x.dtype, a.layout.capacity);
  lstm_check_workspace(a.workspace, carver.used());
  return s;
}

void lstm_gpu_input_products(const Context& context, const LstmForwardArgs& a,
                             const LstmGpuForwardSpace& space) {
  const int64_t rows = a.layout.capacity.rows;
  for (int d = lstm_first_direction(a.run); d < lstm_end_direction(a.dims, a.run); ++d) {
    GemmArgs g = input_product(a.dims, a.x.dtype, rows);
    g.row_count = &a.layout.extent->rows;
    g.spare_rows = true;
    g.a = a.x.data;
    g.b = a.weights[d].w.data;
    g.c = static_cast<std::byte*>(space.pre) +
          static_cast<size_t>(d * rows * 4 * a.dims.hidden) * size_of(a.x.dtype);
    if (a.x.dtype == DType::f32) g.bias = a.weights[d].b;  // else the time loops add it
    lstm_set_gemm_workspace(g, space);
    run(context, g);
  }
}

void lstm_gpu_recurrent_products(const Context& context, const LstmForwardArgs& a,
                                 const LstmGpuForwardSpace& space, int64_t step) {
  const int64_t N = a.layout.capacity.sequences, H = a.dims.hidden, P = a.dims.output();
  state_products(context, a, space, state_product(N, 4 * H, P, a.x.dtype), space.h, &LstmWeights::r,
                 space.recurrent, space.counts, step);
}

void lstm_gpu_projections(const Context& context, const LstmForwardArgs& a,
                          const LstmGpuForwardSpace& space, int64_t step) {
  const int64_t N = a.layout.capacity.sequences, H = a.dims.hidden, P = a.dims.output();
  state_products(context, a, space, state_product(N, P, H, a.x.dtype), space.h_cell,
                 &LstmWeights::p, space.projected, space.counts, step);
}

void lstm_gpu_recurrent_gradients(const Context& context, const LstmBackwardArgs& a,
                                  const LstmGpuBackwardSpace& space, int64_t step) {
  const int64_t N = a.layout.capacity.sequences, H = a.dims.hidden, P = a.dims.output();
  state_products(context, a, space, state_gradient(N, P, 4 * H, a.dy.dtype), space.last_dgates,
                 &LstmWeights::r, space.recurrent, space.started, step);
}

void lstm_gpu_projection_gradients(const Context& context, const LstmBackwardArgs& a,
                                   const LstmGpuBackwardSpace& space, int64_t step) {
  const int64_t N = a.layout.capacity.sequences, H = a.dims.hidden, P = a.dims.output();
  state_products(context, a, space, state_gradient(N, H, P, a.dy.dtype), space.last_dh,
                 &LstmWeights::p, space.dh_cell, space.active, step);
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
