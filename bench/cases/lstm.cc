#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "bench/cases/check/check.h"
#include "bench/cases/check/trial.h"
#include "bench/cases/lstm_bytes.h"
#include "bench/cases/peers/lstm_step.h"
#include "kernels/base/cpu/packed_weights.h"
#include "kernels/lstm/lstm.h"
#include "kernels/lstm/lstm_class.h"

namespace rondo::check {
namespace {

struct Shape {
  int64_t hidden = 1, input = 1, projection = 0;
  int directions = 1;
  DType dtype = DType::f32;
  std::vector<int32_t> lengths;
  bool states = false;  // initial and final ones
  bool kept = true;     // forward: for training; weight gradient: accumulated
  bool dx = true;
  bool alias = false;   // dgates over gates
  bool packed = false;  // forward: the weights are kept packed
  int32_t spare = 0;
  bool int8 = false;  // forward

  LstmDims dims() const { return {directions, input, hidden, projection, int8}; }
  int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
};

double bytes_of(LstmPhase phase, const Shape& s) {
  return lstm_bytes(phase, {s.dims(), s.rows(), s.dtype, s.kept, s.dx, s.kept});
}

// Weights as an initialiser would draw them, so that the recurrence neither dies out nor explodes.
Fill weight_fill(int64_t fan_in) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return {Fill::uniform, -bound, bound};
}

LstmWeights weights_input(Case& c, const Shape& s) {
  const int64_t H = s.hidden, P = s.dims().output();
  LstmWeights w;
  w.w = c.input({4 * H, s.input}, s.dtype, weight_fill(s.input));
  w.r = c.input({4 * H, P}, s.dtype, weight_fill(H));
  w.b = c.input({4 * H}, DType::f32);
  if (s.projection) w.p = c.input({P, H}, s.dtype, weight_fill(H));
  return w;
}

// f32: rounding errors of a sum of `length` terms grow like its square root, and both the
// activations and the recurrence (contractive) add a few ulps. bf16: the stored h or dgates may
// round to the other side, which the next steps carry on.
Tolerance recurrent(DType storage, DType compute, int64_t length, double scale = 1) {
  if (compute == DType::bf16) return Tolerance::ulps(DType::bf16, 2, scale);
  return Tolerance::ulps(storage, 8 + 2 * std::sqrt(static_cast<double>(length)), scale);
}

PackedView layout_of(Case& c, const Shape& s) {
  return c.packed(s.lengths, s.spare, s.spare ? 1 : 0);
}

TensorView workspace(Case& c, const Shape& s, LstmPhase phase, const PackedView& layout) {
  return c.workspace(lstm_workspace_bytes(c.context(), phase, s.dims(), s.dtype, layout.capacity));
}

void forward(Case& c, LstmForwardArgs& a, const Shape& s) {
  a.dims = s.dims();
  a.layout = layout_of(c, s);
  const int64_t D = s.directions, H = s.hidden, P = a.dims.output();
  const int64_t N = a.layout.capacity.sequences, terms = s.input + P;
  const Tolerance t = s.int8 ? Tolerance::exact() : recurrent(s.dtype, s.dtype, terms),
                  cells = s.int8 ? t : recurrent(DType::f32, s.dtype, terms);
  a.x = c.rows_input(a.layout, s.input, s.dtype);
  for (int d = 0; d < D; ++d) a.weights[d] = weights_input(c, s);
  // Every number of threads finds what the first one packed.
  for (int d = 0; d < D && s.packed; ++d)
    a.packed[d] = {&c.keep<PackedWeights>(), &c.keep<PackedWeights>(), &c.keep<PackedWeights>()};
  if (s.states) {
    a.h0 = c.input({D, N, P}, s.dtype);
    a.c0 = c.input({D, N, H}, DType::f32);
    a.hn = c.output("hn", {D, N, P}, s.dtype, t);
    a.cn = c.output("cn", {D, N, H}, DType::f32, cells);
  }
  a.y = c.rows_output("y", a.layout, D * P, s.dtype, t);
  if (s.kept) {
    a.gates = c.planes_output("gates", D, a.layout, 4 * H, s.dtype, t);
    a.cells = c.planes_output("cells", D, a.layout, H, DType::f32, cells);
    if (s.projection) a.hidden = c.planes_output("hidden", D, a.layout, H, s.dtype, t);
  }
  a.workspace = workspace(c, s, LstmPhase::forward, a.layout);
  c.work(2.0 * static_cast<double>(s.rows() * D * 4 * H * terms), bytes_of(LstmPhase::forward, s));
}

void backward(Case& c, LstmBackwardArgs& a, const Shape& s) {
  a.dims = s.dims();
  a.layout = layout_of(c, s);
  const int64_t D = s.directions, H = s.hidden, P = a.dims.output();
  const int64_t N = a.layout.capacity.sequences;
  for (int d = 0; d < D; ++d) a.weights[d] = weights_input(c, s);
  const Tolerance t = recurrent(s.dtype, s.dtype, 4 * H);
  const Fill gates = {Fill::uniform, 0.05, 0.95};
  if (s.alias) {
    // In place: what lies past the extent is not compared by being random on both sides.
    a.gates = a.dgates = c.in_out("dgates", {D, a.layout.capacity.rows, 4 * H}, s.dtype, t, gates);
  } else {
    a.gates = c.planes_input(D, a.layout, 4 * H, s.dtype, gates);
    a.dgates = c.planes_output("dgates", D, a.layout, 4 * H, s.dtype, t);
  }
  a.cells = c.planes_input(D, a.layout, H, DType::f32, {Fill::uniform, -1.5, 1.5});
  a.dy = c.rows_input(a.layout, D * P, s.dtype);
  if (s.states) {
    a.c0 = c.input({D, N, H}, DType::f32);
    a.dhn = c.input({D, N, P}, s.dtype);
    a.dcn = c.input({D, N, H}, DType::f32);
    a.dh0 = c.output("dh0", {D, N, P}, s.dtype, t);
    a.dc0 = c.output("dc0", {D, N, H}, DType::f32, recurrent(DType::f32, s.dtype, 4 * H));
  }
  if (s.projection) a.dprojected = c.planes_output("dprojected", D, a.layout, P, s.dtype, t);
  if (s.dx) a.dx = c.rows_output("dx", a.layout, s.input, s.dtype, t);
  a.workspace = workspace(c, s, LstmPhase::backward, a.layout);
  c.work(2.0 * static_cast<double>(s.rows() * D * 4 * H * (P + (s.dx ? s.input : 0))),
         bytes_of(LstmPhase::backward, s));
}

void weight_grad(Case& c, LstmWeightGradArgs& a, const Shape& s) {
  a.dims = s.dims();
  a.layout = layout_of(c, s);
  a.accumulate = s.kept;
  const int64_t D = s.directions, H = s.hidden, P = a.dims.output();
  const int64_t N = a.layout.capacity.sequences;
  a.x = c.rows_input(a.layout, s.input, s.dtype);
  a.y = c.rows_input(a.layout, D * P, s.dtype);
  a.dgates = c.planes_input(D, a.layout, 4 * H, s.dtype);
  if (s.states) a.h0 = c.input({D, N, P}, s.dtype);
  if (s.projection) {
    a.hidden = c.planes_input(D, a.layout, H, s.dtype);
    a.dprojected = c.planes_input(D, a.layout, P, s.dtype);
  }
  // The inputs are exact in either dtype and the sums are f32: one bound for both.
  const auto rows = static_cast<double>(s.rows());
  const Tolerance t = Tolerance::ulps(DType::f32, 4 + 2 * std::sqrt(rows), std::sqrt(rows + 1));
  const auto grad = [&](const char* name, std::initializer_list<int64_t> dims) {
    return c.sums(a.accumulate, name, dims, DType::f32, t);
  };
  for (int d = 0; d < D; ++d) {
    a.grads[d].w = grad("dw", {4 * H, s.input});
    a.grads[d].r = grad("dr", {4 * H, P});
    a.grads[d].b = grad("db", {4 * H});
    if (s.projection) a.grads[d].p = grad("dp", {P, H});
  }
  a.workspace = workspace(c, s, LstmPhase::weight_grad, a.layout);
  c.work(2.0 * static_cast<double>(s.rows() * D * 4 * H * (P + s.input)),
         bytes_of(LstmPhase::weight_grad, s));
}

// Memory that is no output: what the three ops hand on to each other.
TensorView between(Case& c, std::initializer_list<int64_t> dims, DType dtype) {
  const TensorView shape(nullptr, dtype, dims);
  return {c.workspace(shape.bytes()).data, dtype, dims};
}

void add_step_states(Case& c, const Shape& s, LstmStepArgs& a, const Tolerance& t,
                     const Tolerance& cells) {
  const int64_t D = s.directions, H = s.hidden, P = s.dims().output();
  const int64_t N = a.forward.layout.capacity.sequences;
  a.forward.h0 = a.weight_grad.h0 = c.input({D, N, P}, s.dtype);
  a.forward.c0 = a.backward.c0 = c.input({D, N, H}, DType::f32);
  a.forward.hn = c.output("hn", {D, N, P}, s.dtype, t);
  a.forward.cn = c.output("cn", {D, N, H}, DType::f32, cells);
  a.backward.dhn = c.input({D, N, P}, s.dtype);
  a.backward.dcn = c.input({D, N, H}, DType::f32);
  a.backward.dh0 = c.output("dh0", {D, N, P}, s.dtype, t);
  a.backward.dc0 = c.output("dc0", {D, N, H}, DType::f32, cells);
}

// Weights, their gradients, and what goes from op to op.
void add_step_memory(Case& c, const Shape& s, LstmStepArgs& a, const Tolerance& gradient) {
  LstmForwardArgs& f = a.forward;
  LstmBackwardArgs& b = a.backward;
  LstmWeightGradArgs& w = a.weight_grad;
  const int64_t D = s.directions, H = s.hidden, P = s.dims().output(), I = s.input;
  const int64_t rows = f.layout.capacity.rows;
  for (int d = 0; d < D; ++d) {
    f.weights[d] = b.weights[d] = weights_input(c, s);
    w.grads[d].w = c.output("dw", {4 * H, I}, DType::f32, gradient);
    w.grads[d].r = c.output("dr", {4 * H, P}, DType::f32, gradient);
    w.grads[d].b = c.output("db", {4 * H}, DType::f32, gradient);
    if (s.projection) w.grads[d].p = c.output("dp", {P, H}, DType::f32, gradient);
  }
  f.gates = b.gates = b.dgates = w.dgates = between(c, {D, rows, 4 * H}, s.dtype);
  f.cells = b.cells = between(c, {D, rows, H}, DType::f32);
  if (s.projection) {
    f.hidden = w.hidden = between(c, {D, rows, H}, s.dtype);
    b.dprojected = w.dprojected = between(c, {D, rows, P}, s.dtype);
  }
  f.workspace = workspace(c, s, LstmPhase::forward, f.layout);
  b.workspace = workspace(c, s, LstmPhase::backward, f.layout);
  w.workspace = workspace(c, s, LstmPhase::weight_grad, f.layout);
}

// Errors of gates and cells from the forward pass enter the backward pass, whose own are as large.
void step(Case& c, LstmStepArgs& a, const Shape& s) {
  a.forward.layout = a.backward.layout = a.weight_grad.layout = layout_of(c, s);
  a.forward.dims = a.backward.dims = a.weight_grad.dims = s.dims();
  const int64_t D = s.directions, H = s.hidden, P = s.dims().output();
  const auto rows = static_cast<double>(s.rows());
  const Tolerance t = recurrent(s.dtype, s.dtype, s.input + P + 4 * H, 2);
  const Tolerance cells = recurrent(DType::f32, s.dtype, s.input + P + 4 * H, 2);
  const Tolerance gradient =
      recurrent(DType::f32, s.dtype, s.input + P + 4 * H, 2 * std::sqrt(rows + 1));
  a.forward.x = a.weight_grad.x = c.rows_input(a.forward.layout, s.input, s.dtype);
  a.forward.y = a.weight_grad.y = c.rows_output("y", a.forward.layout, D * P, s.dtype, t);
  a.backward.dy = c.rows_input(a.forward.layout, D * P, s.dtype);
  if (s.dx) a.backward.dx = c.rows_output("dx", a.forward.layout, s.input, s.dtype, t);
  if (s.states) add_step_states(c, s, a, t, cells);
  add_step_memory(c, s, a, gradient);
  Shape trained = s;
  trained.kept = true;  // what the backward pass needs is written
  c.work(6.0 * static_cast<double>(s.rows() * D * 4 * H * (P + s.input)),
         bytes_of(LstmPhase::forward, trained) + bytes_of(LstmPhase::backward, s) +
             bytes_of(LstmPhase::weight_grad, s));
}

// Rows of levels such that every pair of levels of any two factors occurs in some row; greedy, from
// a fixed generator.
std::vector<std::vector<int>> pairwise(const std::vector<int>& levels) {
  const size_t n = levels.size();
  const auto widest = static_cast<size_t>(*std::max_element(levels.begin(), levels.end()));
  std::vector<bool> covered(n * n * widest * widest);
  const auto slot = [&](size_t i, size_t j, const std::vector<int>& row) {
    return ((i * n + j) * widest + static_cast<size_t>(row[i])) * widest +
           static_cast<size_t>(row[j]);
  };
  size_t missing = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) missing += static_cast<size_t>(levels[i] * levels[j]);
  }
  uint32_t state = 12345;
  std::vector<std::vector<int>> rows;
  while (missing > 0) {
    std::vector<int> best;
    size_t best_gain = 0;
    for (int attempt = 0; attempt < 200 || best_gain == 0; ++attempt) {
      std::vector<int> row;
      for (int l : levels) {
        state = state * 1664525u + 1013904223u;
        row.push_back(static_cast<int>((state >> 16) % static_cast<uint32_t>(l)));
      }
      size_t gain = 0;
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = i + 1; j < n; ++j) gain += !covered[slot(i, j, row)];
      }
      if (gain > best_gain) best = row, best_gain = gain;
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = i + 1; j < n; ++j) covered[slot(i, j, best)] = true;
    }
    missing -= best_gain;
    rows.push_back(std::move(best));
  }
  return rows;
}

void add_all(Suite& suite, const std::string& label, const Shape& s, bool bench,
             const std::optional<std::vector<std::string>>& simulated = {}) {
  const auto set = [&](Suite::Entry& entry) {
    entry.bench = bench;
    entry.simulated = simulated;
  };
  set(suite.add(label, forward, s));
  set(suite.add(label, backward, s));
  set(suite.add(label, weight_grad, s));
}

void add_sweep(Suite& suite) {
  const int64_t hidden[] = {1, 7, 16, 31, 33, 64, 130};
  const int64_t inputs[] = {1, 5, 33};
  const std::pair<const char*, std::vector<int32_t>> batches[] = {
      {"one", {1}},
      {"few", {5, 3, 2}},
      {"even", {4, 4, 4, 4, 4, 4, 4}},
      {"short", {3, 1, 0, 0}},
      {"none", {}},
      {"empty", {0, 0, 0}},
      {"ragged", {9, 9, 8, 7, 7, 6, 6, 6, 4, 3, 2, 1, 1}}};
  // Factors: H, I, lengths, directions, projection, dtype, states, kept, dx, alias, spare.
  for (const auto& row : pairwise({7, 3, 7, 2, 3, 2, 2, 2, 2, 2, 2})) {
    const auto& [batch, lengths] = batches[row[2]];
    const int64_t H = hidden[row[0]];
    const DType dtype = row[5] ? DType::bf16 : DType::f32;
    const int64_t projections[] = {0, H / 2 + 1, 19};
    Shape s = {H, inputs[row[1]], projections[row[4]], 1 + row[3], dtype, lengths};
    s.states = row[6], s.kept = row[7], s.dx = row[8], s.spare = row[10] ? 5 : 0;
    s.alias = row[9] && s.spare == 0;
    s.packed = row[9] && !s.kept;
    add_all(suite,
            str("h", H, "_i", s.input, "_", batch, s.spare ? "_spare" : "", "_d", s.directions,
                s.projection ? str("_p", s.projection) : "", "_", name_of(s.dtype),
                s.states ? "_states" : "", s.kept ? "_kept" : "", s.dx ? "_dx" : "",
                s.alias ? "_alias" : "", s.packed ? "_packed" : ""),
            s, false);
  }
}

// Tiles and panels with operands of 8 bits, and what is left of them.
void add_int8(Suite& suite) {
  const std::pair<const char*, std::vector<int32_t>> batches[] = {
      {"one", {6}},
      {"few", {5, 3, 2}},
      {"empty", {0, 0}},
      {"short", {3, 1, 0, 0}},
      {"many", std::vector<int32_t>(27, 3)}};
  int i = 0;
  for (const auto& [H, which] : every({1, 7, 16, 33, 130}, {0, 1, 2, 3, 4})) {
    const auto& batch = batches[which];
    Shape s = {H,          i % 2 ? 5 : 67, i % 3 == 2 ? H / 2 + 1 : 0, 1 + i / 2 % 2,
               DType::f32, batch.second};

    s.kept = false;
    s.int8 = true;
    s.states = i % 4 < 2, s.packed = i % 3 == 0, s.spare = i % 5 == 0 ? 5 : 0;
    suite
        .add(str("int8_h", H, "_i", s.input, "_", batch.first, s.spare ? "_spare" : "", "_d",
                 s.directions, s.projection ? str("_p", s.projection) : "",
                 s.states ? "_states" : "", s.packed ? "_packed" : ""),
             forward, s)
        .simulated.emplace();
    ++i;
  }
}

// What the persistent GPU kernels cut differently: sizes around their tiles of cells and sequences,
// more than one cluster, sequences that end at different steps.
void add_persistent(Suite& suite) {
  struct Size {
    int64_t hidden;
    std::vector<int32_t> lengths;
    std::vector<int> directions = {1, 2};  // one, where it takes seconds: others have both
  };
  std::vector<int32_t> two_clusters, tiles;
  for (int32_t n = 0; n < 19; ++n) two_clusters.push_back(5 - n / 4);
  for (int32_t n = 0; n < 70; ++n) tiles.push_back(n < 40 ? 2 : 1);
  // Most sequences are short: whoever serves them does nothing for many steps (and at H = 520,
  // where a GPU's grid_cluster begins).
  std::vector<int32_t> mostly_short = {17, 14};
  for (int32_t n = 0; n < 13; ++n) mostly_short.push_back(n < 9 ? 3 : 1);
  const Size sizes[] = {{33, {4, 3, 3, 1}},
                        {40, mostly_short},
                        {64, two_clusters},
                        {72, {3, 3, 2, 2, 2, 2, 1, 1, 1, 0}},
                        {250, {4, 2, 1}},
                        {260, tiles},
                        {520, {6, 1, 1, 1, 1, 1, 1, 1, 1}, {1}},
                        {600, {2, 2, 1}},
                        {990, {2, 2, 2, 2, 2, 1, 1, 1, 1}}};
  // The variants that cut such a size in a way of their own. (Two directions with H = 260 are more
  // clusters, to which `cluster_split` gives more sequences; elsewhere no more than blocks, so that
  // of the largest one number of directions is enough.)
  using Names = std::optional<std::vector<std::string>>;
  const auto simulated = [](int64_t hidden, int directions) -> Names {
    if (hidden < 250) return {};
    if (hidden == 600 && directions == 1) return Names::value_type{};
    if (hidden == 990 && directions == 2) return Names::value_type{};
    if (hidden > 500) return {{"grid", "grid_cluster"}};
    if (hidden == 260 && directions == 2) return Names::value_type{"cluster_split"};
    return {{"cluster_split", "grid", "grid_cluster"}};
  };
  for (const auto& [hidden, lengths, all_directions] : sizes) {
    for (int directions : all_directions) {
      for (DType dtype : {DType::bf16, DType::f32}) {
        if (hidden > 250 && dtype == DType::f32) continue;
        const bool full = directions == 2 || hidden == 520 || hidden == 990;
        Shape s = {hidden, 3, 0, directions, dtype, lengths};
        s.states = full || hidden == 33;
        s.kept = directions == 1;
        // Not the recurrence's; so many terms are beyond its bound.
        s.dx = hidden < 990 && hidden != 520;
        s.spare = full && hidden != 64 ? 3 : 0;
        add_all(suite,
                str("persistent_h", hidden, "_b", lengths.size(), "_d", directions, "_",
                    name_of(dtype), s.spare ? "_spare" : ""),
                s, false, simulated(hidden, directions));
      }
    }
  }
  // So many sequences in two directions that clusters take two tiles of them in f32 (and the grid
  // several).
  std::vector<int32_t> two_tiles, projected;
  for (int32_t n = 0; n < 70; ++n) two_tiles.push_back(n < 45 ? 2 : 1);
  for (int32_t n = 0; n < 19; ++n) projected.push_back(3 - n / 8);
  Shape s = {130, 2, 0, 2, DType::f32, two_tiles};
  s.states = true, s.dx = false, s.spare = 3;
  add_all(suite, "persistent_h130_b70_d2_f32_spare", s, false, {{"cluster_split", "grid"}});
  // More than one tile of sequences and of columns in the portable GPU kernels, projected.
  s = {70, 2, 66, 2, DType::f32, projected};
  s.states = true;
  add_all(suite, "projected_h70_b19_d2_p66_f32", s, false);
}

// Whole steps: what their parts have cases for is not swept again.
void add_steps(Suite& suite) {
  const std::vector<int32_t> lengths[] = {{1}, {5, 3, 2}, {4, 4, 4}, {9, 8, 8, 5, 3, 1, 1}};
  const int64_t hidden[] = {5, 16, 33};
  for (int i = 0; i < 24; ++i) {
    Shape s = {hidden[i % 3],
               i % 5 ? 7 : 1,
               i % 6 == 4 ? 3 : 0,
               1 + i / 2 % 2,
               i / 4 % 2 ? DType::bf16 : DType::f32,
               lengths[i % 4]};
    s.states = i / 8 % 2, s.dx = i % 7 != 0, s.spare = i % 11 == 10 ? 4 : 0;
    suite.add(str("h", s.hidden, "_i", s.input, "_b", s.lengths.size(), s.spare ? "_spare" : "",
                  "_d", s.directions, s.projection ? "_p3" : "", "_", name_of(s.dtype),
                  s.states ? "_states" : "", s.dx ? "_dx" : "", "/", i),
              step, s);
  }
}

struct Bench {
  int64_t hidden;
  int32_t batch, frames;
  int directions;
  DType dtype;
  bool ragged;  // the shortest has half the frames

  Shape shape(bool kept) const {
    Shape s = {hidden, hidden, 0, directions, dtype, {}};
    for (int32_t n = 0; n < batch; ++n)
      s.lengths.push_back(ragged ? frames - n * (frames / 2) / std::max(batch - 1, 1) : frames);
    s.kept = kept;
    return s;
  }
  std::string label(const char* group) const {
    return str(group, "_h", hidden, "_b", batch, "_t", frames, "_d", directions, "_",
               name_of(dtype), ragged ? "_ragged" : "_even");
  }
};

// The shapes that libraries are compared on.
void add_peer_benches(Suite& suite) {
  for (DType t : f32_bf16) {
    for (const Bench& bench : {Bench{256, 16, 200, 1, t, false}, Bench{512, 16, 200, 1, t, false},
                               Bench{1024, 16, 100, 1, t, false}, Bench{512, 64, 200, 1, t, false},
                               Bench{512, 32, 200, 2, t, false}, Bench{512, 32, 200, 2, t, true}}) {
      suite.add_bench(bench.label("peers"), step, bench.shape(false));
      suite.add_bench(bench.label("peers") + "_inference", forward, bench.shape(false));
    }
  }
}

// The time loops with next to no products beside them: what one step takes, by variant.
void add_step_benches(Suite& suite) {
  for (const auto& [dtype, hidden, batch] :
       every({DType::bf16, DType::f32}, {256, 512, 1024}, {8, 16, 32, 64})) {
    const int32_t frames = hidden >= 1024 ? 100 : 200;
    Shape s = {hidden, 8, 0, 1, dtype, std::vector<int32_t>(static_cast<size_t>(batch), frames)};
    s.dx = false;
    const std::string label =
        str("steps_h", hidden, "_b", batch, "_t", frames, "_d1_", name_of(dtype));
    suite.add_bench(label, forward, s).gpus_only = true;
    suite.add_bench(label, backward, s).gpus_only = true;
  }
}

void add_benches(Suite& suite) {
  const auto add = [&](const Bench& bench) {
    add_all(suite, bench.label("bench"), bench.shape(true), true);
  };
  for (DType dtype : f32_bf16) {
    for (const auto& [hidden, batch, ragged] :
         every({128, 256, 512, 1024}, {1, 4, 16, 64}, {false, true})) {
      if (ragged && batch == 1) continue;
      add({hidden, batch, hidden >= 1024 ? 25 : hidden >= 512 ? 50 : 100, 1, dtype, ragged});
    }
    add({512, 16, 50, 2, dtype, true});
  }
}

}  // namespace

// The input's products are outside the loop: a narrow one is enough.
CaseFunction lstm_trial_case(const std::string& op, const std::string& call_class,
                             const std::vector<int32_t>& lengths) {
  const LstmClass calls = LstmClass::parse(call_class).value();
  Shape s = {calls.dims.hidden, 8,      calls.dims.projection, calls.dims.directions,
             calls.compute,     lengths};
  s.states = true;
  const auto made = [s]<class Args>(Case& c, void (*fill)(Case&, Args&, const Shape&)) {
    Args args;
    fill(c, args, s);
    c.run(args);
  };
  if (op == LstmForwardArgs::op) return [made](Case& c) { made(c, forward); };
  return [made](Case& c) { made(c, backward); };
}

void lstm_cases(Suite& suite) {
  suite.add_variants(lstm_step_variants());
  add_sweep(suite);
  add_int8(suite);
  add_persistent(suite);
  add_steps(suite);
  add_peer_benches(suite);
  add_step_benches(suite);
  add_benches(suite);
}

}  // namespace rondo::check
