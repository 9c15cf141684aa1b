#include <algorithm>
#include <cmath>
#include <tuple>

#include "bench/cases/check/check.h"
#include "kernels/base/cpu/packed_weights.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/edge_frames.h"

namespace rondo::check {
namespace {

// Frames before a part and behind it; 0: absent.
struct Halo {
  int64_t before = 0, after = 0;
};

// Which gradients are asked for: all, that of the frames or weights alone, or the others alone.
enum class Wanted : uint8_t { all, first, others };

struct Problem {
  ConvDims dims;
  int32_t behind = 0;  // padding behind the last frame
  DType dtype = DType::f32;
  Halo halo = {};
  bool bias = true;  // else accumulated gradients
  Wanted wanted = Wanted::all;
  // The layouts hold those of the batch that have frames, and no more.
  bool full = false;
  bool packed = false;  // with int8: the weights are kept packed
  std::vector<int32_t> lengths = {};
};

// The choices that a table of cases goes through by turns, each in a period of its own: every type
// meets every halo, and so do the cases that the fast tests take, each eleventh one. Halos have as
// many frames as convolutions reach, or one more or less, on both sides or one.
void vary(Problem& p, int number) {
  const int64_t before = p.dims.time.before, after = p.behind;
  const Halo halos[] = {{before, after + 1}, {}, {before + 1, 0}, {before - 1, after}};
  p.halo = halos[number / 4 % 4];
  p.halo.before = std::max<int64_t>(p.halo.before, 0);
  p.bias = number % 4 < 2;
  p.full = number % 3 == 1;
  p.wanted = number % 7 == 3 ? Wanted::first : number % 7 == 6 ? Wanted::others : Wanted::all;
}

std::string name_of(const Halo& h) {
  return h.before + h.after > 0 ? str(" halo ", h.before, "+", h.after) : "";
}

template <class Args>
void set_layouts(Case& c, Args& args, const Problem& p) {
  args.dims = p.dims;
  std::vector<int32_t> lengths = p.lengths;
  if (p.full) std::erase(lengths, 0);
  const auto shorter = [&](int32_t length) { return conv_length(p.dims.time, length, p.behind); };
  c.set_layouts(args, lengths, shorter, !p.full || lengths.empty());
}

TensorView halo_input(Case& c, const PackedView& layout, int64_t frames, const Problem& p) {
  if (frames == 0) return {};
  return c.input({frames, layout.capacity.sequences, p.dims.in_cols()}, p.dtype);
}

template <class Args>
void finish(Case& c, Args& args, ConvPhase phase, const Problem& p, size_t bytes) {
  args.workspace = c.workspace(conv_workspace_bytes(c.context(), phase, p.dims, p.dtype,
                                                    args.from.capacity, args.to.capacity));
  c.work(2 * static_cast<double>(p.dims.out * p.dims.weight_cols() * p.dims.out_height) *
             static_cast<double>(c.extent_rows(args.to)),
         static_cast<double>(bytes));
}

void forward_case(Case& c, ConvArgs& args, const Problem& p) {
  set_layouts(c, args, p);
  args.x = c.rows_input(args.from, p.dims.in_cols(), p.dtype);
  args.before = halo_input(c, args.from, p.halo.before, p);
  args.after = halo_input(c, args.from, p.halo.after, p);
  args.w = c.input({p.dims.out, p.dims.weight_cols()}, p.dtype);
  if (p.bias) args.bias = c.input({p.dims.out}, DType::f32);
  const Tolerance t = p.dims.int8
                          ? Tolerance::exact()
                          : Tolerance::sum(static_cast<double>(p.dims.weight_cols()), p.dtype);
  args.y = c.rows_output("y", args.to, p.dims.out_cols(), p.dtype, t);
  if (p.packed) args.packed_w = &c.keep<PackedWeights>();
  finish(c, args, ConvPhase::forward, p, args.x.bytes() + args.w.bytes() + args.y.bytes());
}

void grad_input_case(Case& c, ConvGradInputArgs& args, const Problem& p) {
  set_layouts(c, args, p);
  args.whole_strides = p.dims.time.before + p.behind + 1 == p.dims.time.span();
  args.dy = c.rows_input(args.to, p.dims.out_cols(), p.dtype);
  args.w = c.input({p.dims.out, p.dims.weight_cols()}, p.dtype);
  const double terms = static_cast<double>(p.dims.out * p.dims.weight_cols() / p.dims.in);
  const Tolerance t = Tolerance::sum(terms, p.dtype);
  const auto [before, after] = p.halo;
  if (p.wanted != Wanted::others || before + after == 0)
    args.dx = c.rows_output("dx", args.from, p.dims.in_cols(), p.dtype, t);
  const auto of_halo = [&](const char* name, int64_t frames) -> TensorView {
    if (p.wanted == Wanted::first || frames == 0) return {};
    return c.output(name, {frames, args.from.capacity.sequences, p.dims.in_cols()}, p.dtype, t);
  };
  args.dbefore = of_halo("dbefore", before);
  args.dafter = of_halo("dafter", after);
  finish(c, args, ConvPhase::grad_input, p, args.dx.bytes() + args.w.bytes() + args.dy.bytes());
}

void grad_weight_case(Case& c, ConvGradWeightArgs& args, const Problem& p) {
  set_layouts(c, args, p);
  args.x = c.rows_input(args.from, p.dims.in_cols(), p.dtype);
  args.before = halo_input(c, args.from, p.halo.before, p);
  args.after = halo_input(c, args.from, p.halo.after, p);
  args.dy = c.rows_input(args.to, p.dims.out_cols(), p.dtype);
  const int64_t pixels = c.extent_rows(args.to) * p.dims.out_height;
  const double terms = static_cast<double>(pixels) + 1;
  args.accumulate = !p.bias;
  const auto sums = [&](const char* name, std::initializer_list<int64_t> shape, double deviation) {
    return c.sums(args.accumulate, name, shape, DType::f32,
                  Tolerance::sum(terms, DType::f32, deviation));
  };
  if (p.wanted != Wanted::others) args.dw = sums("dw", {p.dims.out, p.dims.weight_cols()}, 1.0 / 3);
  if (p.wanted != Wanted::first) args.dbias = sums("dbias", {p.dims.out}, std::sqrt(1.0 / 3));
  finish(c, args, ConvPhase::grad_weight, p, args.x.bytes() + args.dw.bytes() + args.dy.bytes());
}

void add_all(Suite& suite, const std::string& label, const Problem& p, bool bench = false) {
  suite.add(label, forward_case, p).bench = bench;
  suite.add(label, grad_input_case, p).bench = bench;
  suite.add(label, grad_weight_case, p).bench = bench;
}

// An axis of a case: its windows, and the padding behind the last position.
struct Axis {
  ConvAxis axis;
  int32_t behind;
};

std::string name_of_axis(const Axis& a) {
  return str(a.axis.kernel, "/", a.axis.stride, "/", a.axis.dilation, "-", a.axis.before, "+",
             a.behind);
}

struct Size {
  int64_t in, out;
  int32_t height = 1;
  int64_t groups = 1;
};

using Batches = std::vector<std::vector<int32_t>>;

// Of one of the batches; what else there is to choose by `number`.
void add_varied(Suite& suite, const Size& s, const Axis& height, const Axis& time, DType dtype,
                const Batches& batches, int batch, int number) {
  const int32_t out_height = conv_length(height.axis, s.height, height.behind);
  if (out_height == 0) return;
  Problem p{.dims = {s.in, s.out, s.height, out_height, height.axis, time.axis, s.groups},
            .behind = time.behind,
            .dtype = dtype,
            .lengths = batches[static_cast<size_t>(batch)]};
  vary(p, number);
  add_all(suite,
          str(s.groups > 1 ? str("groups ", s.groups, " ") : "",
              p.dims.one_row() ? "row" : str("height ", name_of_axis(height)), " time ",
              name_of_axis(time), name_of(p.halo), "/", name_of(dtype), "/batch ", batch, "/",
              s.height, "x", s.in, "->", s.out),
          p);
}

// One tap; odd and even kernels; no padding; strides, which gradients undo class by class, also
// such that blocks of frames begin at other places of a stride; gaps between taps, also such that
// no tap reaches some rows; windows wholly before the first row.
const std::initializer_list<Axis> heights = {
    {{1, 1, 1, 0}, 0}, {{3, 1, 1, 1}, 1}, {{4, 2, 1, 2}, 1}, {{3, 3, 2, 1}, 2},
    {{2, 1, 3, 0}, 0}, {{2, 2, 2, 1}, 3}, {{5, 3, 1, 2}, 2}};
const std::initializer_list<Axis> times = {{{1, 1, 1, 0}, 0}, {{3, 1, 1, 1}, 1}, {{5, 2, 1, 2}, 2},
                                           {{3, 3, 2, 4}, 1}, {{4, 1, 1, 3}, 0}, {{2, 2, 2, 0}, 2},
                                           {{5, 3, 1, 2}, 2}};

void add_images(Suite& suite, const Batches& batches) {
  const Size sizes[] = {{1, 3, 7}, {2, 17, 13}, {3, 33, 5}, {5, 40, 29}, {1, 1, 4}};
  int number = 0;
  for (const auto& [height, time, dtype] : every(heights, times, f32_bf16)) {
    // Every pair of axes with one of the sizes and batches, by turns.
    const int batch = number % 3 == 0 ? number / 3 % 4 : 3;
    add_varied(suite, sizes[(number + number / 5) % 5], height, time, dtype, batches, batch,
               number);
    ++number;
  }
  // Every height of a tile, and panels of every width.
  for (int32_t height = 1; height <= 26; height += height < 14 ? 1 : 4) {
    for (int64_t out : {4, 16, 24, 64})
      add_all(suite, str("tiles/f32/", height, "x2->", out),
              {.dims = {2, out, height, height, conv_axis(3, 1, 1), conv_axis(3, 1, 1)},
               .behind = 1,
               .lengths = {5, 3}});
  }
  // Blocks of frames, and more of them than partitions of the sums.
  for (DType dtype : f32_bf16)
    add_all(suite, str("kernel 3x19/long/", name_of(dtype), "/6x4->5"),
            {.dims = {4, 5, 6, 6, conv_axis(3, 1, 1), conv_axis(19, 1, 1)},
             .behind = 9,
             .dtype = dtype,
             .lengths = {300, 70, 20, 3}});
}

// Groups of channels: depthwise, of every width of a vector's rest and with more outputs than
// inputs, and groups that are small convolutions.
void add_groups(Suite& suite, const Batches& batches) {
  const std::initializer_list<Size> sizes = {{3, 3, 6, 3},    {8, 8, 13, 8}, {17, 17, 9, 17},
                                             {48, 48, 5, 48}, {4, 12, 7, 4}, {6, 4, 8, 2},
                                             {12, 36, 5, 3},  {40, 34, 6, 2}};
  const std::initializer_list<Axis> of_height = {
      {{3, 1, 1, 1}, 1}, {{4, 2, 1, 2}, 1}, {{3, 3, 2, 1}, 2}, {{5, 1, 1, 0}, 0}};
  const Axis of_time[] = {{{5, 1, 1, 2}, 2}, {{3, 2, 1, 1}, 1}, {{2, 2, 2, 0}, 2}};
  int number = 0;
  for (const auto& [s, height, dtype] : every(sizes, of_height, f32_bf16)) {
    const int batch = number % 5 == 0 ? number / 5 % 4 : 3;
    add_varied(suite, s, height, of_time[number % 3], dtype, batches, batch, number);
    ++number;
  }
}

void add_int8(Suite& suite, const Size& s, const Axis& time, const std::vector<int32_t>& lengths,
              int number) {
  Problem p{.dims = {s.in, s.out, 1, 1, {}, time.axis, 1, true},
            .behind = time.behind,
            .lengths = lengths};
  vary(p, number);
  p.packed = number % 2 == 0;
  suite
      .add(str("int8 time ", name_of_axis(time), name_of(p.halo), "/", lengths.size(), "/", s.in,
               "->", s.out, p.packed ? "/packed" : ""),
           forward_case, p)
      .simulated.emplace();
}

// One row: also causal, looking ahead, and with wide steps between taps.
void add_rows(Suite& suite) {
  const Batches batches = {{}, {1}, {6, 6, 6}, {65, 33, 32, 31, 7, 2, 1, 0}};
  const std::initializer_list<Axis> of_time = {
      {{1, 1, 1, 0}, 0}, {{3, 1, 1, 1}, 1}, {{4, 1, 1, 2}, 1}, {{5, 1, 1, 0}, 0},
      {{3, 2, 1, 1}, 1}, {{2, 3, 1, 0}, 1}, {{4, 1, 1, 3}, 0}, {{4, 1, 1, 0}, 3},
      {{3, 2, 3, 4}, 2}, {{4, 2, 2, 3}, 3}, {{3, 2, 1, 0}, 0}, {{5, 3, 1, 2}, 2}};
  int number = 0;
  for (const auto& [time, dtype, batch, s] : every(
           of_time, f32_bf16, {0, 1, 2, 3}, {Size{1, 1}, Size{7, 9}, Size{32, 16}, Size{33, 65}})) {
    // Other choices for each batch and size from one type to the next.
    add_varied(suite, s, {}, time, dtype, batches, batch, number + number / 16 * 5);
    if (dtype == DType::f32) add_int8(suite, s, time, batches[static_cast<size_t>(batch)], number);
    ++number;
  }
  for (DType dtype : f32_bf16) {
    // Groups of one row, which windows do not take.
    add_varied(suite, {6, 4, 1, 2}, {}, {{3, 1, 1, 1}, 1}, dtype, batches, 3, 0);
    // More rows than are gathered at a time, on CPUs: of x, and of dy with a stride.
    for (const auto& [in, out, stride] : {std::tuple{96, 8, 1}, {8, 96, 2}})
      add_all(suite, str("kernel 13 stride ", stride, "/long/", name_of(dtype), "/", in, "->", out),
              {.dims = {in, out, 1, 1, {}, conv_axis(13, stride, 1)},
               .behind = 6,
               .dtype = dtype,
               .halo = {6, 7},
               .bias = false,
               .lengths = {900 * stride, 400, 3}});
  }
}

struct Edges {
  int64_t tail, head;
  bool before;
  DType dtype = DType::f32;
  std::vector<int32_t> lengths = {};
  int64_t cols = 512;
};

void edges_case(Case& c, EdgeFramesArgs& args, const Edges& e) {
  args.layout = c.packed(e.lengths, 5, 1);
  const int64_t n = args.layout.capacity.sequences;
  args.x = c.rows_input(args.layout, e.cols, e.dtype);
  if (e.before && e.tail > 0) args.before = c.input({e.tail, n, e.cols}, e.dtype);
  if (e.tail > 0) args.tail = c.output("tail", {e.tail, n, e.cols}, e.dtype, Tolerance::exact());
  if (e.head > 0) args.head = c.output("head", {e.head, n, e.cols}, e.dtype, Tolerance::exact());
}

void edges_grad_case(Case& c, EdgeFramesGradArgs& args, const Edges& e) {
  args.layout = c.packed(e.lengths, 0, 1);
  const int64_t n = args.layout.capacity.sequences, rows = args.layout.capacity.rows;
  if (e.tail > 0) args.dtail = c.input({e.tail, n, e.cols}, e.dtype);
  if (e.head > 0) args.dhead = c.input({e.head, n, e.cols}, e.dtype);
  const Tolerance t = Tolerance::ulps(e.dtype, 4);
  args.dx = c.in_out("dx", {rows, e.cols}, e.dtype, t);
  if (e.before && e.tail > 0) {
    args.dbefore = c.in_out("dbefore", {e.tail, n, e.cols}, e.dtype, t);
  }
}

void add_edges(Suite& suite) {
  const std::vector<int32_t> batches[] = {{}, {1}, {6, 6, 6}, {65, 33, 32, 31, 7, 2, 1, 0}};
  for (const auto& [edges, dtype, batch, cols] :
       every({Edges{1, 0, false}, Edges{0, 2, false}, Edges{3, 4, true}}, f32_bf16, {0, 1, 2, 3},
             {1, 7, 32, 65})) {
    const std::string label = str("tail ", edges.tail, " head ", edges.head, "/", name_of(dtype),
                                  "/batch ", batch, "/", cols);
    const Edges e = {edges.tail, edges.head, edges.before, dtype, batches[batch], cols};
    suite.add(label, edges_case, e);
    suite.add(label, edges_grad_case, e);
  }
}

// Frames of speech; the layers of kraken's default recogniser for lines 48 high and 1,043 wide; and
// a depthwise one.
void add_benches(Suite& suite) {
  struct Layer {
    Size size;
    int32_t rows, columns, stride, frames, sequences;
  };
  const std::initializer_list<Layer> layers = {
      {{80, 256}, 1, 5, 2, 500, 16},    {{256, 256}, 1, 5, 1, 500, 16},
      {{512, 512}, 1, 11, 1, 500, 16},  {{1, 32, 48}, 3, 13, 1, 1043, 8},
      {{32, 32, 24}, 3, 13, 1, 522, 8}, {{32, 64, 12}, 3, 9, 1, 261, 8},
      {{64, 64, 6}, 3, 9, 1, 131, 8},   {{64, 64, 24, 64}, 3, 3, 1, 522, 8}};
  for (const auto& [l, dtype] : every(layers, f32_bf16)) {
    const Size& s = l.size;
    const std::string kernel = str(l.rows, "x", l.columns, "/", name_of(dtype), "/", l.sequences,
                                   "x", s.height, "x", l.frames, "/");
    add_all(suite,
            s.groups > 1   ? str("depthwise ", kernel, s.out)
            : s.height > 1 ? str("images ", kernel, s.in, "->", s.out)
                           : str("kernel ", l.columns, " stride ", l.stride, "/", name_of(dtype),
                                 "/", l.sequences, "x", l.frames, "x", s.in, "->", s.out),
            {.dims = {s.in, s.out, s.height, s.height, conv_axis(l.rows, 1, 1),
                      conv_axis(l.columns, l.stride, 1), s.groups},
             .behind = l.columns / 2,
             .dtype = dtype,
             .lengths = std::vector<int32_t>(static_cast<size_t>(l.sequences), l.frames)},
            true);
  }
  for (DType dtype : f32_bf16) {
    const Edges e{5, 5, true, dtype, std::vector<int32_t>(16, 500)};
    const std::string label = str("tail 5 head 5/", name_of(dtype), "/16x500x512");
    suite.add_bench(label, edges_case, e);
    suite.add_bench(label, edges_grad_case, e);
  }
}

}  // namespace

void conv_cases(Suite& suite) {
  const Batches batches = {{}, {1}, {6, 6, 6}, {37, 18, 17, 5, 2, 1, 0}};
  add_rows(suite);
  add_images(suite, batches);
  add_groups(suite, batches);
  add_edges(suite);
  add_benches(suite);
}

}  // namespace rondo::check
