// The fused LSTM variants: one launch per time step (two with a projection), in which a small
// product is fused with the cells that need it: half the launches of `portable`, but no tensor
// cores, so they are for small layers. Sums run in a fixed order that depends neither on the batch
// nor on the launch, so they are deterministic.
//
// A block computes a tile of 16 sequences x 64 columns: forward the four gates of 16 cells, in the
// backward pass dh of 64 cells. Each thread has 2 sequences x 4 columns.
#include <algorithm>

#include "kernels/lstm/gpu/lstm_per_step.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int block_threads = lstm_step_threads;
constexpr int tile_rows = 16, tile_columns = 64, tile_cells = 16, tile_depth = 32;
constexpr int thread_rows = 2, thread_columns = 4;

struct TileShared {
  float a[tile_rows][tile_depth + 1];
  float b[tile_columns][tile_depth + 1];
};

// What a block works on.
struct Tile {
  int64_t d, n, column;  // direction, first sequence, first cell or column
  int rows;              // sequences that are active; 0: nothing to do
};

__device__ Tile tile_of(int64_t d, int64_t active, int columns) {
  const int64_t n = int64_t{blockIdx.y} * tile_rows;
  const int64_t rows = active - n;
  return {d, n, int64_t{blockIdx.x} * columns,
          static_cast<int>(rows < 0           ? 0
                           : rows < tile_rows ? rows
                                              : tile_rows)};
}

// The sequence (within the tile) and the column of a thread's element.
__device__ int row_of(int r) { return static_cast<int>(threadIdx.x) / 16 + 8 * r; }
__device__ int column_of(int c) { return static_cast<int>(threadIdx.x) % 16 + 16 * c; }

enum class Matrix : uint8_t { column_major, row_major };  // which of k and the column is adjacent

// sum[r][c] = sum over k < depth of a(row, k) * b(k, column). `a` and `b` give 0 outside.
template <Matrix layout, class A, class B>
__device__ void tile_product(int64_t depth, A a, B b, float (&sum)[thread_rows][thread_columns]) {
  auto& s = shared<TileShared>();
  for (auto& row : sum) {
    for (float& v : row) v = 0;
  }
  for (int64_t first = 0; first < depth; first += tile_depth) {
    for (int i = static_cast<int>(threadIdx.x); i < tile_rows * tile_depth; i += block_threads) {
      const int row = i / tile_depth, k = i % tile_depth;
      s.a[row][k] = first + k < depth ? a(row, first + k) : 0.0f;
    }
    for (int i = static_cast<int>(threadIdx.x); i < tile_columns * tile_depth; i += block_threads) {
      const bool k_adjacent = layout == Matrix::column_major;
      const int column = k_adjacent ? i / tile_depth : i % tile_columns;
      const int k = k_adjacent ? i % tile_depth : i / tile_columns;
      s.b[column][k] = first + k < depth ? b(first + k, column) : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < tile_depth; ++k) {
      for (int r = 0; r < thread_rows; ++r) {
        for (int c = 0; c < thread_columns; ++c) {
          sum[r][c] += s.a[row_of(r)][k] * s.b[column_of(c)][k];
        }
      }
    }
    __syncthreads();
  }
}

// ---- forward ----

template <class T>
struct Forward : LstmForwardArrays<T> {
  const T* p[2];

  Forward(const LstmForwardArgs& a, const LstmGpuForwardSpace& space)
      : LstmForwardArrays<T>(a, space), p{a.weights[0].p.as<T>(), a.weights[1].p.as<T>()} {}
};

template <class T>
__global__ void forward_start(Forward<T> f) {
  const LstmElement e = lstm_element(f.shape, f.shape.hidden);
  if (e.inside) f.c[e.at] = f.c0 ? f.c0[e.at] : 0.0f;
}

template <class T>
__global__ void forward_step(Forward<T> f, int64_t step) {
  const LstmShape& s = f.shape;
  const int64_t d = s.first_direction + blockIdx.z, H = s.hidden, P = s.output,
                t = lstm_frame_at(s, d, step);
  const Tile tile = tile_of(d, lstm_active_at(s, t), tile_cells);
  if (tile.rows == 0) return;
  const auto h_before = [&](int row, int64_t k) {
    if (row >= tile.rows) return 0.0f;
    const int64_t n = tile.n + row, before = s.row_before(d, n, t);
    if (before >= 0) return to_float(f.y[(before * s.directions + d) * P + k]);
    return f.h0 ? to_float(f.h0[s.state(d, n) * P + k]) : 0.0f;
  };
  const T* r = f.r[d];
  const auto weight = [&](int64_t k, int column) {
    const int64_t u = tile.column + column % tile_cells, g = column / tile_cells;
    return u < H ? to_float(r[(g * H + u) * P + k]) : 0.0f;
  };
  float sum[thread_rows][thread_columns];
  tile_product<Matrix::column_major>(P, h_before, weight, sum);
  for (int i = 0; i < thread_rows; ++i) {
    const int64_t u = tile.column + column_of(0);
    if (row_of(i) < tile.rows && u < H)
      lstm_forward_cell_at(f, d, tile.n + row_of(i), t, u, sum[i]);
  }
}

template <class T>
__global__ void forward_project(Forward<T> f, int64_t step) {
  const LstmShape& s = f.shape;
  const int64_t d = s.first_direction + blockIdx.z, H = s.hidden, P = s.output,
                t = lstm_frame_at(s, d, step);
  const Tile tile = tile_of(d, lstm_active_at(s, t), tile_columns);
  if (tile.rows == 0) return;
  const auto h = [&](int row, int64_t k) {
    return row < tile.rows ? to_float(f.h_cell[s.state(d, tile.n + row) * H + k]) : 0.0f;
  };
  const T* p = f.p[d];
  const auto weight = [&](int64_t k, int column) {
    const int64_t j = tile.column + column;
    return j < P ? to_float(p[j * H + k]) : 0.0f;
  };
  float sum[thread_rows][thread_columns];
  tile_product<Matrix::column_major>(H, h, weight, sum);
  for (int i = 0; i < thread_rows; ++i) {
    for (int c = 0; c < thread_columns; ++c) {
      const int64_t row = s.layout.row_offsets[t] + tile.n + row_of(i);
      const int64_t j = tile.column + column_of(c);
      if (row_of(i) < tile.rows && j < P) f.y[(row * s.directions + d) * P + j] = to<T>(sum[i][c]);
    }
  }
}

template <class T>
__global__ void forward_end(Forward<T> f) {
  const LstmShape& s = f.shape;
  const LstmElement c = lstm_element(s, s.hidden), h = lstm_element(s, s.output);
  const int64_t sequences = s.layout.extent->sequences;
  if (f.cn && c.inside && c.n < sequences) f.cn[c.at] = f.c[c.at];
  if (!f.hn || !h.inside || h.n >= sequences) return;
  const int64_t length = s.layout.lengths[h.n];
  if (length == 0) {
    f.hn[h.at] = f.h0 ? f.h0[h.at] : to<T>(0.0f);
    return;
  }
  const int64_t row = s.row(h.n, h.d == 0 ? length - 1 : 0);
  f.hn[h.at] = f.y[(row * s.directions + h.d) * s.output + h.k];
}

// ---- backward ----

template <class T>
struct Backward : LstmBackwardArrays<T> {
  const T* p[2];

  Backward(const LstmBackwardArgs& a, const LstmGpuBackwardSpace& space)
      : LstmBackwardArrays<T>(a, space), p{a.weights[0].p.as<T>(), a.weights[1].p.as<T>()} {}
};

template <class T>
__global__ void backward_start(Backward<T> b) {
  const LstmElement e = lstm_element(b.shape, b.shape.hidden);
  if (e.inside) b.dc[e.at] = b.dcn ? b.dcn[e.at] : 0.0f;
}

// What comes back through R to the tile's sequences from the rows `after` gives: dgates R, or dhn
// where there is no such row.
template <class T, class After>
__device__ void recurrent_gradient(const Backward<T>& b, const Tile& tile, After after,
                                   float (&sum)[thread_rows][thread_columns]) {
  const LstmShape& s = b.shape;
  const int64_t P = s.output, G = 4 * s.hidden;
  const auto dgate = [&](int row, int64_t k) {
    const int64_t from = row < tile.rows ? after(tile.n + row) : -1;
    return from < 0 ? 0.0f : to_float(b.dgates[s.plane_row(tile.d, from) * G + k]);
  };
  const T* r = b.r[tile.d];
  const auto weight = [&](int64_t k, int column) {
    const int64_t j = tile.column + column;
    return j < P ? to_float(r[k * P + j]) : 0.0f;
  };
  tile_product<Matrix::row_major>(G, dgate, weight, sum);
  if (!b.dhn) return;
  for (int i = 0; i < thread_rows; ++i) {
    const int64_t n = tile.n + row_of(i);
    if (row_of(i) >= tile.rows || after(n) >= 0) continue;
    for (int c = 0; c < thread_columns; ++c) {
      const int64_t j = tile.column + column_of(c);
      if (j < P) sum[i][c] = to_float(b.dhn[s.state(tile.d, n) * P + j]);
    }
  }
}

template <class T>
__global__ void backward_step(Backward<T> b, int64_t step) {
  const LstmShape& s = b.shape;
  const int64_t d = s.first_direction + blockIdx.z, P = s.output, t = lstm_frame_at(s, d, step);
  const Tile tile = tile_of(d, lstm_active_at(s, t), tile_columns);
  if (tile.rows == 0) return;
  float dh[thread_rows][thread_columns];
  recurrent_gradient(
      b, tile, [&](int64_t n) { return s.row_after(d, n, t); }, dh);
  for (int i = 0; i < thread_rows; ++i) {
    for (int c = 0; c < thread_columns; ++c) {
      const int64_t n = tile.n + row_of(i), j = tile.column + column_of(c);
      if (row_of(i) >= tile.rows || j >= P) continue;
      const int64_t row = s.layout.row_offsets[t] + n;
      const float total = dh[i][c] + to_float(b.dy[(row * s.directions + d) * P + j]);
      if (b.dprojected) {
        b.dprojected[s.plane_row(d, row) * P + j] = to<T>(total);
      } else {
        lstm_backward_cell_at(b, d, n, t, j, total);
      }
    }
  }
}

// With a projection: from the gradient of h_t to that of h', and the cells.
template <class T>
__global__ void backward_project(Backward<T> b, int64_t step) {
  const LstmShape& s = b.shape;
  const int64_t d = s.first_direction + blockIdx.z, H = s.hidden, P = s.output,
                t = lstm_frame_at(s, d, step);
  const Tile tile = tile_of(d, lstm_active_at(s, t), tile_columns);
  if (tile.rows == 0) return;
  const int64_t first = s.plane_row(d, s.layout.row_offsets[t] + tile.n);
  const auto dprojected = [&](int row, int64_t k) {
    return row < tile.rows ? to_float(b.dprojected[(first + row) * P + k]) : 0.0f;
  };
  const T* p = b.p[d];
  const auto weight = [&](int64_t k, int column) {
    const int64_t u = tile.column + column;
    return u < H ? to_float(p[k * H + u]) : 0.0f;
  };
  float dh[thread_rows][thread_columns];
  tile_product<Matrix::row_major>(P, dprojected, weight, dh);
  for (int i = 0; i < thread_rows; ++i) {
    for (int c = 0; c < thread_columns; ++c) {
      const int64_t u = tile.column + column_of(c);
      if (row_of(i) < tile.rows && u < H)
        lstm_backward_cell_at(b, d, tile.n + row_of(i), t, u, dh[i][c]);
    }
  }
}

// dh0, the gradient that leaves at the first frame each sequence visited.
template <class T>
__global__ void backward_initial_h(Backward<T> b) {
  const LstmShape& s = b.shape;
  const int64_t d = s.first_direction + blockIdx.z, P = s.output;
  const Tile tile = tile_of(d, s.layout.extent->sequences, tile_columns);
  if (tile.rows == 0) return;
  float dh[thread_rows][thread_columns];
  const auto first = [&](int64_t n) { return s.row(n, d == 0 ? 0 : s.layout.lengths[n] - 1); };
  recurrent_gradient(b, tile, first, dh);
  for (int i = 0; i < thread_rows; ++i) {
    for (int c = 0; c < thread_columns; ++c) {
      const int64_t n = tile.n + row_of(i), j = tile.column + column_of(c);
      if (row_of(i) < tile.rows && j < P) b.dh0[s.state(d, n) * P + j] = to<T>(dh[i][c]);
    }
  }
}

template <class T>
__global__ void backward_initial_c(Backward<T> b) {
  const LstmElement e = lstm_element(b.shape, b.shape.hidden);
  if (e.inside && e.n < b.shape.layout.extent->sequences) b.dc0[e.at] = b.dc[e.at];
}

// ---- hosts ----

// Tiles of all sequences x `width` cells or columns, `columns` to a tile.
template <class Args>
LaunchConfig tiles(const char* name, const Args& a, int64_t width, int columns) {
  return {.kernel = name,
          .grid = {blocks_for(width, columns), blocks_for(a.layout.capacity.sequences, tile_rows),
                   static_cast<unsigned>(lstm_directions(a.dims, a.run))},
          .block = {block_threads},
          .shared_bytes = sizeof(TileShared)};
}

template <class T>
void forward(const Context& context, const LstmForwardArgs& a) {
  const int64_t states = lstm_directions(a.dims, a.run) * a.layout.capacity.sequences;
  if (states == 0) return;
  const LstmGpuForwardSpace space = lstm_gpu_space(context, a);
  const Forward<T> f(a, space);
  const int64_t H = a.dims.hidden, P = a.dims.output();
  lstm_gpu_input_products(context, a, space);
  lstm_launch_each(context, "lstm forward_start", states * H, forward_start<T>, f);
  for (int64_t step = 0; step < a.layout.capacity.frames; ++step) {
    launch(context, tiles("lstm forward_step", a, H, tile_cells), forward_step<T>, f, step);
    if (a.dims.projection) {
      launch(context, tiles("lstm forward_project", a, P, tile_columns), forward_project<T>, f,
             step);
    }
  }
  lstm_launch_each(context, "lstm forward_end", states * std::max(H, P), forward_end<T>, f);
}

template <class T>
void backward(const Context& context, const LstmBackwardArgs& a) {
  const int64_t states = lstm_directions(a.dims, a.run) * a.layout.capacity.sequences;
  if (states == 0) return;
  const LstmGpuBackwardSpace space = lstm_gpu_space(context, a);
  const Backward<T> b(a, space);
  const int64_t H = a.dims.hidden, P = a.dims.output();
  lstm_launch_each(context, "lstm backward_start", states * H, backward_start<T>, b);
  for (int64_t step = a.layout.capacity.frames - 1; step >= 0; --step) {
    launch(context, tiles("lstm backward_step", a, P, tile_columns), backward_step<T>, b, step);
    if (a.dims.projection) {
      launch(context, tiles("lstm backward_project", a, H, tile_columns), backward_project<T>, b,
             step);
    }
  }
  if (a.dh0) {
    launch(context, tiles("lstm backward_initial_h", a, P, tile_columns), backward_initial_h<T>, b);
  }
  if (a.dc0)
    lstm_launch_each(context, "lstm backward_initial_c", states * H, backward_initial_c<T>, b);
  lstm_gpu_input_gradients(context, a, space);
}

}  // namespace

void lstm_forward_fused(const Context& context, const LstmForwardArgs& a) {
  lstm_run_typed(context, a, forward<float>, forward<bf16>);
}

void lstm_backward_fused(const Context& context, const LstmBackwardArgs& a) {
  lstm_run_typed(context, a, backward<float>, backward<bf16>);
}

}  // namespace rondo::RONDO_GPU
