// The workspaces of lstm_cpu.cc, and the products outside the time loop, which decide their sizes.
#pragma once

#include <algorithm>

#include "kernels/base/arithmetic.h"
#include "kernels/gemm/int8.h"
#include "kernels/lstm/lstm_cpu.h"

namespace rondo {

// ---- products outside the time loop ----

// pre = x W^T + b for `rows` rows.
inline GemmArgs lstm_input_product(const LstmDims& dims, DType t, int64_t rows) {
  GemmArgs g = lstm_product(rows, 4 * dims.hidden, dims.input, t, DType::f32);
  g.transpose_b = true;
  g.lda = g.ldb = dims.input, g.ldc = 4 * dims.hidden;
  g.int8 = dims.int8;
  return g;
}

// dx (+)= dgates W.
inline GemmArgs lstm_input_gradient(const LstmDims& dims, DType t, int64_t rows) {
  GemmArgs g = lstm_product(rows, dims.input, 4 * dims.hidden, t, t);
  g.lda = 4 * dims.hidden, g.ldb = g.ldc = dims.input;
  return g;
}

// Runs everything in the caller; any number of threads may use it at once.
inline ThreadPool& lstm_one_thread() {
  static ThreadPool pool(1);
  return pool;
}

// ---- workspace ----

// As lstm_packed_elements(), of a layer's matrix: with operands of 8 bits four of them are one.
inline int64_t lstm_packed_elements(const LstmDims& dims, int64_t columns, int64_t k, bool cells) {
  return lstm_packed_elements(columns, dims.int8 ? (k + 3) / 4 : k, cells);
}

// Of one worker: LstmForwardLoop::integers.
inline int64_t lstm_integers_bytes(const LstmDims& dims, int64_t sequences) {
  if (!dims.int8) return 0;
  const int64_t widest = std::max(dims.output(), dims.projection ? dims.hidden : 0);
  const int64_t scales = sequences * static_cast<int64_t>(sizeof(float));
  return round_up(sequences * int8_row_bytes(widest) + scales, int64_t{64});
}

// Rows of pre-activations that are made at a time: enough for an efficient product, few enough to
// still be in the cache when the time loop reads them.
inline int64_t lstm_chunk_rows(const LstmDims& dims, const PackedCapacity& capacity) {
  constexpr int64_t bytes = 8 << 20;
  const int64_t fit = bytes / (4 * dims.hidden * 4 * dims.directions);
  return std::min(capacity.rows, std::max<int64_t>({fit, 512, capacity.sequences}));
}

// Groups of one thread each have an R and pre-activations of their own, when there are few enough
// of them and R is not too large: at most this many groups.
inline constexpr int lstm_max_own = 8;

inline int lstm_own_groups(const Context& context, const LstmDims& dims) {
  constexpr int64_t bytes = 64 << 20;
  const int64_t r_bytes = dims.directions * 4 * dims.hidden * dims.output() * 4;
  return static_cast<int>(std::min<int64_t>({context.pool->size(), lstm_max_own, bytes / r_bytes}));
}

inline int64_t lstm_own_rows(const LstmDims& dims, const PackedCapacity& capacity, int groups) {
  return std::min(capacity.rows, std::max<int64_t>({lstm_chunk_rows(dims, capacity) / groups, 512,
                                                    capacity.sequences}));
}

struct LstmForwardSpace {
  struct Direction {
    void *r, *p, *state, *projected;
    float *c, *pre;
  } direction[2];
  void* gemm;
  size_t gemm_bytes;
  // The memory of one group of one thread, in place of r, pre and gemm above.
  struct Own {
    void* r[2];
    char* x;
    float* pre[2];
    void* gemm;
    size_t gemm_bytes;
  } own[lstm_max_own];
  void* integers;  // of all workers

  LstmForwardSpace(Carver& carver, const Context& context, const LstmDims& dims, DType t,
                   const PackedCapacity& capacity) {
    const int64_t H = dims.hidden, P = dims.output(), N = capacity.sequences;
    const int64_t rows = lstm_chunk_rows(dims, capacity);
    integers = carver.take(lstm_integers_bytes(dims, N) * context.pool->size(), 1);
    for (int d = 0; d < dims.directions; ++d) {
      Direction& s = direction[d];
      s.r = carver.take(lstm_packed_elements(dims, H, P, true), sizeof(float));
      s.state = carver.take(2 * N * lstm_state_stride(P), sizeof(float));
      s.c = carver.take<float>(N * H, sizeof(float));
      s.p = s.projected = nullptr;
      if (dims.projection) {
        s.p = carver.take(lstm_packed_elements(dims, P, H, false), sizeof(float));
        s.projected = carver.take(N * lstm_state_stride(H), sizeof(float));
      }
    }
    Carver separate = carver;
    for (int d = 0; d < dims.directions; ++d) {
      direction[d].pre = carver.take<float>(rows * 4 * H, sizeof(float));
    }
    gemm_bytes = gemm_workspace_bytes(context, lstm_input_product(dims, t, rows));
    gemm = carver.take(static_cast<int64_t>(gemm_bytes), 1);
    const int groups = lstm_own_groups(context, dims);
    if (groups > 1) {
      carve_own(separate, context, dims, t, lstm_own_rows(dims, capacity, groups), groups);
    }
    if (separate.used() > carver.used()) carver = separate;
  }

 private:
  void carve_own(Carver& carver, const Context& context, const LstmDims& dims, DType t,
                 int64_t rows, int groups) {
    Context alone = context;
    alone.pool = &lstm_one_thread();
    for (int g = 0; g < groups; ++g) {
      own[g].x = carver.take<char>(rows * dims.input, size_of(t));
      for (int d = 0; d < dims.directions; ++d) {
        own[g].r[d] = carver.take(lstm_packed_elements(dims, dims.hidden, dims.output(), true),
                                  sizeof(float));
        own[g].pre[d] = carver.take<float>(rows * 4 * dims.hidden, sizeof(float));
      }
      own[g].gemm_bytes = gemm_workspace_bytes(alone, lstm_input_product(dims, t, rows));
      own[g].gemm = carver.take(static_cast<int64_t>(own[g].gemm_bytes), 1);
    }
  }
};

struct LstmBackwardSpace {
  struct Direction {
    void *r, *p, *dz, *dp;
    float *dh, *dc;
  } direction[2];
  void* gemm;
  size_t gemm_bytes;
  void* own_r[lstm_max_own][2];  // of one group of one thread, in place of r above

  LstmBackwardSpace(Carver& carver, const Context& context, const LstmDims& dims, DType t,
                    const PackedCapacity& capacity) {
    const int64_t H = dims.hidden, P = dims.output(), N = capacity.sequences;
    for (int d = 0; d < dims.directions; ++d) {
      Direction& s = direction[d];
      s.r = carver.take(lstm_packed_elements(P, 4 * H, false), sizeof(float));
      s.dh = carver.take<float>(N * P, sizeof(float));
      s.dc = carver.take<float>(N * H, sizeof(float));
      s.dz = t == DType::bf16 ? carver.take(2 * N * 4 * H, sizeof(float)) : nullptr;
      s.p = s.dp = nullptr;
      if (dims.projection) {
        s.p = carver.take(lstm_packed_elements(H, P, false), sizeof(float));
        s.dp = carver.take(N * lstm_state_stride(P), sizeof(float));
      }
    }
    const int groups = lstm_own_groups(context, dims);
    for (int g = 0; g < groups && groups > 1; ++g) {
      for (int d = 0; d < dims.directions; ++d) {
        own_r[g][d] = carver.take(lstm_packed_elements(P, 4 * H, false), sizeof(float));
      }
    }
    gemm_bytes = gemm_workspace_bytes(context, lstm_input_gradient(dims, t, capacity.rows));
    gemm = carver.take(static_cast<int64_t>(gemm_bytes), 1);
  }
};

}  // namespace rondo
