// The portable LSTM variants: per time step a matrix product through the gemm op for all
// directions, h_{t-1} R^T (backward: dgates_{t+1} R), and one launch for all cells; with a
// projection a product and a launch more. They are right on every GPU and for every shape, and take
// from the gemm op what it has: tensor cores for bf16.
//
// Where the rows of a frame begin is known on the device alone, while a product in a captured graph
// has fixed operands. So h (backward: dgates) of every sequence lies in the workspace as well, in
// the order of the sequences, each row the latest of its sequence: a sequence that ended keeps its
// last, one that has not begun its initial state. How many rows a product needs is counted on the
// device first, one number per step; the products' rows past it may hold anything and are not read.
//
// The host launches as many steps as the batch's capacity has frames; what a step has to do is read
// from device memory, so that one captured graph serves every batch. Both directions take the same
// steps: direction 1 visits the frames last to first, and a sequence joins at its own last frame.
//
// Determinism: that of the gemm op; nothing else is summed.
#include <algorithm>

#include "kernels/lstm/gpu/lstm_arrays.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int step_threads = 128;

// The frame that direction d visits at `step`; -1 past the extent.
__device__ int64_t frame_at(const LstmShape& s, int64_t d, int64_t step) {
  const int64_t frames = s.layout.extent->frames;
  return step >= frames ? -1 : d == 0 ? step : frames - 1 - step;
}

__device__ int64_t active_at(const LstmShape& s, int64_t t) {
  return t < 0 ? 0 : s.layout.batch_sizes[t];
}

// One thread's element of a [D, N, width] array, among those of the directions that are computed.
struct Element {
  int64_t d, n, k, at;
  bool inside;
};

__device__ Element element_of(const LstmShape& s, int64_t n, int64_t width) {
  const int64_t plane = n * width, first = s.first_direction * plane;
  const int64_t at = first + int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= s.end_direction * plane) return {0, 0, 0, 0, false};
  return {at / plane, at / width % n, at % width, at, true};
}
__device__ Element element_of(const LstmShape& s, int64_t width) {
  return element_of(s, s.layout.capacity.sequences, width);
}

// One thread's element of a [N, width] array of the blockIdx.y-th direction that is computed.
struct Place {
  int64_t d, n, k;
};

__device__ Place place_of(const LstmShape& s, int64_t width) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  return {s.first_direction + blockIdx.y, i / width, i % width};
}

// ---- forward ----

template <class T>
struct Forward : LstmForwardArrays<T> {
  T* h;
  const float *recurrent, *projected;
  int32_t* counts;

  Forward(const LstmForwardArgs& a, const LstmGpuForwardSpace& space)
      : LstmForwardArrays<T>(a, space),
        h(static_cast<T*>(space.h)),
        recurrent(space.recurrent),
        projected(space.projected),
        counts(space.counts) {}
};

template <class T>
__global__ void forward_start(Forward<T> f) {
  const LstmShape& s = f.shape;
  const Element c = element_of(s, s.hidden), h = element_of(s, s.output);
  if (c.inside) f.c[c.at] = f.c0 ? f.c0[c.at] : 0.0f;
  if (h.inside) f.h[h.at] = f.h0 ? f.h0[h.at] : to<T>(0.0f);
  const Element step = element_of(s, s.layout.capacity.frames, 1);
  if (!step.inside) return;
  f.counts[step.at] = static_cast<int32_t>(active_at(s, frame_at(s, step.d, step.n)));
}

// Cell u of sequence n at frame t: everything that is kept of it. Returns h, or with a projection
// h', which is also in h_cell.
template <class T>
__device__ T forward_cell_at(const Forward<T>& f, int64_t d, int64_t n, int64_t t, int64_t u,
                             const float (&recurrent)[4]) {
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

template <class T>
__global__ void forward_cells(Forward<T> f, int64_t step) {
  const LstmShape& s = f.shape;
  const auto [d, n, u] = place_of(s, s.hidden);
  const int64_t t = frame_at(s, d, step), H = s.hidden;
  if (n >= active_at(s, t)) return;
  float recurrent[4];
  for (int g = 0; g < 4; ++g) recurrent[g] = f.recurrent[(s.state(d, n) * 4 + g) * H + u];
  const T h = forward_cell_at(f, d, n, t, u, recurrent);
  if (!f.h_cell) f.h[s.state(d, n) * H + u] = h;
}

template <class T>
__global__ void forward_project(Forward<T> f, int64_t step) {
  const LstmShape& s = f.shape;
  const auto [d, n, j] = place_of(s, s.output);
  const int64_t t = frame_at(s, d, step), P = s.output;
  if (n >= active_at(s, t)) return;
  const T h = to<T>(f.projected[s.state(d, n) * P + j]);
  f.h[s.state(d, n) * P + j] = h;
  f.y[((s.layout.row_offsets[t] + n) * s.directions + d) * P + j] = h;
}

template <class T>
__global__ void forward_end(Forward<T> f) {
  const LstmShape& s = f.shape;
  const Element c = element_of(s, s.hidden), h = element_of(s, s.output);
  const int64_t sequences = s.layout.extent->sequences;
  if (f.cn && c.inside && c.n < sequences) f.cn[c.at] = f.c[c.at];
  if (f.hn && h.inside && h.n < sequences) f.hn[h.at] = f.h[h.at];
}

// ---- backward ----

template <class T>
struct Backward : LstmBackwardArrays<T> {
  T *last_dgates, *last_dh;
  const float *recurrent, *dh_cell;
  int32_t *active, *started;

  Backward(const LstmBackwardArgs& a, const LstmGpuBackwardSpace& space)
      : LstmBackwardArrays<T>(a, space),
        last_dgates(static_cast<T*>(space.last_dgates)),
        last_dh(static_cast<T*>(space.last_dh)),
        recurrent(space.recurrent),
        dh_cell(space.dh_cell),
        active(space.active),
        started(space.started) {}
};

// started[d][step]: the sequences that the cells of step - 1 need dgates R of, which are those that
// both steps visit; of step 0 those that dh0 needs it of, which are all but the empty ones.
template <class T>
__global__ void backward_start(Backward<T> b) {
  const LstmShape& s = b.shape;
  const Element e = element_of(s, s.hidden);
  if (e.inside) b.dc[e.at] = b.dcn ? b.dcn[e.at] : 0.0f;
  const Element place = element_of(s, s.layout.capacity.frames, 1);
  if (!place.inside) return;
  const int64_t d = place.d, step = place.n;
  const int64_t here = active_at(s, frame_at(s, d, step));
  int64_t both = active_at(s, s.layout.extent->frames > 0 ? 0 : -1);
  if (step > 0) {
    const int64_t before = active_at(s, frame_at(s, d, step - 1));
    both = here < before ? here : before;
  }
  b.active[place.at] = static_cast<int32_t>(here);
  b.started[place.at] = static_cast<int32_t>(both);
}

// The gradient of h_t, element j of sequence n; `row` is the frame's.
template <class T>
__device__ float total_gradient(const Backward<T>& b, int64_t d, int64_t n, int64_t t, int64_t row,
                                int64_t j) {
  const LstmShape& s = b.shape;
  const int64_t P = s.output, at = s.state(d, n) * P + j;
  float dh = b.dhn ? to_float(b.dhn[at]) : 0.0f;
  if (s.row_after(d, n, t) >= 0) dh = b.recurrent[at];
  return dh + to_float(b.dy[(row * s.directions + d) * P + j]);
}

template <class T>
__global__ void backward_project(Backward<T> b, int64_t step) {
  const LstmShape& s = b.shape;
  const auto [d, n, j] = place_of(s, s.output);
  const int64_t t = frame_at(s, d, step), P = s.output;
  if (n >= active_at(s, t)) return;
  const int64_t row = s.layout.row_offsets[t] + n;
  const T dh = to<T>(total_gradient(b, d, n, t, row, j));
  b.dprojected[s.plane_row(d, row) * P + j] = dh;
  b.last_dh[s.state(d, n) * P + j] = dh;
}

// Cell u of sequence n at frame t, dh being the gradient of its h'. Leaves the gradients of the
// pre-activations in dgates and in last_dgates.
template <class T>
__device__ void backward_cell_at(const Backward<T>& b, int64_t d, int64_t n, int64_t t, int64_t u,
                                 float dh) {
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
    b.last_dgates[(s.state(d, n) * 4 + g) * H + u] = dgate;
  }
}

template <class T>
__global__ void backward_cells(Backward<T> b, int64_t step) {
  const LstmShape& s = b.shape;
  const auto [d, n, u] = place_of(s, s.hidden);
  const int64_t t = frame_at(s, d, step), H = s.hidden, state = s.state(d, n);
  if (n >= active_at(s, t)) return;
  const float dh = b.dprojected ? b.dh_cell[state * H + u]
                                : total_gradient(b, d, n, t, s.layout.row_offsets[t] + n, u);
  backward_cell_at(b, d, n, t, u, dh);
}

// The gradients that leave at the first frame each sequence visited.
template <class T>
__global__ void backward_end(Backward<T> b) {
  const LstmShape& s = b.shape;
  const Element c = element_of(s, s.hidden), h = element_of(s, s.output);
  const int64_t sequences = s.layout.extent->sequences;
  if (b.dc0 && c.inside && c.n < sequences) b.dc0[c.at] = b.dc[c.at];
  if (!b.dh0 || !h.inside || h.n >= sequences) return;
  if (s.layout.lengths[h.n] > 0) {
    b.dh0[h.at] = to<T>(b.recurrent[h.at]);
  } else {
    b.dh0[h.at] = b.dhn ? b.dhn[h.at] : to<T>(0.0f);
  }
}

// ---- hosts ----

// How many directions a call computes.
int64_t directions_of(const LstmDims& dims, LstmRun run) {
  return lstm_end_direction(dims, run) - lstm_first_direction(run);
}

// `count` elements, one thread each; nothing for none.
template <class... Parameters, class... Arguments>
void launch_each(const Context& context, const char* name, int64_t count,
                 void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (count == 0) return;
  launch(context,
         {.kernel = name, .grid = {blocks_for(count, step_threads)}, .block = {step_threads}},
         kernel, arguments...);
}

// A thread for each of [N, width] in every direction that is computed.
template <class Args, class... Parameters, class... Arguments>
void launch_step(const Context& context, const char* name, const Args& a, int64_t width,
                 void (*kernel)(Parameters...), const Arguments&... arguments) {
  launch(context,
         {.kernel = name,
          .grid = {blocks_for(a.layout.capacity.sequences * width, step_threads),
                   static_cast<unsigned>(directions_of(a.dims, a.run))},
          .block = {step_threads}},
         kernel, arguments...);
}

template <class T>
void forward(const Context& context, const LstmForwardArgs& a) {
  const LstmDims& dims = a.dims;
  const int64_t N = a.layout.capacity.sequences, steps = a.layout.capacity.frames;
  const int64_t directions = directions_of(dims, a.run);
  if (N == 0) return;
  const LstmGpuForwardSpace space = lstm_gpu_space(context, a);
  const Forward<T> f(a, space);
  const int64_t H = dims.hidden, P = dims.output();
  lstm_gpu_input_products(context, a, space);
  launch_each(context, "lstm portable_forward_start",
              directions * std::max(N * std::max(H, P), steps), forward_start<T>, f);
  for (int64_t step = 0; step < steps; ++step) {
    lstm_gpu_recurrent_products(context, a, space, step);
    launch_step(context, "lstm portable_forward_cells", a, H, forward_cells<T>, f, step);
    if (!dims.projection) continue;
    lstm_gpu_projections(context, a, space, step);
    launch_step(context, "lstm portable_forward_project", a, P, forward_project<T>, f, step);
  }
  if (!a.hn && !a.cn) return;
  launch_each(context, "lstm portable_forward_end", directions * N * std::max(H, P), forward_end<T>,
              f);
}

template <class T>
void backward(const Context& context, const LstmBackwardArgs& a) {
  const LstmDims& dims = a.dims;
  const int64_t N = a.layout.capacity.sequences, steps = a.layout.capacity.frames;
  const int64_t directions = directions_of(dims, a.run);
  if (N == 0) return;
  const LstmGpuBackwardSpace space = lstm_gpu_space(context, a);
  const Backward<T> b(a, space);
  const int64_t H = dims.hidden, P = dims.output();
  launch_each(context, "lstm portable_backward_start", directions * std::max(N * H, steps),
              backward_start<T>, b);
  for (int64_t step = steps - 1; step >= 0; --step) {
    if (dims.projection) {
      launch_step(context, "lstm portable_backward_project", a, P, backward_project<T>, b, step);
      lstm_gpu_projection_gradients(context, a, space, step);
    }
    launch_step(context, "lstm portable_backward_cells", a, H, backward_cells<T>, b, step);
    if (step > 0 || a.dh0) lstm_gpu_recurrent_gradients(context, a, space, step);
  }
  if (a.dh0 || a.dc0) {
    launch_each(context, "lstm portable_backward_end", directions * N * std::max(H, P),
                backward_end<T>, b);
  }
  lstm_gpu_input_gradients(context, a, space);
}

}  // namespace

void lstm_forward_portable(const Context& context, const LstmForwardArgs& a) {
  lstm_run_typed(context, a, forward<float>, forward<bf16>);
}

void lstm_backward_portable(const Context& context, const LstmBackwardArgs& a) {
  lstm_run_typed(context, a, backward<float>, backward<bf16>);
}

}  // namespace rondo::RONDO_GPU
