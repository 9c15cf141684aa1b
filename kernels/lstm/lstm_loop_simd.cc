// Compiled once per instruction set; see kernels/base/simd.h.
#include "kernels/lstm/lstm_activation.h"
#include "kernels/lstm/lstm_impl.h"
#include "kernels/lstm/lstm_loop.h"
#include "kernels/lstm/lstm_tile.h"

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

// Element order within a panel: k outermost, in pairs for bf16 operands.
[[maybe_unused]] void place(float* panel, int64_t k, int v, int64_t w, float x) {
  panel[(k * 4 + v) * W + w] = x;
}
[[maybe_unused]] void place(uint16_t* panel, int64_t k, int v, int64_t w, uint16_t x) {
  panel[((k / 2 * 4 + v) * W + w) * 2 + k % 2] = x;
}
[[maybe_unused]] float operand(float x, const float*) { return x; }
[[maybe_unused]] float operand(uint16_t x, const float*) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16);
}
[[maybe_unused]] uint16_t operand(uint16_t x, const uint16_t*) { return x; }

// Elements of k that an operand of type A is stored with.
template <class A>
int64_t operand_depth(int64_t k) {
  return sizeof(A) == 2 ? lstm_state_stride(k) : k;
}

int64_t panel_count(const LstmMatrix& m) { return panels_of(m.columns, m.cells ? W : 4 * W); }

// k in [k0, k1) of one vector of columns.
template <bool partial, class T, class A>
[[gnu::always_inline]] inline void pack_vector(const LstmMatrix& m, const T* column, int64_t live,
                                               int64_t k0, int64_t k1, int v, A* panel) {
  constexpr A* type = nullptr;
  for (int64_t i = 0; i < W; ++i) {
    for (int64_t k = k0; k < k1; ++k) {
      const bool inside = !partial || (i < live && k < m.k);
      place(panel, k, v, i,
            inside ? operand(column[i * m.column_stride + k * m.k_stride], type) : A(0));
    }
  }
}

template <class T, class A>
void pack(const LstmMatrix& m, int64_t first_panel, int64_t last_panel) {
  const auto* w = static_cast<const T*>(m.w);
  const int64_t depth = operand_depth<A>(m.k);
  for (int64_t j = first_panel; j < last_panel; ++j) {
    A* panel = static_cast<A*>(m.packed) + j * depth * 4 * W;
    for (int64_t k0 = 0; k0 < depth; k0 += 16) {  // a cache line of w at a time, either way round
      const int64_t k1 = min_of(k0 + 16, depth);
      for (int v = 0; v < 4; ++v) {
        const int64_t first = m.cells ? j * W : (j * 4 + v) * W, live = m.columns - first;
        const T* column = w + ((m.cells ? v * m.columns : 0) + first) * m.column_stride;
        if (live >= W && k1 <= m.k) {
          pack_vector<false>(m, column, W, k0, k1, v, panel);
        } else {
          pack_vector<true>(m, column, live, k0, k1, v, panel);
        }
      }
    }
  }
}

// ---- the walk over time ----

// Calls f(panel, first row, end row, last tile?) for this thread's share of the (panel, tile)
// pairs.
template <class F>
void share(const LstmLoopShape& s, int worker, int64_t panels, int64_t rows, F f) {
  const int64_t tiles = max_of(tile_count(rows), 1), items = panels * tiles;
  const int64_t thread = worker % s.threads_per_group;
  const int64_t end = items * (thread + 1) / s.threads_per_group;
  for (int64_t i = items * thread / s.threads_per_group; i < end; ++i) {
    const int64_t panel = i / tiles, tile = i % tiles;
    f(panel, rows ? tile_begin(rows, tile) : 0, rows ? tile_begin(rows, tile + 1) : 0,
      tile == tiles - 1);
  }
}

template <class F>
void for_directions(const LstmLoopShape& s, int worker, F f) {
  const int group = worker / s.threads_per_group;
  if (s.groups > 1) return f(group);
  for (int d = 0; d < s.directions; ++d) f(d);
}

void meet(const LstmLoopShape& s, int worker) {
  if (s.threads_per_group > 1) s.barriers[worker / s.threads_per_group]->arrive_and_wait();
}

constexpr int64_t tile_elements = max_tile_rows * 4 * W;

template <class A>
int64_t panel_size(int64_t depth) {
  return operand_depth<A>(depth) * 4 * W;
}

// ---- forward ----

template <class T, class A>
struct Forward {
  const LstmForwardLoop& loop;
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

  // The cells of `panel` for sequences [n0, n1), from the products in `sums`.
  template <bool partial>
  void cells(const LstmForwardLoop::Direction& d, int64_t step, int64_t row0, int64_t panel,
             int64_t n0, int64_t n1, const float* sums) const {
    const int64_t u = panel * W, live = min_of(H - u, W);
    A* state = static_cast<A*>(d.state) + ((step + 1) % 2) * s.sequences * h_stride;
    for (int64_t n = n0; n < n1; ++n, sums += 4 * W) {
      const int64_t row = row0 + n;
      const float* pre = d.pre + (row - d.pre_row) * 4 * H + u;
      float* c = d.c + n * H + u;
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
        put<partial>(static_cast<T*>(d.y) + row * loop.y_stride + u, h, live);
      }
    }
  }

  void step_cells(int direction, int64_t step, int worker) const {
    const auto& d = loop.direction[direction];
    const int64_t t = lstm_frame(direction, step, s.frames);
    const A* state = static_cast<const A*>(d.state) + (step % 2) * s.sequences * h_stride;
    const int64_t size = panel_size<A>(P);
    share(s, worker, panels_of(H, W), s.batch_sizes[t],
          [&](int64_t panel, int64_t n0, int64_t n1, bool) {
            alignas(64) float sums[tile_elements];
            tile_product(n1 - n0, state + n0 * h_stride, h_stride,
                         static_cast<const A*>(d.r) + panel * size, P, sums);
            if ((panel + 1) * W <= H) {
              cells<false>(d, step, s.row_offsets[t], panel, n0, n1, sums);
            } else {
              cells<true>(d, step, s.row_offsets[t], panel, n0, n1, sums);
            }
          });
  }

  void step_projection(int direction, int64_t step, int worker) const {
    const auto& d = loop.direction[direction];
    const int64_t t = lstm_frame(direction, step, s.frames), row0 = s.row_offsets[t];
    A* state = static_cast<A*>(d.state) + ((step + 1) % 2) * s.sequences * h_stride;
    const auto* from = static_cast<const A*>(d.projected);
    const int64_t size = panel_size<A>(H);
    share(s, worker, panels_of(P, 4 * W), s.batch_sizes[t],
          [&](int64_t panel, int64_t n0, int64_t n1, bool) {
            alignas(64) float sums[tile_elements];
            tile_product(n1 - n0, from + n0 * projected_stride, projected_stride,
                         static_cast<const A*>(d.p) + panel * size, H, sums);
            for (int64_t n = n0; n < n1; ++n) {
              for (int64_t v = 0; v < 4; ++v) {
                const int64_t k = (panel * 4 + v) * W, live = min_of(P - k, W);
                if (live <= 0) break;
                const vf h = load(sums + ((n - n0) * 4 + v) * W);
                put_operand<true>(state + n * h_stride + k, h, live);
                put<true>(static_cast<T*>(d.y) + (row0 + n) * loop.y_stride + k, h, live);
              }
            }
          });
  }

  void run(int worker) const {
    for (int64_t step = loop.begin; step < loop.end; ++step) {
      for_directions(s, worker, [&](int d) { step_cells(d, step, worker); });
      meet(s, worker);
      if (!s.projected) continue;
      for_directions(s, worker, [&](int d) { step_projection(d, step, worker); });
      meet(s, worker);
    }
  }
};

// ---- backward ----

template <class T, class A>
struct Backward {
  const LstmBackwardLoop& loop;
  const LstmLoopShape& s = loop.shape;
  const int64_t H = s.hidden, P = s.output, dp_stride = lstm_state_stride(P);
  static constexpr bool direct = sizeof(T) == sizeof(A);  // dgates are operands as they are

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

  void arrive_panel(int direction, int64_t j, int64_t panel, int64_t n0, int64_t n1) const {
    const int64_t t = frame(direction, j);
    for (int64_t n = n0; n < n1; ++n) {
      for (int64_t k = panel * 4 * W; k < min_of((panel + 1) * 4 * W, P); k += W) {
        if (k + W <= P) {
          arrive<false>(direction, j, t, n, k);
        } else {
          arrive<true>(direction, j, t, n, k);
        }
      }
    }
  }

  // dh' = dprojected P, then the cells, at backward step j.
  void step_cells(int direction, int64_t j, int worker) const {
    const auto& d = loop.direction[direction];
    const int64_t t = frame(direction, j);
    share(s, worker, panels_of(H, 4 * W), s.batch_sizes[t],
          [&](int64_t panel, int64_t n0, int64_t n1, bool) {
            alignas(64) float sums[tile_elements];
            tile_product(n1 - n0, static_cast<const A*>(d.dp) + n0 * dp_stride, dp_stride,
                         static_cast<const A*>(d.p) + panel * panel_size<A>(P), P, sums);
            for (int64_t n = n0; n < n1; ++n) {
              for (int64_t v = 0; v < 4 && (panel * 4 + v) * W < H; ++v) {
                any_cell(direction, j, t, n, (panel * 4 + v) * W,
                         load(sums + ((n - n0) * 4 + v) * W));
              }
            }
          });
  }

  // dh = dgates R of step j, then what it allows at step j + 1, where more sequences may join
  // (their dh is still the one they started with) or some may have ended.
  void step_back(int direction, int64_t j, int worker) const {
    const auto& d = loop.direction[direction];
    const int64_t t = frame(direction, j), next = frame(direction, j + 1);
    const int64_t rows = s.batch_sizes[t], next_rows = next >= 0 ? s.batch_sizes[next] : 0;
    const A* dz = direct ? static_cast<const A*>(d.dgates) + s.row_offsets[t] * 4 * H
                         : static_cast<const A*>(d.dz) + (j % 2) * s.sequences * 4 * H;
    share(s, worker, panels_of(P, 4 * W), rows,
          [&](int64_t panel, int64_t n0, int64_t n1, bool last) {
            alignas(64) float sums[tile_elements];
            tile_product(n1 - n0, dz + n0 * 4 * H, 4 * H,
                         static_cast<const A*>(d.r) + panel * panel_size<A>(4 * H), 4 * H, sums);
            for (int64_t n = n0; n < n1; ++n) {
              for (int64_t v = 0; v < 4 && (panel * 4 + v) * W < P; ++v) {
                const int64_t k = (panel * 4 + v) * W;
                put<true>(d.dh + n * P + k, load(sums + ((n - n0) * 4 + v) * W), min_of(P - k, W));
              }
            }
            arrive_panel(direction, j + 1, panel, n0, last ? next_rows : min_of(n1, next_rows));
          });
  }

  void run(int worker) const {
    if (s.frames == 0) return;
    for_directions(s, worker, [&](int d) {
      share(
          s, worker, panels_of(P, 4 * W), s.batch_sizes[frame(d, 0)],
          [&](int64_t panel, int64_t n0, int64_t n1, bool) { arrive_panel(d, 0, panel, n0, n1); });
    });
    meet(s, worker);
    for (int64_t j = 0; j < s.frames; ++j) {
      if (s.projected) {
        for_directions(s, worker, [&](int d) { step_cells(d, j, worker); });
        meet(s, worker);
      }
      for_directions(s, worker, [&](int d) { step_back(d, j, worker); });
      meet(s, worker);
    }
  }
};

// ---- bias gradients ----

// Sums of blocks of rows first, then of those, so that rounding errors stay small.
template <int vectors, bool partial, class T>
void sum_columns(const T* m, int64_t rows, int64_t stride, int64_t live, bool accumulate,
                 float* out) {
  constexpr int64_t block = 64;
  vf total[vectors] = {};
  for (int64_t first = 0; first < rows; first += block) {
    const int64_t last = min_of(first + block, rows);
    vf part[vectors] = {};
    for (int64_t r = first; r < last; ++r) {
      for (int v = 0; v < vectors; ++v) part[v] += get<partial>(m + r * stride + v * W, live);
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
    sum_columns<4, false>(m + j, rows, stride, W, accumulate, out + j);
  }
  for (; j + W <= end; j += W) {
    sum_columns<1, false>(m + j, rows, stride, W, accumulate, out + j);
  }
  if (j < end) sum_columns<1, true>(m + j, rows, stride, end - j, accumulate, out + j);
}

template <class T, class A>
constexpr LstmKernels kernels_of() {
  return {sizeof(A) == 2,
          W,
          pack<T, A>,
          panel_count,
          [](const LstmForwardLoop& loop, int worker) { Forward<T, A>{loop}.run(worker); },
          [](const LstmBackwardLoop& loop, int worker) { Backward<T, A>{loop}.run(worker); },
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
