// Sums over many rows, column by column: bias gradients, gradients of normalisation weights, means
// over frames. For *.cu files.
//
// A block adds up 32 columns of round_rows rows at a time: each warp sum_rows rows in float, one
// column per lane, then warps and rounds in double, in order. So the error does not grow with the
// number of rows, and the order of sums depends on the number of rows alone, not on capacities, on
// the grid or on whether there was a workspace.
#pragma once

#include "kernels/simt/column_workspace.h"
#include "kernels/simt/memory_bound.h"

namespace rondo::RONDO_GPU {

inline constexpr int64_t round_rows = column_sum_round;
inline constexpr int64_t sum_rows = round_rows / block_warps;
static_assert(sum_rows == 64);  // as on the CPU

template <int K>
struct ColumnSums {
  float part[block_warps][K][32];
};

// terms(row) gives K terms of the caller's column, threadIdx.x % 32; `inside`: it exists. Adds the
// sums over rows [begin, end) to `total`, in the first warp.
template <int K, class Terms>
__device__ void sum_columns(int64_t begin, int64_t end, bool inside, double (&total)[K],
                            Terms terms) {
  auto& s = shared<ColumnSums<K>>();
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int64_t round = begin; round < end; round += round_rows) {
    const int64_t first = round + warp * sum_rows;
    const int64_t last = first + sum_rows < end ? first + sum_rows : end;
    Floats<K> sum = {};
    if (inside) {
      RONDO_UNROLL(8)
      for (int64_t r = first; r < last; ++r) {
        const Floats<K> x = terms(r);
        for (int k = 0; k < K; ++k) sum[k] += x[k];
      }
    }
    for (int k = 0; k < K; ++k) s.part[warp][k][lane] = sum[k];
    __syncthreads();
    if (warp == 0) {
      for (int k = 0; k < K; ++k) {
        double of_round = 0;
        for (int w = 0; w < block_warps; ++w) of_round += static_cast<double>(s.part[w][k][lane]);
        total[k] += of_round;
      }
    }
    __syncthreads();  // before the next round overwrites `part`
  }
}

// y[k][c] (+)= the sums of K terms over all rows.
template <int K>
struct ColumnTotals {
  int64_t rows, cols;  // capacity
  const int32_t* row_count;
  float* y[K];  // nullptr: not wanted
  bool accumulate;
  double* parts;  // [rounds, K, cols], or nullptr
};

template <int K>
__device__ void store_total(const ColumnTotals<K>& a, int k, int64_t c, double total) {
  if (a.y[k] == nullptr) return;
  const double before = a.accumulate ? static_cast<double>(a.y[k][c]) : 0;
  a.y[k][c] = static_cast<float>(before + total);
}

// Block (tile of 32 columns, round); without `parts` one block takes all rounds of its tile.
template <int K, class Terms>
__global__ void column_parts(ColumnTotals<K> a, Terms terms) {
  const int64_t c = int64_t{blockIdx.x} * 32 + threadIdx.x % 32;
  const int64_t rows = live_rows(a.rows, a.row_count);
  const int64_t begin = int64_t{blockIdx.y} * round_rows;
  const int64_t end = a.parts && begin + round_rows < rows ? begin + round_rows : rows;
  double total[K] = {};
  sum_columns<K>(begin, end, c < a.cols, total, [&](int64_t r) { return terms(r, c); });
  if (threadIdx.x >= 32 || c >= a.cols) return;
  for (int k = 0; k < K; ++k) {
    if (a.parts == nullptr) {
      store_total(a, k, c, total[k]);
    } else if (begin < rows) {
      a.parts[(int64_t{blockIdx.y} * K + k) * a.cols + c] = total[k];
    }
  }
}

// One thread per column.
template <int K>
__global__ void column_totals(ColumnTotals<K> a) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= a.cols) return;
  const int64_t rounds = (live_rows(a.rows, a.row_count) + round_rows - 1) / round_rows;
  for (int k = 0; k < K; ++k) {
    double total = 0;
    for (int64_t r = 0; r < rounds; ++r) total += a.parts[(r * K + k) * a.cols + c];
    store_total(a, k, c, total);
  }
}

// Adds up terms(row, column), K of them. The workspace (column_sum_workspace_bytes(rows, cols, K))
// spreads rows over more blocks; absent, each tile of columns has one.
template <int K, class Terms>
void add_up_columns(const Context& context, const char* kernel, ColumnTotals<K> a,
                    const TensorView& workspace, Terms terms) {
  const size_t needed = column_sum_workspace_bytes(context, a.rows, a.cols, K);
  RONDO_CHECK(!workspace || workspace.bytes() >= needed, kernel, ": the workspace has ",
              workspace.bytes(), " bytes, expected ", needed);
  a.parts = needed > 0 ? static_cast<double*>(workspace.data) : nullptr;
  const unsigned rounds = a.parts ? blocks_for(a.rows, round_rows) : 1;
  launch(context,
         {.kernel = kernel,
          .grid = {blocks_for(a.cols, 32), rounds},
          .block = {block_threads},
          .shared_bytes = sizeof(ColumnSums<K>)},
         column_parts<K, Terms>, a, terms);
  if (a.parts == nullptr) return;
  launch(context, {.kernel = kernel, .grid = {blocks_for(a.cols, 128)}, .block = {128}},
         column_totals<K>, a);
}

}  // namespace rondo::RONDO_GPU
