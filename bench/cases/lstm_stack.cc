#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "bench/cases/check/check.h"
#include "bench/cases/lstm_bytes.h"
#include "kernels/lstm/stack/lstm_stack.h"

namespace rondo::check {
namespace {

struct Shape {
  int64_t hidden = 1, input = 1;
  int layers = 2;
  DType dtype = DType::f32;
  std::vector<int32_t> lengths;
  bool states = false;  // initial and final ones
  bool kept = false;    // forward: for training; backward: dgates over gates
  bool apart = false;   // the layers' weights lie anywhere, not in equal steps; backward no dx
  int32_t spare = 0;
  int64_t projection = 0;  // of the lowest layer

  int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
};

Fill weight_fill(int64_t fan_in) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return {Fill::uniform, -bound, bound};
}

// That of one layer (lstm.cc), once for each: a layer reads the errors of the one below.
Tolerance of_layers(const Shape& s, DType storage, int layers) {
  if (s.dtype == DType::bf16) return Tolerance::ulps(DType::bf16, 2, layers);
  const auto terms = static_cast<double>(std::max(s.input, s.hidden) + s.hidden);
  return Tolerance::ulps(storage, layers * (8 + 2 * std::sqrt(terms)));
}

// Layer l, which reads x; w: its W, absent: one that lies by itself.
LstmForwardArgs layer_of(Case& c, const Shape& s, const PackedView& layout, int l,
                         const TensorView& x, const TensorView& w) {
  LstmForwardArgs a;
  a.dims = {1, x.dim(1), s.hidden, l == 0 ? s.projection : 0};
  a.layout = layout;
  a.x = x;
  const int64_t N = layout.capacity.sequences, H = s.hidden, P = a.dims.output();
  const Tolerance t = of_layers(s, s.dtype, l + 1), state = of_layers(s, DType::f32, l + 1);
  a.weights[0].w = w ? w : c.input({4 * H, x.dim(1)}, s.dtype, weight_fill(x.dim(1)));
  a.weights[0].r = c.input({4 * H, P}, s.dtype, weight_fill(H));
  a.weights[0].b = c.input({4 * H}, DType::f32);
  if (a.dims.projection) a.weights[0].p = c.input({P, H}, s.dtype, weight_fill(H));
  if (s.states) {
    a.h0 = c.input({1, N, P}, s.dtype);
    a.c0 = c.input({1, N, H}, DType::f32);
    a.hn = c.output(str("hn", l), {1, N, P}, s.dtype, t);
    a.cn = c.output(str("cn", l), {1, N, H}, DType::f32, state);
  }
  a.y = c.rows_output(str("y", l), layout, P, s.dtype, t);
  if (s.kept) {
    a.gates = c.planes_output(str("gates", l), 1, layout, 4 * H, s.dtype, t);
    a.cells = c.planes_output(str("cells", l), 1, layout, H, DType::f32, state);
    if (a.dims.projection) a.hidden = c.planes_output(str("hidden", l), 1, layout, H, s.dtype, t);
  }
  return a;
}

// Layer l's W where those of all layers lie in one piece.
TensorView share_of(const TensorView& all, const Shape& s, int l) {
  const auto before = static_cast<size_t>(l) * all.bytes() / static_cast<size_t>(s.layers);
  return {static_cast<std::byte*>(all.data) + before, s.dtype, {4 * s.hidden, s.hidden}};
}

void forward(Case& c, LstmStackForwardArgs& a, const Shape& s) {
  const PackedView layout = c.packed(s.lengths, s.spare, s.spare ? 1 : 0);
  const int64_t H = s.hidden, rows = s.rows();
  TensorView x = c.rows_input(layout, s.input, s.dtype);
  const TensorView upper = c.input({s.layers, 4 * H, H}, s.dtype, weight_fill(H));
  std::vector<LstmDims> dims;
  double flops = 0, bytes = 0;
  for (int l = 0; l < s.layers; ++l) {
    const TensorView w = x.dim(1) == H && !s.apart ? share_of(upper, s, l) : TensorView();
    a.layers.push_back(layer_of(c, s, layout, l, x, w));
    x = a.layers.back().y;
    const LstmDims& d = dims.emplace_back(a.layers.back().dims);
    flops += 2.0 * static_cast<double>(rows * 4 * H * (d.input + d.output()));
    bytes += lstm_bytes(LstmPhase::forward, {d, rows, s.dtype, s.kept});
  }
  a.workspace = c.workspace(
      lstm_stack_workspace_bytes(c.context(), LstmPhase::forward, dims, s.dtype, layout.capacity));
  c.work(flops, bytes);
}

// Layer l in the backward pass; w as above.
LstmBackwardArgs gradient_of(Case& c, const Shape& s, const PackedView& layout, int l,
                             const TensorView& dy, const TensorView& w) {
  LstmBackwardArgs a;
  const int64_t N = layout.capacity.sequences, H = s.hidden, I = l == 0 ? s.input : H;
  a.dims = {1, I, H, 0};
  a.layout = layout;
  const int above = s.layers - l;  // and itself
  Shape wide = s;
  wide.input = 3 * H;  // sums over 4 H
  const Tolerance t = of_layers(wide, s.dtype, above), state = of_layers(wide, DType::f32, above);
  a.weights[0].w = w ? w : c.input({4 * H, I}, s.dtype, weight_fill(I));
  a.weights[0].r = c.input({4 * H, H}, s.dtype, weight_fill(H));
  const Fill gates = {Fill::uniform, 0.05, 0.95};
  if (s.kept && s.spare == 0) {
    a.gates = a.dgates =
        c.in_out(str("gates", l), {1, layout.capacity.rows, 4 * H}, s.dtype, t, gates);
  } else {
    a.gates = c.planes_input(1, layout, 4 * H, s.dtype, gates);
    a.dgates = c.planes_output(str("gates", l), 1, layout, 4 * H, s.dtype, t);
  }
  a.cells = c.planes_input(1, layout, H, DType::f32, {Fill::uniform, -1.5, 1.5});
  a.dy = dy;
  if (s.states) {
    a.c0 = c.input({1, N, H}, DType::f32);
    a.dhn = c.input({1, N, H}, s.dtype);
    a.dcn = c.input({1, N, H}, DType::f32);
    a.dh0 = c.output(str("hn", l), {1, N, H}, s.dtype, t);
    a.dc0 = c.output(str("cn", l), {1, N, H}, DType::f32, state);
  }
  if (l > 0) {  // of no meaning after the call
    const TensorView shape(nullptr, s.dtype, {layout.capacity.rows, I});
    a.dx = {c.workspace(shape.bytes()).data, s.dtype, {layout.capacity.rows, I}};
  } else if (!s.apart) {
    a.dx = c.rows_output("dx", layout, I, s.dtype, t);
  }
  return a;
}

void backward(Case& c, LstmStackBackwardArgs& a, const Shape& s) {
  const PackedView layout = c.packed(s.lengths, s.spare, s.spare ? 1 : 0);
  const int64_t H = s.hidden, rows = s.rows();
  TensorView dy = c.rows_input(layout, H, s.dtype);
  const TensorView upper = c.input({s.layers, 4 * H, H}, s.dtype, weight_fill(H));
  std::vector<LstmDims> dims;
  double flops = 0, bytes = 0;
  for (int l = s.layers; l-- > 0;) {
    const TensorView w = l > 0 && !s.apart ? share_of(upper, s, l) : TensorView();
    a.layers.insert(a.layers.begin(), gradient_of(c, s, layout, l, dy, w));
    const LstmBackwardArgs& layer = a.layers.front();
    dy = layer.dx;
    dims.insert(dims.begin(), layer.dims);
    flops += 2.0 * static_cast<double>(rows * 4 * H * (H + (layer.dx ? layer.dims.input : 0)));
    bytes += lstm_bytes(LstmPhase::backward,
                        {layer.dims, rows, s.dtype, true, static_cast<bool>(layer.dx)});
  }
  a.workspace = c.workspace(
      lstm_stack_workspace_bytes(c.context(), LstmPhase::backward, dims, s.dtype, layout.capacity));
  c.work(flops, bytes);
}

std::string label_of(const Shape& s) {
  return str("h", s.hidden, "_i", s.input, "_l", s.layers, "_b", s.lengths.size(), "_t",
             s.lengths.empty() ? 0 : s.lengths.front(), s.projection ? "_p" : "", "_",
             name_of(s.dtype), s.states ? "_states" : "", s.kept ? "_kept" : "",
             s.apart ? "_apart" : "", s.spare ? "_spare" : "");
}

// Sequences that end in the first chunk, in the middle of others, and at the end of one.
std::vector<int32_t> ragged(int32_t longest, int count) {
  std::vector<int32_t> lengths;
  for (int n = 0; n < count; ++n) {
    lengths.push_back(std::max(longest - n * longest / std::max(count - 1, 1), 1));
  }
  return lengths;
}

void add_small(Suite& suite) {
  const std::vector<int32_t> with_empty = {17, 12, 12, 5, 1, 0, 0}, short_ones = {3, 2},
                             many = ragged(14, 19);
  const auto add = [&](const Shape& s) {
    suite.add(label_of(s), forward, s);
    if (s.projection == 0) suite.add(label_of(s), backward, s);
  };
  for (DType t : {DType::bf16, DType::f32}) {
    add({33, 5, 2, t, ragged(40, 7), true, true, true, 3});
    add({16, 16, 3, t, many, true, false, false, 0});
    add({16, 1, 3, t, with_empty, true, true, false, 4});
    add({40, 40, 8, t, {20, 9}, false, true, false, 0});
    add({64, 72, 4, t, {1, 1, 1}, true, false, false, 0});  // of one frame: no chunks
    add({7, 8, 5, t, ragged(25, 3), false, false, true, 2});
    add({130, 3, 2, t, {22, 22, 9}, true, false, false, 0});
    add({12, 5, 3, t, ragged(18, 4), true, true, true, 0, 6});
    add({8, 4, 1, t, short_ones, true, true, false, 0});
    add({8, 4, 2, t, {}, false, false, false, 0});
    add({8, 4, 2, t, {0, 0}, true, false, false, 1});
  }
}

// Streaming recognisers' stacks, whose layers a GPU can run at once.
void add_benches(Suite& suite) {
  for (const auto& [hidden, batch, frames] : every({256, 512}, {1, 16, 64}, {200, 1000})) {
    Shape s = {hidden, hidden, 4, DType::bf16,
               std::vector<int32_t>(static_cast<size_t>(batch), frames)};
    suite.add_bench("bench_" + label_of(s), forward, s).gpus_only = true;
    suite.add_bench("bench_" + label_of(s), backward, s).gpus_only = true;
  }
}

}  // namespace

void lstm_stack_cases(Suite& suite) {
  add_small(suite);
  add_benches(suite);
}

}  // namespace rondo::check
