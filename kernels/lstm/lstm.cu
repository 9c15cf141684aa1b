// The portable LSTM variant: one launch per time step and stage, one thread per output element, no
// shared memory, no assumption about the shape. It is there to be right on every GPU; sums run in
// a fixed order, so it is deterministic.
//
// Both directions run in the same launches: direction 1 visits the frames last to first, and a
// sequence joins at its own last frame.
#include "kernels/lstm/lstm_gpu.h"
#include "kernels/lstm/lstm_impl.h"
#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int block_threads = 128;

// What every kernel below needs to find its element.
struct Shape {
  PackedView layout;
  int64_t directions, input, hidden, output;

  Shape(const LstmDims& dims, const PackedView& packed)
      : layout(packed),
        directions(dims.directions),
        input(dims.input),
        hidden(dims.hidden),
        output(dims.output()) {}
};

// One thread's element of a [D, N, width] array.
struct Element {
  int64_t d, n, k, at;
  bool inside;
};

__device__ Element state_element(const Shape& s, int64_t width) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t sequences = s.layout.capacity.sequences;
  return {i / (sequences * width), i / width % sequences, i % width, i,
          i < s.directions * sequences * width};
}

// The frame direction d visits at `step`, and the row of sequence n there; -1: not active.
struct Visit {
  int64_t frame, row;
};

__device__ Visit visit(const Shape& s, int64_t d, int64_t n, int64_t step) {
  const int64_t frames = s.layout.extent->frames;
  if (step >= frames) return {0, -1};
  const int64_t t = d == 0 ? step : frames - 1 - step;
  if (n >= s.layout.batch_sizes[t]) return {t, -1};
  return {t, s.layout.row_offsets[t] + n};
}

// The row direction d visited before frame t of sequence n; -1 at its start.
__device__ int64_t row_before(const Shape& s, int64_t d, int64_t n, int64_t t) {
  const int64_t before = d == 0 ? t - 1 : t + 1;
  if (before < 0 || before >= s.layout.lengths[n]) return -1;
  return s.layout.row_offsets[before] + n;
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <class T>
__device__ float dot(const T* a, const T* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

template <class T>
struct Weights {
  const T *w, *r, *p;
  const float* b;

  explicit Weights(const LstmWeights& v)
      : w(v.w.as<T>()), r(v.r.as<T>()), p(v.p.as<T>()), b(v.b.as<float>()) {}
};

// ---- forward ----

template <class T>
struct Forward {
  Shape shape;
  Weights<T> weights[2];
  const T *x, *h0;
  const float* c0;
  T *y, *hn, *gates, *hidden;
  float *cn, *cells;
  float *cell_state, *cell_output;  // workspace, [D, N, H] each; the latter rounded to T

  explicit Forward(const LstmForwardArgs& a)
      : shape(a.dims, a.layout),
        weights{Weights<T>(a.weights[0]), Weights<T>(a.weights[1])},
        x(a.x.as<T>()),
        h0(a.h0.as<T>()),
        c0(a.c0.as<float>()),
        y(a.y.as<T>()),
        hn(a.hn.as<T>()),
        gates(a.gates.as<T>()),
        hidden(a.hidden.as<T>()),
        cn(a.cn.as<float>()),
        cells(a.cells.as<float>()) {
    cell_state = static_cast<float*>(a.workspace.data);
    cell_output = cell_state + a.dims.directions * a.layout.capacity.sequences * a.dims.hidden;
  }
};

template <class T>
__global__ void forward_start(Forward<T> f) {
  const Element e = state_element(f.shape, f.shape.hidden);
  if (e.inside) f.cell_state[e.at] = f.c0 ? f.c0[e.at] : 0.0f;
}

template <class T>
__global__ void forward_cell(Forward<T> f, int64_t step) {
  const Shape& s = f.shape;
  const Element e = state_element(s, s.hidden);
  if (!e.inside) return;
  const Visit v = visit(s, e.d, e.n, step);
  if (v.row < 0) return;
  const int64_t I = s.input, H = s.hidden, P = s.output, before = row_before(s, e.d, e.n, v.frame);
  const T* h = before >= 0 ? f.y + (before * s.directions + e.d) * P
               : f.h0      ? f.h0 + (e.d * s.layout.capacity.sequences + e.n) * P
                           : nullptr;
  const Weights<T>& w = f.weights[e.d];
  float z[4];
  for (int g = 0; g < 4; ++g) {
    const int64_t j = g * H + e.k;
    z[g] = (w.b ? w.b[j] : 0.0f) + dot(f.x + v.row * I, w.w + j * I, I);
    if (h) z[g] += dot(h, w.r + j * P, P);
  }
  const float gate[4] = {sigmoid(z[0]), sigmoid(z[1]), tanhf(z[2]), sigmoid(z[3])};
  const float c = gate[1] * f.cell_state[e.at] + gate[0] * gate[2];
  const T out = to<T>(gate[3] * tanhf(c));
  const int64_t at = e.d * s.layout.capacity.rows + v.row;
  f.cell_state[e.at] = c;
  if (f.cells) f.cells[at * H + e.k] = c;
  if (f.gates) {
    for (int g = 0; g < 4; ++g) f.gates[(at * 4 + g) * H + e.k] = to<T>(gate[g]);
  }
  if (!w.p) {
    f.y[(v.row * s.directions + e.d) * P + e.k] = out;
    return;
  }
  f.cell_output[e.at] = to_float(out);
  if (f.hidden) f.hidden[at * H + e.k] = out;
}

template <class T>
__global__ void forward_project(Forward<T> f, int64_t step) {
  const Shape& s = f.shape;
  const Element e = state_element(s, s.output);
  if (!e.inside) return;
  const Visit v = visit(s, e.d, e.n, step);
  if (v.row < 0) return;
  const int64_t H = s.hidden;
  const float* h = f.cell_output + (e.d * s.layout.capacity.sequences + e.n) * H;
  const T* p = f.weights[e.d].p + e.k * H;
  float sum = 0;
  for (int64_t u = 0; u < H; ++u) sum += h[u] * to_float(p[u]);
  f.y[(v.row * s.directions + e.d) * s.output + e.k] = to<T>(sum);
}

template <class T>
__global__ void forward_end(Forward<T> f) {
  const Shape& s = f.shape;
  const Element c = state_element(s, s.hidden), h = state_element(s, s.output);
  const int64_t sequences = s.layout.extent->sequences;
  if (f.cn && c.inside && c.n < sequences) f.cn[c.at] = f.cell_state[c.at];
  if (!f.hn || !h.inside || h.n >= sequences) return;
  const int64_t length = s.layout.lengths[h.n];
  if (length == 0) {
    f.hn[h.at] = f.h0 ? f.h0[h.at] : to<T>(0.0f);
    return;
  }
  const int64_t row = s.layout.row_offsets[h.d == 0 ? length - 1 : 0] + h.n;
  f.hn[h.at] = f.y[(row * s.directions + h.d) * s.output + h.k];
}

// ---- backward ----

template <class T>
struct Backward {
  Shape shape;
  Weights<T> weights[2];
  const float *c0, *cells, *dcn;
  const T *gates, *dy, *dhn;
  T *dgates, *dprojected, *dx, *dh0;
  float* dc0;
  float *dh, *dc;  // workspace, [D, N, P] and [D, N, H]

  explicit Backward(const LstmBackwardArgs& a)
      : shape(a.dims, a.layout),
        weights{Weights<T>(a.weights[0]), Weights<T>(a.weights[1])},
        c0(a.c0.as<float>()),
        cells(a.cells.as<float>()),
        dcn(a.dcn.as<float>()),
        gates(a.gates.as<T>()),
        dy(a.dy.as<T>()),
        dhn(a.dhn.as<T>()),
        dgates(a.dgates.as<T>()),
        dprojected(a.dprojected.as<T>()),
        dx(a.dx.as<T>()),
        dh0(a.dh0.as<T>()),
        dc0(a.dc0.as<float>()) {
    dc = static_cast<float*>(a.workspace.data);
    dh = dc + a.dims.directions * a.layout.capacity.sequences * a.dims.hidden;
  }
};

template <class T>
__global__ void backward_start(Backward<T> b) {
  const Element c = state_element(b.shape, b.shape.hidden);
  const Element h = state_element(b.shape, b.shape.output);
  if (c.inside) b.dc[c.at] = b.dcn ? b.dcn[c.at] : 0.0f;
  if (h.inside) b.dh[h.at] = b.dhn ? to_float(b.dhn[h.at]) : 0.0f;
}

// dh: the gradient of h_t, what came back through time plus dy.
template <class T>
__global__ void backward_output(Backward<T> b, int64_t step) {
  const Shape& s = b.shape;
  const Element e = state_element(s, s.output);
  if (!e.inside) return;
  const Visit v = visit(s, e.d, e.n, step);
  if (v.row < 0) return;
  float dh = b.dh[e.at] + to_float(b.dy[(v.row * s.directions + e.d) * s.output + e.k]);
  if (b.dprojected) {
    const T stored = to<T>(dh);
    b.dprojected[(e.d * s.layout.capacity.rows + v.row) * s.output + e.k] = stored;
    dh = to_float(stored);
  }
  b.dh[e.at] = dh;
}

template <class T>
__global__ void backward_cell(Backward<T> b, int64_t step) {
  const Shape& s = b.shape;
  const Element e = state_element(s, s.hidden);
  if (!e.inside) return;
  const Visit v = visit(s, e.d, e.n, step);
  if (v.row < 0) return;
  const int64_t H = s.hidden, P = s.output, rows = s.layout.capacity.rows;
  const float* dh_out = b.dh + (e.d * s.layout.capacity.sequences + e.n) * P;
  const T* p = b.weights[e.d].p;
  float dh = 0;
  if (p) {
    for (int64_t k = 0; k < P; ++k) dh += dh_out[k] * to_float(p[k * H + e.k]);
  } else {
    dh = dh_out[e.k];
  }
  const int64_t at = e.d * rows + v.row, before = row_before(s, e.d, e.n, v.frame);
  const T* gate = b.gates + at * 4 * H + e.k;
  const float i = to_float(gate[0]), f = to_float(gate[H]), g = to_float(gate[2 * H]),
              o = to_float(gate[3 * H]);
  const float tanh_c = tanhf(b.cells[at * H + e.k]);
  const float c_before = before >= 0 ? b.cells[(e.d * rows + before) * H + e.k]
                         : b.c0      ? b.c0[e.at]
                                     : 0.0f;
  const float dc = b.dc[e.at] + dh * o * (1.0f - tanh_c * tanh_c);
  T* out = b.dgates + at * 4 * H + e.k;  // may be where the gates are
  out[0] = to<T>(dc * g * i * (1.0f - i));
  out[H] = to<T>(dc * c_before * f * (1.0f - f));
  out[2 * H] = to<T>(dc * i * (1.0f - g * g));
  out[3 * H] = to<T>(dh * tanh_c * o * (1.0f - o));
  b.dc[e.at] = dc * f;
}

// dh: back through R to the frame visited before.
template <class T>
__global__ void backward_recurrence(Backward<T> b, int64_t step) {
  const Shape& s = b.shape;
  const Element e = state_element(s, s.output);
  if (!e.inside) return;
  const Visit v = visit(s, e.d, e.n, step);
  if (v.row < 0) return;
  const int64_t gates = 4 * s.hidden;
  const T* dgates = b.dgates + (e.d * s.layout.capacity.rows + v.row) * gates;
  const T* r = b.weights[e.d].r + e.k;
  float sum = 0;
  for (int64_t j = 0; j < gates; ++j) sum += to_float(dgates[j]) * to_float(r[j * s.output]);
  b.dh[e.at] = sum;
}

template <class T>
__global__ void backward_end(Backward<T> b) {
  const Element c = state_element(b.shape, b.shape.hidden);
  const Element h = state_element(b.shape, b.shape.output);
  const int64_t sequences = b.shape.layout.extent->sequences;
  if (b.dc0 && c.inside && c.n < sequences) b.dc0[c.at] = b.dc[c.at];
  if (b.dh0 && h.inside && h.n < sequences) b.dh0[h.at] = to<T>(b.dh[h.at]);
}

template <class T>
__global__ void backward_input(Backward<T> b) {
  const Shape& s = b.shape;
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t row = index / s.input, i = index % s.input, gates = 4 * s.hidden;
  if (row >= s.layout.extent->rows) return;
  float sum = 0;
  for (int64_t d = 0; d < s.directions; ++d) {
    const T* dgates = b.dgates + (d * s.layout.capacity.rows + row) * gates;
    const T* w = b.weights[d].w + i;
    for (int64_t j = 0; j < gates; ++j) sum += to_float(dgates[j]) * to_float(w[j * s.input]);
  }
  b.dx[row * s.input + i] = to<T>(sum);
}

// ---- weight gradients ----

template <class T>
struct WeightGrad {
  Shape shape;
  const T *x, *h0, *y, *hidden, *dgates, *dprojected;
  bool accumulate;

  explicit WeightGrad(const LstmWeightGradArgs& a)
      : shape(a.dims, a.layout),
        x(a.x.as<T>()),
        h0(a.h0.as<T>()),
        y(a.y.as<T>()),
        hidden(a.hidden.as<T>()),
        dgates(a.dgates.as<T>()),
        dprojected(a.dprojected.as<T>()),
        accumulate(a.accumulate) {}
};

enum class Factor : uint8_t { input, state, one, hidden };

// The factor of a row that the gradient of column k sums over.
template <class T>
__device__ float right_factor(const WeightGrad<T>& g, Factor which, int64_t d, int64_t row,
                              int64_t k) {
  const Shape& s = g.shape;
  if (which == Factor::one) return 1.0f;
  if (which == Factor::input) return to_float(g.x[row * s.input + k]);
  if (which == Factor::hidden) {
    return to_float(g.hidden[(d * s.layout.capacity.rows + row) * s.hidden + k]);
  }
  const int64_t t = s.layout.row_frame[row], n = row - s.layout.row_offsets[t];
  const int64_t before = row_before(s, d, n, t);
  if (before >= 0) return to_float(g.y[(before * s.directions + d) * s.output + k]);
  return g.h0 ? to_float(g.h0[(d * s.layout.capacity.sequences + n) * s.output + k]) : 0.0f;
}

// out[j, k] (+)= sum over rows of left[row, j] * right_factor(row, k); left [rows, height].
template <class T>
__global__ void outer_sum(WeightGrad<T> g, Factor which, int64_t d, const T* left, float* out,
                          int64_t height, int64_t width) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= height * width) return;
  const int64_t j = index / width, k = index % width, rows = g.shape.layout.extent->rows;
  float sum = 0;
  for (int64_t row = 0; row < rows; ++row) {
    sum += to_float(left[row * height + j]) * right_factor(g, which, d, row, k);
  }
  out[index] = g.accumulate ? out[index] + sum : sum;
}

// ---- hosts ----

// `count` elements, one thread each; nothing for none.
template <class... Parameters, class... Arguments>
void launch_each(const Context& context, const char* name, int64_t count,
                 void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (count == 0) return;
  launch(context,
         {.kernel = name, .grid = {blocks_for(count, block_threads)}, .block = {block_threads}},
         kernel, arguments...);
}

template <class T>
void forward(const Context& context, const LstmForwardArgs& a) {
  const Forward<T> f(a);
  const int64_t states = a.dims.directions * a.layout.capacity.sequences;
  const int64_t cells = states * a.dims.hidden, outputs = states * a.dims.output();
  launch_each(context, "lstm forward_start", cells, forward_start<T>, f);
  for (int64_t step = 0; step < a.layout.capacity.frames; ++step) {
    launch_each(context, "lstm forward_cell", cells, forward_cell<T>, f, step);
    if (a.dims.projection) {
      launch_each(context, "lstm forward_project", outputs, forward_project<T>, f, step);
    }
  }
  launch_each(context, "lstm forward_end", std::max(cells, outputs), forward_end<T>, f);
}

template <class T>
void backward(const Context& context, const LstmBackwardArgs& a) {
  const Backward<T> b(a);
  const int64_t states = a.dims.directions * a.layout.capacity.sequences;
  const int64_t cells = states * a.dims.hidden, outputs = states * a.dims.output();
  launch_each(context, "lstm backward_start", std::max(cells, outputs), backward_start<T>, b);
  for (int64_t step = a.layout.capacity.frames - 1; step >= 0; --step) {
    launch_each(context, "lstm backward_output", outputs, backward_output<T>, b, step);
    launch_each(context, "lstm backward_cell", cells, backward_cell<T>, b, step);
    launch_each(context, "lstm backward_recurrence", outputs, backward_recurrence<T>, b, step);
  }
  launch_each(context, "lstm backward_end", std::max(cells, outputs), backward_end<T>, b);
  if (a.dx) {
    launch_each(context, "lstm backward_input", a.layout.capacity.rows * a.dims.input,
                backward_input<T>, b);
  }
}

template <class T>
void weight_grad(const Context& context, const LstmWeightGradArgs& a) {
  const WeightGrad<T> g(a);
  const int64_t H = a.dims.hidden, P = a.dims.output(), rows = a.layout.capacity.rows;
  for (int64_t d = 0; d < a.dims.directions; ++d) {
    const auto sum = [&](const char* name, Factor which, const TensorView& out, const T* left,
                         int64_t height, int64_t width) {
      if (!out) return;
      launch_each(context, name, height * width, outer_sum<T>, g, which, d, left, out.as<float>(),
                  height, width);
    };
    const T* dgates = g.dgates + d * rows * 4 * H;
    sum("lstm dw", Factor::input, a.grads[d].w, dgates, 4 * H, a.dims.input);
    sum("lstm dr", Factor::state, a.grads[d].r, dgates, 4 * H, P);
    sum("lstm db", Factor::one, a.grads[d].b, dgates, 4 * H, 1);
    if (a.dims.projection) {
      sum("lstm dp", Factor::hidden, a.grads[d].p, g.dprojected + d * rows * P, P, H);
    }
  }
}

void check_workspace(const TensorView& workspace, LstmPhase phase, const LstmDims& dims,
                     const PackedCapacity& capacity) {
  const size_t need = lstm_gpu_workspace_bytes(phase, dims, capacity);
  RONDO_CHECK(need == 0 || workspace.bytes() >= need, "lstm: the workspace has ", workspace.bytes(),
              " bytes, needs ", need);
}

}  // namespace

void lstm_forward_gpu(const Context& context, const LstmForwardArgs& a) {
  check_lstm(a);
  check_workspace(a.workspace, LstmPhase::forward, a.dims, a.layout.capacity);
  a.x.dtype == DType::f32 ? forward<float>(context, a) : forward<bf16>(context, a);
}

void lstm_backward_gpu(const Context& context, const LstmBackwardArgs& a) {
  check_lstm(a);
  check_workspace(a.workspace, LstmPhase::backward, a.dims, a.layout.capacity);
  a.dy.dtype == DType::f32 ? backward<float>(context, a) : backward<bf16>(context, a);
}

void lstm_weight_grad_gpu(const Context& context, const LstmWeightGradArgs& a) {
  check_lstm(a);
  a.x.dtype == DType::f32 ? weight_grad<float>(context, a) : weight_grad<bf16>(context, a);
}

}  // namespace rondo::RONDO_GPU
