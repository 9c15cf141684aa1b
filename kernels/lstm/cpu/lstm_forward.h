// The walk of the time loops over a packed batch, and the forward one, per instruction set: for
// lstm_loop_simd.cc and lstm_int8_simd.cc, which define before it what a product is
// (max_tile_rows and fine_rows, of lstm_tile.h or int8_tile.h).
#pragma once

#include "kernels/gemm/gemm_pack.h"
#include "kernels/lstm/lstm_impl.h"
#include "kernels/lstm/lstm_loop.h"

namespace rondo::RONDO_ISA {
namespace {

#include "kernels/lstm/lstm_activation.h"

int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t panels_of(int64_t columns, int64_t per_panel) {
  return (columns + per_panel - 1) / per_panel;
}

vf get(const float* p) { return load(p); }
[[maybe_unused]] vf get(const uint16_t* p) { return load_bf16(p); }
void put(float* p, vf v) { store(p, v); }
[[maybe_unused]] void put(uint16_t* p, vf v) { store_bf16(p, v); }

// A vector, or with partial the first n < W elements; the rest is zero, or not written.
template <bool partial, class T>
[[gnu::always_inline]] inline vf get(const T* p, int64_t n) {
  if constexpr (!partial) return get(p);
  T pad[W] = {};
  for (int64_t i = 0; i < W && i < n; ++i) pad[i] = p[i];
  return get(pad);
}
template <bool partial, class T>
[[gnu::always_inline]] inline void put(T* p, vf v, int64_t n) {
  if constexpr (!partial) return put(p, v);
  T pad[W];
  put(pad, v);
  for (int64_t i = 0; i < W && i < n; ++i) p[i] = pad[i];
}

// What a value becomes when it is stored as T and read back.
[[maybe_unused]] vf rounded(vf v, const float*) { return v; }
[[maybe_unused]] vf rounded(vf v, const uint16_t*) {
  uint16_t bits[W];
  store_bf16(bits, v);
  return load_bf16(bits);
}

// ---- the walk over time ----

// What a worker's place in the team makes it do.
struct Place {
  int group, thread;
  int first_direction, end_direction;
  int64_t first_sequence, sequences;

  Place(const LstmLoopShape& s, int worker)
      : group(worker / s.team.threads),
        thread(worker % s.team.threads),
        first_direction(s.first_direction + (s.team.directions_apart ? group / s.team.splits : 0)),
        end_direction(first_direction + (s.team.directions_apart ? 1 : s.directions)),
        first_sequence(s.team.first_sequences[group % s.team.splits]),
        sequences(s.team.first_sequences[group % s.team.splits + 1] - first_sequence) {}

  // How many of the first `rows` sequences are this place's: sequence(0), ... sequence(count - 1).
  int64_t count(int64_t rows) const { return max_of(min_of(rows - first_sequence, sequences), 0); }
  int64_t sequence(int64_t i) const { return first_sequence + i; }
  void meet(const LstmLoopShape& s) const {
    if (s.team.threads > 1) s.team.barriers[group]->arrive_and_wait();
  }
};

// A tile of the product: this place's sequences [begin, end) by a panel.
struct Tile {
  int64_t panel, begin, end;
  bool last;           // of the panel's tiles
  int64_t next_panel;  // of this step; its own panel where that is the last

  int64_t rows() const { return end - begin; }
};

// Tiles of `rows` rows: as few as there can be, but where several threads share few panels, smaller
// ones, so that all have something to do.
int64_t tile_count(int64_t rows, int64_t panels, int64_t threads) {
  const int64_t most = panels < 4 * threads ? fine_rows : max_tile_rows;
  return max_of((rows + most - 1) / most, 1);
}

// Calls f(tile) for this thread's share of the products of `rows` sequences with `panels` panels.
template <class F>
[[gnu::always_inline]] inline void share(const LstmLoopShape& s, const Place& place, int64_t step,
                                         int64_t panels, int64_t rows, F f) {
  const int64_t count = place.count(rows), tiles = tile_count(count, panels, s.team.threads);
  const int64_t items = panels * tiles;
  const int64_t first = items * place.thread / s.team.threads;
  const int64_t end = items * (place.thread + 1) / s.team.threads;
  for (int64_t i = first; i < end; ++i) {
    const int64_t item = step % 2 ? first + end - 1 - i : i, tile = item % tiles;
    const int64_t panel = item / tiles;
    const int64_t next =
        step % 2 ? max_of(panel - 1, first / tiles) : min_of(panel + 1, (end - 1) / tiles);
    f(Tile{panel, count * tile / tiles, count * (tile + 1) / tiles, tile == tiles - 1, next});
  }
}

constexpr int64_t tile_elements = max_tile_rows * 4 * W;

// Calls f(sequence, column, sums of W columns) for a product with plain columns.
template <class F>
[[gnu::always_inline]] inline void for_vectors(const Place& place, const Tile& t, int64_t columns,
                                               const float* sums, F f) {
  for (int64_t i = t.begin; i < t.end; ++i, sums += 4 * W) {
    for (int64_t v = 0; v < 4; ++v) {
      const int64_t column = (t.panel * 4 + v) * W;
      if (column < columns) f(place.sequence(i), column, load(sums + v * W));
    }
  }
}

// ---- forward ----

// Whether cells fetch, of the same row, the cache line that later panels will read: their products
// hide the way from L3. With 16 floats to a vector, a line for each panel, nothing was gained.
constexpr bool fetches_cells = W < 16;
constexpr int64_t floats_per_line = 16;

// T is the storage dtype. Products: of a step's operands, which lie as Operand, with a packed
// matrix. begin() sees the rows of a step before multiply() takes tiles of them.
template <class T, class Products>
struct Forward {
  using A = typename Products::Operand;
  const LstmForwardLoop& loop;
  const Place place;
  mutable Products products;
  const LstmLoopShape& s = loop.shape;
  const int64_t H = s.hidden, P = s.output;
  const int64_t h_stride = lstm_state_stride(P), projected_stride = lstm_state_stride(H);

  template <bool partial>
  static void put_operand(float* p, vf v, int64_t n) {
    put<partial>(p, rounded(v, static_cast<T*>(nullptr)), n);
  }
  template <bool partial>
  static void put_operand(uint16_t* p, vf v, int64_t n) {
    put<partial>(p, v, n);
  }

  // The cells of a tile, from the products in `sums`.
  template <bool partial>
  void cells(int direction, int64_t step, const float* inputs, const Tile& tile,
             const float* sums) const {
    const int64_t u = tile.panel * W, live = min_of(H - u, W);
    const int64_t to_later = (tile.next_panel - tile.panel) * floats_per_line;
    const int64_t row0 = s.row_offsets[lstm_frame(direction, step, s.frames)];
    const auto& d = loop.direction[direction];
    A* state = static_cast<A*>(d.state) + ((step + 1) % 2) * s.sequences * h_stride;
    for (int64_t r = tile.begin; r < tile.end; ++r, sums += 4 * W) {
      const int64_t n = place.sequence(r), row = row0 + n;
      const float* pre = inputs + r * 4 * H + u;
      float* c = d.c + n * H + u;
      T* const y = static_cast<T*>(d.y) + row * loop.y_stride + u;
      if constexpr (fetches_cells) {
        for (int64_t g = 0; g < 4; ++g) __builtin_prefetch(pre + g * H + to_later, 0, 2);
        if (!s.projected) __builtin_prefetch(y + to_later, 1, 2);
      }
      const vf i = cell_sigmoid(load(sums) + get<partial>(pre, live));
      const vf f = cell_sigmoid(load(sums + W) + get<partial>(pre + H, live));
      const vf g = cell_tanh(load(sums + 2 * W) + get<partial>(pre + 2 * H, live));
      const vf o = cell_sigmoid(load(sums + 3 * W) + get<partial>(pre + 3 * H, live));
      const vf cell = f * get<partial>(c, live) + i * g;
      const vf h = o * cell_tanh(cell);
      put<partial>(c, cell, live);
      if (d.gates) {
        T* gates = static_cast<T*>(d.gates) + row * 4 * H + u;
        put<partial>(gates, i, live);
        put<partial>(gates + H, f, live);
        put<partial>(gates + 2 * H, g, live);
        put<partial>(gates + 3 * H, o, live);
      }
      if (d.cells) put<partial>(d.cells + row * H + u, cell, live);
      if (d.hidden) put<partial>(static_cast<T*>(d.hidden) + row * H + u, h, live);
      if (s.projected) {
        put_operand<partial>(static_cast<A*>(d.projected) + n * projected_stride + u, h, live);
      } else {
        put_operand<partial>(state + n * h_stride + u, h, live);
        put<partial>(y, h, live);
      }
    }
  }

  // `inputs`: x W^T + b of this place's first sequence.
  void step_cells(int direction, int64_t step, const float* inputs) const {
    const auto& d = loop.direction[direction];
    const int64_t t = lstm_frame(direction, step, s.frames);
    const A* state = static_cast<const A*>(d.state) + (step % 2) * s.sequences * h_stride;
    products.begin(place, s.batch_sizes[t], state, h_stride, P);
    share(s, place, step, panels_of(H, W), s.batch_sizes[t], [&](const Tile& tile) {
      alignas(64) float sums[tile_elements];
      products.multiply(place, tile, state, h_stride, d.r, P, sums);
      if ((tile.panel + 1) * W <= H) {
        cells<false>(direction, step, inputs, tile, sums);
      } else {
        cells<true>(direction, step, inputs, tile, sums);
      }
    });
  }

  void step_projection(int direction, int64_t step) const {
    const auto& d = loop.direction[direction];
    const int64_t t = lstm_frame(direction, step, s.frames), row0 = s.row_offsets[t];
    A* state = static_cast<A*>(d.state) + ((step + 1) % 2) * s.sequences * h_stride;
    const auto* from = static_cast<const A*>(d.projected);
    products.begin(place, s.batch_sizes[t], from, projected_stride, H);
    share(s, place, step, panels_of(P, 4 * W), s.batch_sizes[t], [&](const Tile& tile) {
      alignas(64) float sums[tile_elements];
      products.multiply(place, tile, from, projected_stride, d.p, H, sums);
      for_vectors(place, tile, P, sums, [&](int64_t n, int64_t k, vf h) {
        const int64_t live = min_of(P - k, W);
        put_operand<true>(state + n * h_stride + k, h, live);
        put<true>(static_cast<T*>(d.y) + (row0 + n) * loop.y_stride + k, h, live);
      });
    });
  }

  void run() const {
    for (int d = place.first_direction; d < place.end_direction; ++d) walk(d);
  }

  void walk(int d) const {
    const auto& direction = loop.direction[d];
    int64_t own_row = 0;
    for (int64_t step = loop.begin; step < loop.end; ++step) {
      const int64_t t = lstm_frame(d, step, s.frames);
      const int64_t row =
          loop.own_inputs ? own_row : s.row_offsets[t] + place.first_sequence - direction.pre_row;
      step_cells(d, step, direction.pre + row * 4 * H);
      own_row += place.count(s.batch_sizes[t]);
      place.meet(s);
      if (!s.projected) continue;
      step_projection(d, step);
      place.meet(s);
    }
  }
};

}  // namespace
}  // namespace rondo::RONDO_ISA
