// What the LSTM variants with launches per time step share on the device: which frame a step
// visits, and a cell of one sequence. For lstm_fused.cu and lstm_portable.cu.
//
// The host launches as many steps as the batch's capacity has frames; what a step has to do is read
// from device memory, so that one captured graph serves every batch. Both directions take the same
// steps: direction 1 visits the frames last to first, and a sequence joins at its own last frame.
#pragma once

#include "kernels/lstm/gpu/lstm_arrays.h"

namespace rondo::RONDO_GPU {

inline constexpr int lstm_step_threads = 128;

// The frame that direction d visits at `step`; -1 past the extent.
__device__ inline int64_t lstm_frame_at(const LstmShape& s, int64_t d, int64_t step) {
  const int64_t frames = s.layout.extent->frames;
  return step >= frames ? -1 : d == 0 ? step : frames - 1 - step;
}

__device__ inline int64_t lstm_active_at(const LstmShape& s, int64_t t) {
  return t < 0 ? 0 : s.layout.batch_sizes[t];
}

// One thread's element of a [D, N, width] array, among those of the directions that are computed.
struct LstmElement {
  int64_t d, n, k, at;
  bool inside;
};

__device__ inline LstmElement lstm_element(const LstmShape& s, int64_t n, int64_t width) {
  const int64_t plane = n * width, first = s.first_direction * plane;
  const int64_t at = first + int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= s.end_direction * plane) return {0, 0, 0, 0, false};
  return {at / plane, at / width % n, at % width, at, true};
}
__device__ inline LstmElement lstm_element(const LstmShape& s, int64_t width) {
  return lstm_element(s, s.layout.capacity.sequences, width);
}

// How many directions a call computes.
inline int64_t lstm_directions(const LstmDims& dims, LstmRun run) {
  return lstm_end_direction(dims, run) - lstm_first_direction(run);
}

// Cell u of sequence n at frame t: everything that is kept of it. Returns h, or with a projection
// h', which is also in h_cell.
template <class T>
__device__ T lstm_forward_cell_at(const LstmForwardArrays<T>& f, int64_t d, int64_t n, int64_t t,
                                  int64_t u, const float (&recurrent)[4]) {
  const LstmShape& s = f.shape;
  const int64_t H = s.hidden, row = s.layout.row_offsets[t] + n, at = s.plane_row(d, row);
  T pre[4];
  for (int g = 0; g < 4; ++g) pre[g] = f.pre[(at * 4 + g) * H + u];
  const LstmCellBias<T> bias(f, d, u);
  float gate[4];
  for (int g = 0; g < 4; ++g) gate[g] = bias.added_to(pre[g], g) + recurrent[g];
  float& c = f.c[s.state(d, n) * H + u];
  const T h = to<T>(lstm_cell_forward<T>(gate, c));
  if (f.cells) f.cells[at * H + u] = c;
  if (f.gates) {
    for (int g = 0; g < 4; ++g) f.gates[(at * 4 + g) * H + u] = to<T>(gate[g]);
  }
  if (!f.h_cell) {
    f.y[(row * s.directions + d) * s.output + u] = h;
    return h;
  }
  f.h_cell[s.state(d, n) * H + u] = h;
  if (f.hidden) f.hidden[at * H + u] = h;
  return h;
}

// Cell u of sequence n at frame t, dh being the gradient of its h'. Leaves the gradients of the
// pre-activations in dgates, and in `kept`, four H apart, when there is such a place.
template <class T>
__device__ void lstm_backward_cell_at(const LstmBackwardArrays<T>& b, int64_t d, int64_t n,
                                      int64_t t, int64_t u, float dh, T* kept = nullptr) {
  const LstmShape& s = b.shape;
  const int64_t H = s.hidden, at = s.plane_row(d, s.layout.row_offsets[t] + n);
  const int64_t before = s.row_before(d, n, t), state = s.state(d, n) * H + u;
  float gate[4];
  for (int g = 0; g < 4; ++g) gate[g] = to_float(b.gates[(at * 4 + g) * H + u]);
  const float c_before = before >= 0 ? b.cells[s.plane_row(d, before) * H + u]
                         : b.c0      ? b.c0[state]
                                     : 0.0f;
  lstm_cell_backward(gate, b.cells[at * H + u], c_before, dh, b.dc[state]);
  for (int g = 0; g < 4; ++g) {
    const T dgate = to<T>(gate[g]);
    b.dgates[(at * 4 + g) * H + u] = dgate;  // which may be where the gate was
    if (kept) kept[g * H] = dgate;
  }
}

// `count` elements, one thread each; nothing for none.
template <class... Parameters, class... Arguments>
void lstm_launch_each(const Context& context, const char* name, int64_t count,
                      void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (count == 0) return;
  launch(context,
         {.kernel = name,
          .grid = {blocks_for(count, lstm_step_threads)},
          .block = {lstm_step_threads}},
         kernel, arguments...);
}

}  // namespace rondo::RONDO_GPU
