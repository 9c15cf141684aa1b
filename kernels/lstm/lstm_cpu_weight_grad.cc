#include <algorithm>
#include <cstring>

#include "kernels/lstm/lstm_cpu.h"
#include "kernels/lstm/lstm_impl.h"
#include "kernels/ops.h"

namespace rondo {
namespace {

// c (+)= a^T b over rows, a [rows, m], b [rows, n].
GemmArgs weight_gradient(int64_t m, int64_t n, int64_t rows, int64_t ldb, DType t) {
  GemmArgs g = lstm_product(m, n, rows, t, DType::f32);
  g.transpose_a = true;
  g.lda = m, g.ldb = ldb, g.ldc = n;
  return g;
}

struct WeightGradSpace {
  char* h_before;  // [rows, P], one direction at a time
  void* gemm;
  size_t gemm_bytes;

  WeightGradSpace(LstmCarver& carver, const Context& context, const LstmDims& dims, DType t,
                  const PackedCapacity& capacity) {
    const int64_t G = 4 * dims.hidden, P = dims.output(), rows = capacity.rows;
    h_before = carver.take<char>(rows * P, size_of(t));
    gemm_bytes =
        std::max(gemm_workspace_bytes(context, weight_gradient(G, dims.input, rows, dims.input, t)),
                 gemm_workspace_bytes(context, weight_gradient(G, P, rows, P, t)));
    if (dims.projection) {
      gemm_bytes = std::max(
          gemm_bytes,
          gemm_workspace_bytes(context, weight_gradient(P, dims.hidden, rows, dims.hidden, t)));
    }
    gemm = carver.take(static_cast<int64_t>(gemm_bytes), 1);
  }
};

// h_{t-1} of every row of direction d, as one matrix.
void gather_h_before(const Context& context, const LstmWeightGradArgs& a, int d, char* to) {
  const PackedView& l = a.layout;
  const int64_t P = a.dims.output(), D = a.dims.directions, N = l.capacity.sequences;
  const size_t bytes = static_cast<size_t>(P) * size_of(a.y.dtype);
  context.pool->for_range(l.extent->rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t t = l.row_frame[row], n = row - l.row_offsets[t];
      const int64_t before = d == 0 ? t - 1 : t + 1;
      char* target = to + static_cast<size_t>(row) * bytes;
      if (before >= 0 && before < l.lengths[n]) {
        std::memcpy(target, lstm_at(a.y, (l.row_offsets[before] + n) * D * P + d * P), bytes);
      } else if (a.h0) {
        std::memcpy(target, lstm_at(a.h0, (d * N + n) * P), bytes);
      } else {
        std::memset(target, 0, bytes);
      }
    }
  });
}

void add_weight_gradient(const Context& context, const LstmWeightGradArgs& a,
                         const WeightGradSpace& space, const void* left, int64_t m,
                         const void* right, const TensorView& out) {
  if (!out) return;
  const int64_t n = out.dim(1);
  GemmArgs g = weight_gradient(m, n, a.layout.capacity.rows, n, a.x.dtype);
  g.row_count = &a.layout.extent->rows;
  g.a = left;
  g.b = right;
  g.c = out.data;
  g.beta = a.accumulate ? 1 : 0;
  lstm_set_gemm_workspace(g, space);
  run(context, g);
}

}  // namespace

void lstm_weight_grad_cpu(const LstmCpu& cpu, const Context& context, const LstmWeightGradArgs& a) {
  check_lstm(a);
  LstmCarver carver(a.workspace);
  const WeightGradSpace space(carver, context, a.dims, a.x.dtype, a.layout.capacity);
  lstm_check_workspace(a.workspace, carver.used());
  const LstmKernels& kernels = *cpu.of(a.x.dtype);
  const int64_t H = a.dims.hidden, P = a.dims.output(), rows = a.layout.capacity.rows;
  for (int d = 0; d < a.dims.directions; ++d) {
    const char* dgates = lstm_at(a.dgates, d * rows * 4 * H);
    const LstmWeights& out = a.grads[d];
    add_weight_gradient(context, a, space, dgates, 4 * H, a.x.data, out.w);
    if (out.r) {
      gather_h_before(context, a, d, space.h_before);
      add_weight_gradient(context, a, space, dgates, 4 * H, space.h_before, out.r);
    }
    if (out.b) {
      const int64_t lines = (4 * H + lstm_max_width - 1) / lstm_max_width;
      context.pool->for_range(lines, 4, [&](int64_t begin, int64_t end) {
        kernels.column_sums(dgates, a.layout.extent->rows, 4 * H, begin * lstm_max_width,
                            std::min(end * lstm_max_width, 4 * H), a.accumulate, out.b.as<float>());
      });
    }
    if (a.dims.projection) {
      add_weight_gradient(context, a, space, lstm_at(a.dprojected, d * rows * P), P,
                          lstm_at(a.hidden, d * rows * H), out.p);
    }
  }
}

size_t lstm_weight_grad_workspace_bytes(const Context& context, const LstmDims& dims, DType compute,
                                        const PackedCapacity& capacity) {
  LstmCarver carver({});
  WeightGradSpace(carver, context, dims, compute, capacity);
  return carver.used();
}

}  // namespace rondo
