// The forward pass with operands of 8 bits in plain loops: by the rule of kernels/gemm/int8.h, the
// functions of the CPU's cells, and one operation in f32 after the other, so that every variant has
// the same bits.
#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/gemm/int8_ref.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo {
namespace {

// Vectors of one float, for the cells' functions.
using vf = float;
using vi = int32_t;
vf broadcast(float x) { return x; }
vf max(vf a, vf b) { return a > b ? a : b; }
vf min(vf a, vf b) { return a < b ? a : b; }
vi bits_of(vf v) { return std::bit_cast<vi>(v); }
vf float_of(vi v) { return std::bit_cast<vf>(v); }

#include "kernels/lstm/lstm_activation.h"

std::vector<Int8Row> rows_of(const TensorView& w) {
  std::vector<Int8Row> rows;
  for (int64_t j = 0; w && j < w.dim(0); ++j) {
    rows.emplace_back(w.as<float>() + j * w.dim(1), w.dim(1));
  }
  return rows;
}

struct Forward {
  const LstmForwardArgs& a;
  const int d;
  const int64_t I = a.dims.input, H = a.dims.hidden, P = a.dims.output();
  const int64_t D = a.dims.directions, N = a.layout.capacity.sequences;
  const std::vector<Int8Row> w = rows_of(a.weights[d].w), r = rows_of(a.weights[d].r),
                             p = rows_of(a.weights[d].p);
  std::vector<float> h = {}, c = {};

  // `width` columns of this direction's states.
  std::vector<float> read(const TensorView& v, int64_t width) const {
    std::vector<float> state(static_cast<size_t>(N * width), 0.0f);
    if (v) std::copy_n(v.as<float>() + d * N * width, state.size(), state.begin());
    return state;
  }
  void write(const TensorView& v, const std::vector<float>& state, int64_t width) const {
    const int64_t live = a.layout.extent->sequences * width;
    if (v) std::copy_n(state.begin(), live, v.as<float>() + d * N * width);
  }

  float gate(int64_t j, const Int8Row& x, const Int8Row& before) const {
    float pre = x.times(w[static_cast<size_t>(j)]);
    if (a.weights[d].b) pre += a.weights[d].b.as<float>()[j];
    return before.times(r[static_cast<size_t>(j)]) + pre;
  }

  void cell(int64_t n, int64_t row) {
    const Int8Row x(a.x.as<float>() + row * I, I), before(h.data() + n * P, P);
    std::vector<float> out(static_cast<size_t>(H));
    for (int64_t u = 0; u < H; ++u) {
      const float i = cell_sigmoid(gate(u, x, before));
      const float f = cell_sigmoid(gate(H + u, x, before));
      const float g = cell_tanh(gate(2 * H + u, x, before));
      const float o = cell_sigmoid(gate(3 * H + u, x, before));
      float& state = c[static_cast<size_t>(n * H + u)];
      const float kept = f * state, added = i * g;
      state = kept + added;
      out[static_cast<size_t>(u)] = o * cell_tanh(state);
    }
    if (a.dims.projection) {
      const Int8Row cells(out.data(), H);
      out.clear();
      for (const Int8Row& column : p) out.push_back(cells.times(column));
    }
    std::copy_n(out.begin(), P, h.begin() + n * P);
    std::copy_n(out.begin(), P, a.y.as<float>() + row * D * P + d * P);
  }

  void run() {
    const PackedView& l = a.layout;
    h = read(a.h0, P);
    c = read(a.c0, H);
    const int64_t frames = l.extent->frames;
    for (int64_t step = 0; step < frames; ++step) {
      const int64_t t = lstm_frame(d, step, frames);
      for (int64_t n = 0; n < l.batch_sizes[t]; ++n) cell(n, l.row_offsets[t] + n);
    }
    write(a.hn, h, P);
    write(a.cn, c, H);
  }
};

}  // namespace

void lstm_int8_ref(const LstmForwardArgs& a) {
  for (int d = lstm_first_direction(a.run); d < lstm_end_direction(a.dims, a.run); ++d) {
    Forward{a, d}.run();
  }
}

}  // namespace rondo
