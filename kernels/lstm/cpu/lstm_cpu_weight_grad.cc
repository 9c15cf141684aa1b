#include <algorithm>
#include <cstring>

#include "kernels/base/dispatch.h"
#include "kernels/lstm/lstm_cpu.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo {
namespace {

// c (+)= a^T b over rows, a [rows, m], b [rows, n].
GemmArgs weight_gradient(int64_t m, int64_t n, int64_t rows, int64_t ldb, DType t) {
  GemmArgs g = lstm_product(m, n, rows, t, DType::f32);
  g.transpose_a = true;
  g.lda = m, g.ldb = ldb, g.ldc = n;
  return g;
}

// Rows that are summed at a time: dgates are read for three sums, so they had better still be in
// the cache the second time. A multiple of what gemm sums at a time itself.
int64_t sum_rows(const LstmDims& dims, DType t, int64_t rows) {
  constexpr int64_t bytes = 4 << 20, step = 512;
  const int64_t fit = bytes / (4 * dims.hidden * static_cast<int64_t>(size_of(t)));
  return std::clamp<int64_t>(std::max(fit / step, int64_t{1}) * step, 1,
                             std::max<int64_t>(rows, 1));
}

struct WeightGradSpace {
  char* h_before;  // [sum_rows(), P]
  void* gemm;
  size_t gemm_bytes;

  WeightGradSpace(Carver& carver, const Context& context, const LstmDims& dims, DType t,
                  const PackedCapacity& capacity) {
    const int64_t G = 4 * dims.hidden, P = dims.output();
    const int64_t rows = sum_rows(dims, t, capacity.rows);
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

class WeightGradCall {
 public:
  WeightGradCall(const LstmKernels& kernels, const Context& context, const LstmWeightGradArgs& args,
                 Carver& carver)
      : kernels_(kernels),
        context_(context),
        a_(args),
        space_(carver, context, args.dims, args.x.dtype, args.layout.capacity) {}

  void run() {
    const int64_t most = sum_rows(a_.dims, a_.x.dtype, a_.layout.capacity.rows);
    const int64_t rows = a_.layout.extent->rows;
    for (int d = 0; d < a_.dims.directions; ++d) {
      // Without rows once, because zeros may have to be written.
      for (int64_t first = 0; first == 0 || first < rows; first += most) {
        add_rows(d, first, std::min(most, rows - first));
      }
    }
  }

 private:
  void add_rows(int d, int64_t first, int64_t count) {
    const int64_t plane = d * a_.layout.capacity.rows + first;
    const char* dgates = lstm_at(a_.dgates, plane * 4 * H);
    const LstmWeights& out = a_.grads[d];
    const bool add = a_.accumulate || first > 0;
    add_product(dgates, 4 * H, lstm_at(a_.x, first * a_.dims.input), count, add, out.w);
    if (out.r) {
      gather_h_before(d, first, count);
      add_product(dgates, 4 * H, space_.h_before, count, add, out.r);
    }
    if (out.b) {
      const int64_t lines = (4 * H + lstm_max_width - 1) / lstm_max_width;
      context_.pool->for_range(lines, 4, [&](int64_t begin, int64_t end) {
        kernels_.column_sums(dgates, count, 4 * H, begin * lstm_max_width,
                             std::min(end * lstm_max_width, 4 * H), add, out.b.as<float>());
      });
    }
    if (a_.dims.projection) {
      add_product(lstm_at(a_.dprojected, plane * P), P, lstm_at(a_.hidden, plane * H), count, add,
                  out.p);
    }
  }

  // out (+)= left^T right over `count` rows, left [count, m].
  void add_product(const void* left, int64_t m, const void* right, int64_t count, bool add,
                   const TensorView& out) {
    if (!out) return;
    const auto rows = static_cast<int32_t>(count);
    GemmArgs g =
        weight_gradient(m, out.dim(1), sum_rows(a_.dims, a_.x.dtype, a_.layout.capacity.rows),
                        out.dim(1), a_.x.dtype);
    g.row_count = &rows;
    g.a = left;
    g.b = right;
    g.c = out.data;
    g.beta = add ? 1 : 0;
    lstm_set_gemm_workspace(g, space_);
    rondo::run(context_, g);
  }

  // h_{t-1} of `count` rows of direction d, as one matrix.
  void gather_h_before(int d, int64_t first, int64_t count) {
    const PackedView& l = a_.layout;
    const int64_t D = a_.dims.directions, N = l.capacity.sequences;
    const size_t bytes = static_cast<size_t>(P) * size_of(a_.y.dtype);
    context_.pool->for_range(count, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = first + begin; row < first + end; ++row) {
        const int64_t t = l.row_frame[row], n = row - l.row_offsets[t];
        const int64_t before = d == 0 ? t - 1 : t + 1;
        char* target = space_.h_before + static_cast<size_t>(row - first) * bytes;
        if (before >= 0 && before < l.lengths[n]) {
          std::memcpy(target, lstm_at(a_.y, (l.row_offsets[before] + n) * D * P + d * P), bytes);
        } else if (a_.h0) {
          std::memcpy(target, lstm_at(a_.h0, (d * N + n) * P), bytes);
        } else {
          std::memset(target, 0, bytes);
        }
      }
    });
  }

  const LstmKernels& kernels_;
  const Context& context_;
  const LstmWeightGradArgs& a_;
  const int64_t H = a_.dims.hidden, P = a_.dims.output();
  WeightGradSpace space_;
};

}  // namespace

void lstm_weight_grad_cpu(const LstmCpu& cpu, const Context& context, const LstmWeightGradArgs& a) {
  check_lstm(a);
  Carver carver(a.workspace.data);
  WeightGradCall call(*cpu.of(a.x.dtype, a.dims), context, a, carver);
  lstm_check_workspace(a.workspace, carver.used());
  call.run();
}

size_t lstm_weight_grad_workspace_bytes(const Context& context, const LstmDims& dims, DType compute,
                                        const PackedCapacity& capacity) {
  Carver carver(nullptr);
  WeightGradSpace(carver, context, dims, compute, capacity);
  return carver.used();
}

}  // namespace rondo
