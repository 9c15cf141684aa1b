// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/gemm/gemm_pack.h"
#include "kernels/lstm/cpu/lstm_activation.h"
#include "kernels/lstm/lstm_impl.h"
#include "kernels/lstm/lstm_loop.h"
#if defined(__AMX_BF16__)
#include "kernels/lstm/cpu/lstm_tile_amx.h"
#else
#include "kernels/lstm/cpu/lstm_tile.h"
#endif

namespace rondo::RONDO_ISA {
namespace {

int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t panels_of(int64_t columns, int64_t per_panel) {
  return (columns + per_panel - 1) / per_panel;
}

vf get(const float* p) { return load(p); }
vf get(const uint16_t* p) { return load_bf16(p); }
void put(float* p, vf v) { store(p, v); }
void put(uint16_t* p, vf v) { store_bf16(p, v); }

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

// ---- packing ----

int64_t panel_count(const LstmMatrix& m) { return panels_of(m.columns, m.cells ? W : 4 * W); }

// A panel is [step of the sum][4][W] units of 4 bytes. One of the matrix's strides is 1.
template <class T, class A>
void pack(const LstmMatrix& m, int64_t first_panel, int64_t last_panel) {
  constexpr int depth = sizeof(A) == 2 ? 2 : 1;
  const auto* w = static_cast<const T*>(m.w);
  const int64_t units = (m.k + depth - 1) / depth, steps = sum_steps<A>(m.k);
  // Across rows a few steps at a time, for all vectors: whole cache lines in both directions.
  const int64_t block = m.k_stride == 1 ? units : 8;
  for (int64_t j = first_panel; j < last_panel; ++j) {
    float* panel = static_cast<float*>(m.packed) + j * steps * 4 * W;
    for (int64_t u = 0; u < units; u += block) {
      for (int v = 0; v < 4; ++v) {
        const int64_t first = m.cells ? j * W : (j * 4 + v) * W;
        const int64_t live = max_of(min_of(m.columns - first, W), 0);
        const T* column =
            w + ((m.cells ? v * m.columns : 0) + (live ? first : 0)) * m.column_stride;
        if (m.k_stride == 1) {
          pack_along<depth>(column, m.column_stride, static_cast<int>(live), m.k, panel + v * W,
                            4 * W);
        } else {
          pack_across<depth>(column, m.k_stride, live, m.k, u, min_of(u + block, units),
                             panel + v * W, 4 * W);
        }
      }
    }
    for (int64_t i = units * 4; i < steps * 4; ++i) store(panel + i * W, vf{});
  }
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

template <class A>
int64_t panel_size(int64_t depth) {
  return sum_steps<A>(depth) * static_cast<int64_t>(4 / sizeof(A)) * 4 * W;
}

// The product of a tile: rows of `a`, one sequence `stride` elements from the next, by `matrix`.
template <class A>
[[gnu::always_inline]] inline void multiply(TileRegisters& registers, const Place& place,
                                            const Tile& t, const A* a, int64_t stride,
                                            const void* matrix, int64_t depth, float* sums) {
  const A* const panels = static_cast<const A*>(matrix);
  tile_product(registers, t.rows(), a + place.sequence(t.begin) * stride, stride,
               panels + t.panel * panel_size<A>(depth), depth,
               panels + t.next_panel * panel_size<A>(depth), sums);
}

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

template <class T, class A>
struct Forward {
  const LstmForwardLoop& loop;
  const Place place;
  const LstmLoopShape& s = loop.shape;
  const int64_t H = s.hidden, P = s.output;
  const int64_t h_stride = lstm_state_stride(P), projected_stride = lstm_state_stride(H);
  mutable TileRegisters registers{};

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
    share(s, place, step, panels_of(H, W), s.batch_sizes[t], [&](const Tile& tile) {
      alignas(64) float sums[tile_elements];
      multiply(registers, place, tile, state, h_stride, d.r, P, sums);
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
    share(s, place, step, panels_of(P, 4 * W), s.batch_sizes[t], [&](const Tile& tile) {
      alignas(64) float sums[tile_elements];
      multiply(registers, place, tile, from, projected_stride, d.p, H, sums);
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

// ---- backward ----

template <class T, class A>
struct Backward {
  const LstmBackwardLoop& loop;
  const Place place;
  const LstmLoopShape& s = loop.shape;
  const int64_t H = s.hidden, P = s.output, dp_stride = lstm_state_stride(P);
  static constexpr bool direct = sizeof(T) == sizeof(A);  // dgates are operands as they are
  mutable TileRegisters registers{};

  // Frame of backward step j, or -1 past the last.
  int64_t frame(int direction, int64_t j) const {
    return j < s.frames ? lstm_frame(direction, s.frames - 1 - j, s.frames) : -1;
  }

  // Gradients of the gates of cells [u, u + W), sequence n at frame t, given dh.
  template <bool partial>
  void cell(int direction, int64_t j, int64_t t, int64_t n, int64_t u, vf dh) const {
    const auto& d = loop.direction[direction];
    const int64_t row = s.row_offsets[t] + n, live = min_of(H - u, W);
    const T* gates = static_cast<const T*>(d.gates) + row * 4 * H + u;
    const vf i = get<partial>(gates, live), f = get<partial>(gates + H, live);
    const vf g = get<partial>(gates + 2 * H, live), o = get<partial>(gates + 3 * H, live);
    const int64_t before = direction == 0 ? t - 1 : t + 1;
    vf c_before = {};
    if (before >= 0 && before < s.lengths[n]) {
      c_before = get<partial>(d.cells + (s.row_offsets[before] + n) * H + u, live);
    } else if (d.c0) {
      c_before = get<partial>(d.c0 + n * H + u, live);
    }
    const vf tanh_c = cell_tanh(get<partial>(d.cells + row * H + u, live));
    float* carried = d.dc + n * H + u;
    const vf dc = get<partial>(carried, live) + dh * o * (1.0f - tanh_c * tanh_c);
    put<partial>(carried, dc * f, live);
    const vf dz[4] = {dc * g * (i * (1.0f - i)), dc * c_before * (f * (1.0f - f)),
                      dc * i * (1.0f - g * g), dh * tanh_c * (o * (1.0f - o))};
    T* out = static_cast<T*>(d.dgates) + row * 4 * H + u;
    for (int64_t v = 0; v < 4; ++v) put<partial>(out + v * H, dz[v], live);
    if constexpr (!direct) {
      A* copy = static_cast<A*>(d.dz) + ((j % 2) * s.sequences + n) * 4 * H + u;
      for (int64_t v = 0; v < 4; ++v) {
        put<partial>(copy + v * H, rounded(dz[v], static_cast<T*>(nullptr)), live);
      }
    }
  }
  void any_cell(int direction, int64_t j, int64_t t, int64_t n, int64_t u, vf dh) const {
    return u + W <= H ? cell<false>(direction, j, t, n, u, dh)
                      : cell<true>(direction, j, t, n, u, dh);
  }

  // What follows once dh of columns [k, k + W) has come back from the frames after t: the cells,
  // or with a projection the total gradient of the projected output.
  template <bool partial>
  void arrive(int direction, int64_t j, int64_t t, int64_t n, int64_t k) const {
    const auto& d = loop.direction[direction];
    const int64_t row = s.row_offsets[t] + n, live = min_of(P - k, W);
    const vf dh = get<partial>(d.dh + n * P + k, live) +
                  get<partial>(static_cast<const T*>(d.dy) + row * loop.y_stride + k, live);
    if (!s.projected) return cell<partial>(direction, j, t, n, k, dh);
    put<partial>(static_cast<T*>(d.dprojected) + row * P + k, dh, live);
    put<partial>(static_cast<A*>(d.dp) + n * dp_stride + k, rounded(dh, static_cast<T*>(nullptr)),
                 live);
  }

  // ... for the columns of a tile and those of its sequences that are active at backward step j.
  void arrive_tile(int direction, int64_t j, const Tile& tile) const {
    const int64_t t = frame(direction, j);
    if (t < 0) return;
    const int64_t active = place.count(s.batch_sizes[t]);
    const int64_t end = tile.last ? active : min_of(tile.end, active);
    const int64_t last_column = min_of((tile.panel + 1) * 4 * W, P);
    for (int64_t i = tile.begin; i < end; ++i) {
      const int64_t n = place.sequence(i);
      for (int64_t k = tile.panel * 4 * W; k < last_column; k += W) {
        if (k + W <= P) {
          arrive<false>(direction, j, t, n, k);
        } else {
          arrive<true>(direction, j, t, n, k);
        }
      }
    }
  }

  // dh' = dprojected P, then the cells, at backward step j.
  void step_cells(int direction, int64_t j) const {
    const auto& d = loop.direction[direction];
    const int64_t t = frame(direction, j);
    share(s, place, j, panels_of(H, 4 * W), s.batch_sizes[t], [&](const Tile& tile) {
      alignas(64) float sums[tile_elements];
      multiply(registers, place, tile, static_cast<const A*>(d.dp), dp_stride, d.p, P, sums);
      for_vectors(place, tile, H, sums,
                  [&](int64_t n, int64_t u, vf dh) { any_cell(direction, j, t, n, u, dh); });
    });
  }

  // dh = dgates R of step j, then what it allows at step j + 1, where more sequences may join
  // (their dh is still the one they started with) or some may have ended.
  void step_back(int direction, int64_t j) const {
    const auto& d = loop.direction[direction];
    const int64_t t = frame(direction, j);
    const A* dz = direct ? static_cast<const A*>(d.dgates) + s.row_offsets[t] * 4 * H
                         : static_cast<const A*>(d.dz) + (j % 2) * s.sequences * 4 * H;
    share(s, place, j, panels_of(P, 4 * W), s.batch_sizes[t], [&](const Tile& tile) {
      alignas(64) float sums[tile_elements];
      multiply(registers, place, tile, dz, 4 * H, d.r, 4 * H, sums);
      for_vectors(place, tile, P, sums, [&](int64_t n, int64_t k, vf dh) {
        float* to = d.dh + n * P + k;
        k + W <= P ? put<false>(to, dh, W) : put<true>(to, dh, P - k);
      });
      arrive_tile(direction, j + 1, tile);
    });
  }

  void run() const {
    for (int d = place.first_direction; d < place.end_direction; ++d) walk(d);
  }

  void walk(int d) const {
    if (loop.begin == 0) {
      share(s, place, 0, panels_of(P, 4 * W), s.batch_sizes[frame(d, 0)],
            [&](const Tile& tile) { arrive_tile(d, 0, tile); });
      place.meet(s);
    }
    for (int64_t j = loop.begin; j < loop.end; ++j) {
      if (s.projected) {
        step_cells(d, j);
        place.meet(s);
      }
      step_back(d, j);
      place.meet(s);
    }
  }
};

// ---- bias gradients ----

// Of the columns from j on. Sums of blocks of rows first, then of those, so that rounding errors
// stay small.
template <int vectors, bool partial, class T>
void sum_columns(const T* m, int64_t j, int64_t rows, int64_t stride, int64_t live, bool accumulate,
                 float* out) {
  constexpr int64_t block = 64;
  vf total[vectors] = {};
  for (int64_t first = 0; first < rows; first += block) {
    const int64_t last = min_of(first + block, rows);
    vf part[vectors] = {};
    for (int64_t r = first; r < last; ++r) {
      const T* row = m + r * stride + j;
      for (int v = 0; v < vectors; ++v) part[v] += get<partial>(row + v * W, live);
    }
    for (int v = 0; v < vectors; ++v) total[v] += part[v];
  }
  for (int v = 0; v < vectors; ++v) {
    if (accumulate) total[v] += get<partial>(out + v * W, live);
    put<partial>(out + v * W, total[v], live);
  }
}

template <class T>
void column_sums(const void* matrix, int64_t rows, int64_t stride, int64_t begin, int64_t end,
                 bool accumulate, float* out) {
  const T* m = static_cast<const T*>(matrix);
  int64_t j = begin;
  for (; j + 4 * W <= end; j += 4 * W) {
    sum_columns<4, false>(m, j, rows, stride, W, accumulate, out + j);
  }
  for (; j + W <= end; j += W) {
    sum_columns<1, false>(m, j, rows, stride, W, accumulate, out + j);
  }
  if (j < end) sum_columns<1, true>(m, j, rows, stride, end - j, accumulate, out + j);
}

template <class T, class A>
constexpr LstmKernels kernels_of() {
  return {sizeof(A) == 2,
          W,
          rows_at_once,
          products_per_ns<A>,
          pack<T, A>,
          panel_count,
          [](const LstmForwardLoop& loop, int worker) {
            Forward<T, A>{loop, Place(loop.shape, worker)}.run();
          },
          [](const LstmBackwardLoop& loop, int worker) {
            Backward<T, A>{loop, Place(loop.shape, worker)}.run();
          },
          column_sums<T>};
}

}  // namespace

#if defined(__AVX512BF16__)
constinit const LstmKernels lstm_bf16 = kernels_of<uint16_t, uint16_t>();
#else
constinit const LstmKernels lstm_f32 = kernels_of<float, float>();
constinit const LstmKernels lstm_bf16 = kernels_of<uint16_t, float>();
#endif

}  // namespace rondo::RONDO_ISA
