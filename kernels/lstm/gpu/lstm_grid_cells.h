// What one thread of the persistent LSTM kernels over the whole grid reads and stores for its cell;
// with clusters, final states alone. For lstm_grid_*.cu.
//
// F and B: the arguments of the forward and backward kernels; Place: which cell the thread has
// (p.has_cell(): any), of which direction, and in which sequences: p.sequence and every `round`
// after it; p.sequence_of(first) is the one in the pass that begins with `first`, -1 for none.
#pragma once

#include <type_traits>

#include "kernels/lstm/gpu/lstm_grid.h"

namespace rondo::RONDO_GPU {
namespace grid {

// One cell's inputs that do not depend on the step before; zeros where there is no such cell.
template <class T>
struct ForwardInputs {
  T pre[4];
  float c;
};

template <class T, class F, class Place>
__device__ ForwardInputs<T> load_forward_inputs(const F& f, const Step& step, int64_t first,
                                                const Place& p) {
  ForwardInputs<T> in = {};
  const int64_t n = p.sequence_of(first), H = f.shape.hidden;
  if (!p.has_cell() || n < 0 || n >= step.active) return in;
  const T* pre = f.pre + f.shape.plane_row(p.d, step.row + n) * 4 * H + p.unit;
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) in.pre[g] = pre[g * H];
  in.c = f.c[f.shape.state(p.d, n) * H + p.unit];
  return in;
}

// hn and cn.
template <class F, class Place>
__device__ void store_final_states(const F& f, const Place& p) {
  using T = std::remove_pointer_t<decltype(f.y)>;
  const LstmShape& s = f.shape;
  if (!p.has_cell()) return;
  for (int64_t n = p.sequence; n < s.layout.extent->sequences; n += Place::round) {
    const int64_t at = s.state(p.d, n) * s.hidden + p.unit;
    if (f.cn) f.cn[at] = f.c[at];
    if (!f.hn) continue;
    const int64_t length = s.layout.lengths[n];
    const int64_t last = length > 0 ? s.row(n, p.d == 0 ? length - 1 : 0) : -1;
    f.hn[at] = last >= 0 ? f.y[(last * s.directions + p.d) * s.hidden + p.unit]
               : f.h0    ? f.h0[at]
                         : to<T>(0.0f);
  }
}

struct BackwardInputs {
  float gate[4], c, c_before, dy, dc;
};

template <class B, class Place>
__device__ BackwardInputs load_backward_inputs(const B& b, const Step& step, const Step& earlier,
                                               int64_t first, const Place& p) {
  BackwardInputs in = {};
  const LstmShape& s = b.shape;
  const int64_t n = p.sequence_of(first), H = s.hidden;
  if (!p.has_cell() || n < 0 || n >= step.active) return in;
  const int64_t at = s.plane_row(p.d, step.row + n), state = s.state(p.d, n) * H + p.unit;
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) in.gate[g] = to_float(b.gates[(at * 4 + g) * H + p.unit]);
  in.c = b.cells[at * H + p.unit];
  in.dy = to_float(b.dy[((step.row + n) * s.directions + p.d) * H + p.unit]);
  in.dc = b.dc[state];
  if (n < earlier.active) {
    in.c_before = b.cells[s.plane_row(p.d, earlier.row + n) * H + p.unit];
  } else if (b.c0) {
    in.c_before = b.c0[state];
  }
  return in;
}

}  // namespace grid
}  // namespace rondo::RONDO_GPU
