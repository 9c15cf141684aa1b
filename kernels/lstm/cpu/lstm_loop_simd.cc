// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#if defined(__AMX_BF16__)
#include "kernels/lstm/cpu/lstm_tile_amx.h"
#else
#include "kernels/lstm/cpu/lstm_tile.h"
#endif
#include "kernels/lstm/cpu/lstm_forward.h"

namespace rondo::RONDO_ISA {
namespace {

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

// ---- products ----

template <class A>
int64_t panel_size(int64_t depth) {
  return sum_steps<A>(depth) * static_cast<int64_t>(4 / sizeof(A)) * 4 * W;
}

template <class A>
struct LoopProducts {
  using Operand = A;
  TileRegisters registers{};

  void begin(const Place&, int64_t, const A*, int64_t, int64_t) {}

  // The product of a tile: rows of `a`, one sequence `stride` elements from the next, by `matrix`.
  [[gnu::always_inline]] inline void multiply(const Place& place, const Tile& t, const A* a,
                                              int64_t stride, const void* matrix, int64_t depth,
                                              float* sums) {
    const A* const panels = static_cast<const A*>(matrix);
    tile_product(registers, t.rows(), a + place.sequence(t.begin) * stride, stride,
                 panels + t.panel * panel_size<A>(depth), depth,
                 panels + t.next_panel * panel_size<A>(depth), sums);
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
  mutable LoopProducts<A> products{};

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
      products.multiply(place, tile, static_cast<const A*>(d.dp), dp_stride, d.p, P, sums);
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
      products.multiply(place, tile, dz, 4 * H, d.r, 4 * H, sums);
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
  return {sizeof(A),
          W,
          rows_at_once,
          products_per_ns<A>,
          pack<T, A>,
          panel_count,
          [](const LstmForwardLoop& loop, int worker) {
            Forward<T, LoopProducts<A>>{loop, Place(loop.shape, worker), {}}.run();
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
