// What the GPU kernels of the LSTM ops share on the device: where a sequence is at a step, and the
// arithmetic of one cell. For *.cu files of kernels/lstm.
#pragma once

#include "kernels/lstm/lstm_impl.h"
#include "kernels/simt/divide_fast.h"

namespace rondo::RONDO_GPU {

// What every kernel needs to find its element.
struct LstmShape {
  PackedView layout;
  int64_t directions, input, hidden, output;
  unsigned first_direction, end_direction;  // that are computed

  LstmShape(const LstmDims& dims, const PackedView& packed, LstmRun run = LstmRun::both)
      : layout(packed),
        directions(dims.directions),
        input(dims.input),
        hidden(dims.hidden),
        output(dims.output()),
        first_direction(static_cast<unsigned>(lstm_first_direction(run))),
        end_direction(static_cast<unsigned>(lstm_end_direction(dims, run))) {}

  // Rows of [D, N, ...] and of [D, rows, ...] arrays.
  __device__ int64_t state(int64_t d, int64_t n) const { return d * layout.capacity.sequences + n; }
  __device__ int64_t plane_row(int64_t d, int64_t row) const {
    return d * layout.capacity.rows + row;
  }
  // The row of sequence n at frame t; -1: the sequence has no such frame.
  __device__ int64_t row(int64_t n, int64_t t) const {
    if (t < 0 || t >= layout.lengths[n]) return -1;
    return layout.row_offsets[t] + n;
  }
  // The rows that direction d visits before and after frame t of sequence n; -1 at its ends.
  __device__ int64_t row_before(int64_t d, int64_t n, int64_t t) const {
    return row(n, d == 0 ? t - 1 : t + 1);
  }
  __device__ int64_t row_after(int64_t d, int64_t n, int64_t t) const {
    return row(n, d == 0 ? t + 1 : t - 1);
  }
};

// By divide_fast(): exact division branches, so that the gates of a cell would wait for each other.
__device__ inline float lstm_sigmoid(float x) { return divide_fast(1.0f, 1.0f + expf(-x)); }

// tanh for results that are stored as bf16: within 2^-22 of the true value, absolutely. NaN stays
// NaN.
__device__ inline float lstm_tanh(float x, float) { return tanhf(x); }
__device__ inline float lstm_tanh(float x, bf16) {
  return 1.0f - divide_fast(2.0f, 1.0f + expf(2.0f * x));
}

// One cell forward: activates `gate` (i, f, g, o) in place, updates c, returns h'.
template <class T>
__device__ float lstm_cell_forward(float (&gate)[4], float& c) {
  gate[0] = lstm_sigmoid(gate[0]);
  gate[1] = lstm_sigmoid(gate[1]);
  gate[2] = lstm_tanh(gate[2], T{});
  gate[3] = lstm_sigmoid(gate[3]);
  c = gate[1] * c + gate[0] * gate[2];
  return gate[3] * lstm_tanh(c, T{});
}

// One cell backward: from the activated gates, c, c before and dh to the gradients of the
// pre-activations (in place of the gates); dc becomes that of the step before.
__device__ inline void lstm_cell_backward(float (&gate)[4], float c, float c_before, float dh,
                                          float& dc) {
  const float i = gate[0], f = gate[1], g = gate[2], o = gate[3], tanh_c = tanhf(c);
  dc += dh * o * (1.0f - tanh_c * tanh_c);
  gate[0] = dc * g * i * (1.0f - i);
  gate[1] = dc * c_before * f * (1.0f - f);
  gate[2] = dc * i * (1.0f - g * g);
  gate[3] = dh * tanh_c * o * (1.0f - o);
  dc *= f;
}

}  // namespace rondo::RONDO_GPU
