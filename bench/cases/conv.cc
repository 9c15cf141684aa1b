#include <algorithm>
#include <cmath>
#include <tuple>
#include <type_traits>

#include "bench/cases/check/check.h"
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
};

// The choices that a table of cases goes through by turns, each in a period of its own: every type
// meets every halo, and so do the cases that the fast tests take, each fifth one. Halos have as
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
Args with_layouts(Case& c, const Problem& p, std::vector<int32_t> lengths) {
  Args args;
  args.dims = p.dims;
  if (p.full) std::erase(lengths, 0);
  std::vector<int32_t> shorter;
  for (int32_t length : lengths) shorter.push_back(conv_length(p.dims.time, length, p.behind));
  const bool full = p.full && !lengths.empty();
  args.from = c.packed(lengths, full ? 0 : 5, full ? 0 : 1);
  args.to = c.packed(shorter, full ? 0 : 3, full ? 0 : 1);
  return args;
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
  c.run(args);
}

void forward_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  auto args = with_layouts<ConvArgs>(c, p, lengths);
  args.x = c.rows_input(args.from, p.dims.in_cols(), p.dtype);
  args.before = halo_input(c, args.from, p.halo.before, p);
  args.after = halo_input(c, args.from, p.halo.after, p);
  args.w = c.input({p.dims.out, p.dims.weight_cols()}, p.dtype);
  if (p.bias) args.bias = c.input({p.dims.out}, DType::f32);
  args.y = c.rows_output("y", args.to, p.dims.out_cols(), p.dtype,
                         Tolerance::sum(static_cast<double>(p.dims.weight_cols()), p.dtype));
  finish(c, args, ConvPhase::forward, p, args.x.bytes() + args.w.bytes() + args.y.bytes());
}

void grad_input_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  auto args = with_layouts<ConvGradInputArgs>(c, p, lengths);
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

void grad_weight_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  auto args = with_layouts<ConvGradWeightArgs>(c, p, lengths);
  args.x = c.rows_input(args.from, p.dims.in_cols(), p.dtype);
  args.before = halo_input(c, args.from, p.halo.before, p);
  args.after = halo_input(c, args.from, p.halo.after, p);
  args.dy = c.rows_input(args.to, p.dims.out_cols(), p.dtype);
  const int64_t pixels = c.extent_rows(args.to) * p.dims.out_height;
  const double terms = static_cast<double>(pixels) + 1;
  args.accumulate = !p.bias;
  const auto sums = [&](const char* name, std::initializer_list<int64_t> shape, double deviation) {
    const Tolerance t = Tolerance::sum(terms, DType::f32, deviation);
    return args.accumulate ? c.in_out(name, shape, DType::f32, t)
                           : c.output(name, shape, DType::f32, t);
  };
  if (p.wanted != Wanted::others) args.dw = sums("dw", {p.dims.out, p.dims.weight_cols()}, 1.0 / 3);
  if (p.wanted != Wanted::first) args.dbias = sums("dbias", {p.dims.out}, std::sqrt(1.0 / 3));
  finish(c, args, ConvPhase::grad_weight, p, args.x.bytes() + args.dw.bytes() + args.dy.bytes());
}

void add_all(Suite& suite, const std::string& label, const Problem& p,
             const std::vector<int32_t>& lengths, bool bench = false) {
  const auto add = [&]<class Args>(void (*fill)(Case&, const Problem&, const std::vector<int32_t>&),
                                   std::type_identity<Args>) {
    suite.add<Args>(label, [=](Case& c) { fill(c, p, lengths); }).bench = bench;
  };
  add(forward_case, std::type_identity<ConvArgs>{});
  add(grad_input_case, std::type_identity<ConvGradInputArgs>{});
  add(grad_weight_case, std::type_identity<ConvGradWeightArgs>{});
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
                const Batches& batches, size_t batch, int number) {
  Problem p;
  const int32_t out_height = conv_length(height.axis, s.height, height.behind);
  if (out_height == 0) return;
  p.dims = {s.in, s.out, s.height, out_height, height.axis, time.axis, s.groups};
  p.behind = time.behind;
  p.dtype = dtype;
  vary(p, number);
  add_all(suite,
          str(s.groups > 1 ? str("groups ", s.groups, " ") : "",
              p.dims.one_row() ? "row" : str("height ", name_of_axis(height)), " time ",
              name_of_axis(time), name_of(p.halo), "/", name_of(dtype), "/batch ", batch, "/",
              s.height, "x", s.in, "->", s.out),
          p, batches[batch]);
}

// One tap; odd and even kernels; no padding; strides, which gradients undo class by class, also
// such that blocks of frames begin at other places of a stride; gaps between taps, also such that
// no tap reaches some rows; windows wholly before the first row.
const Axis heights[] = {{{1, 1, 1, 0}, 0}, {{3, 1, 1, 1}, 1}, {{4, 2, 1, 2}, 1}, {{3, 3, 2, 1}, 2},
                        {{2, 1, 3, 0}, 0}, {{2, 2, 2, 1}, 3}, {{5, 3, 1, 2}, 2}};
const Axis times[] = {{{1, 1, 1, 0}, 0}, {{3, 1, 1, 1}, 1}, {{5, 2, 1, 2}, 2}, {{3, 3, 2, 4}, 1},
                      {{4, 1, 1, 3}, 0}, {{2, 2, 2, 0}, 2}, {{5, 3, 1, 2}, 2}};

void add_images(Suite& suite, const Batches& batches) {
  const Size sizes[] = {{1, 3, 7}, {2, 17, 13}, {3, 33, 5}, {5, 40, 29}, {1, 1, 4}};
  int number = 0;
  for (const Axis& height : heights) {
    for (const Axis& time : times) {
      for (DType dtype : {DType::f32, DType::bf16}) {
        // Every pair of axes with one of the sizes and batches, by turns.
        const size_t batch = number % 3 == 0 ? static_cast<size_t>(number / 3 % 4) : 3;
        add_varied(suite, sizes[(number + number / 5) % 5], height, time, dtype, batches, batch,
                   number);
        ++number;
      }
    }
  }
  // Every height of a tile, and panels of every width.
  for (int32_t height = 1; height <= 26; height += height < 14 ? 1 : 4) {
    for (int64_t out : {4, 16, 24, 64}) {
      Problem p;
      p.dims = {2, out, height, height, conv_axis(3, 1, 1), conv_axis(3, 1, 1)};
      p.behind = 1;
      add_all(suite, str("tiles/f32/", height, "x2->", out), p, {5, 3});
    }
  }
  // Blocks of frames, and more of them than partitions of the sums.
  for (DType dtype : {DType::f32, DType::bf16}) {
    Problem p;
    p.dims = {4, 5, 6, 6, conv_axis(3, 1, 1), conv_axis(19, 1, 1)};
    p.behind = 9;
    p.dtype = dtype;
    add_all(suite, str("kernel 3x19/long/", name_of(dtype), "/6x4->5"), p, {300, 70, 20, 3});
  }
}

// Groups of channels: depthwise, of every width of a vector's rest and with more outputs than
// inputs, and groups that are small convolutions.
void add_groups(Suite& suite, const Batches& batches) {
  const Axis of_height[] = {
      {{3, 1, 1, 1}, 1}, {{4, 2, 1, 2}, 1}, {{3, 3, 2, 1}, 2}, {{5, 1, 1, 0}, 0}};
  const Axis of_time[] = {{{5, 1, 1, 2}, 2}, {{3, 2, 1, 1}, 1}, {{2, 2, 2, 0}, 2}};
  int number = 0;
  for (const Size& s :
       {Size{3, 3, 6, 3}, Size{8, 8, 13, 8}, Size{17, 17, 9, 17}, Size{48, 48, 5, 48},
        Size{4, 12, 7, 4}, Size{6, 4, 8, 2}, Size{12, 36, 5, 3}, Size{40, 34, 6, 2}}) {
    for (const Axis& height : of_height) {
      for (DType dtype : {DType::f32, DType::bf16}) {
        const size_t batch = number % 5 == 0 ? static_cast<size_t>(number / 5 % 4) : 3;
        add_varied(suite, s, height, of_time[number % 3], dtype, batches, batch, number);
        ++number;
      }
    }
  }
}

// One row: also causal, looking ahead, and with wide steps between taps.
void add_rows(Suite& suite) {
  const Batches batches = {{}, {1}, {6, 6, 6}, {65, 33, 32, 31, 7, 2, 1, 0}};
  const Axis of_time[] = {{{1, 1, 1, 0}, 0}, {{3, 1, 1, 1}, 1}, {{4, 1, 1, 2}, 1},
                          {{5, 1, 1, 0}, 0}, {{3, 2, 1, 1}, 1}, {{2, 3, 1, 0}, 1},
                          {{4, 1, 1, 3}, 0}, {{4, 1, 1, 0}, 3}, {{3, 2, 3, 4}, 2},
                          {{4, 2, 2, 3}, 3}, {{3, 2, 1, 0}, 0}, {{5, 3, 1, 2}, 2}};
  int number = 0;
  for (const Axis& time : of_time) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      for (size_t batch = 0; batch < batches.size(); ++batch) {
        for (const Size& s : {Size{1, 1}, Size{7, 9}, Size{32, 16}, Size{33, 65}}) {
          // Other choices for each batch and size from one type to the next.
          add_varied(suite, s, {}, time, dtype, batches, batch, number + number / 16 * 5);
          ++number;
        }
      }
    }
  }
  for (DType dtype : {DType::f32, DType::bf16}) {
    // Groups of one row, which windows do not take.
    add_varied(suite, {6, 4, 1, 2}, {}, of_time[1], dtype, batches, 3, 0);
    // More rows than are gathered at a time, on CPUs: of x, and of dy with a stride.
    for (const auto& [in, out, stride] : {std::tuple{96, 8, 1}, {8, 96, 2}}) {
      Problem p;
      p.dims = {in, out, 1, 1, {}, conv_axis(13, stride, 1)};
      p.behind = 6;
      p.dtype = dtype;
      p.halo = {6, 7};
      p.bias = false;
      add_all(suite, str("kernel 13 stride ", stride, "/long/", name_of(dtype), "/", in, "->", out),
              p, {900 * stride, 400, 3});
    }
  }
}

struct Edges {
  int64_t tail, head;
  bool before;
  DType dtype;
};

void edges_case(Case& c, const Edges& e, const std::vector<int32_t>& lengths, int64_t cols) {
  EdgeFramesArgs args;
  args.layout = c.packed(lengths, 5, 1);
  const int64_t n = args.layout.capacity.sequences;
  args.x = c.rows_input(args.layout, cols, e.dtype);
  if (e.before && e.tail > 0) args.before = c.input({e.tail, n, cols}, e.dtype);
  if (e.tail > 0) args.tail = c.output("tail", {e.tail, n, cols}, e.dtype, Tolerance::exact());
  if (e.head > 0) args.head = c.output("head", {e.head, n, cols}, e.dtype, Tolerance::exact());
  c.run(args);
}

void edges_grad_case(Case& c, const Edges& e, const std::vector<int32_t>& lengths, int64_t cols) {
  EdgeFramesGradArgs args;
  args.layout = c.packed(lengths, 0, 1);
  const int64_t n = args.layout.capacity.sequences, rows = args.layout.capacity.rows;
  if (e.tail > 0) args.dtail = c.input({e.tail, n, cols}, e.dtype);
  if (e.head > 0) args.dhead = c.input({e.head, n, cols}, e.dtype);
  const Tolerance t = Tolerance::ulps(e.dtype, 4);
  args.dx = c.in_out("dx", {rows, cols}, e.dtype, t);
  if (e.before && e.tail > 0) {
    args.dbefore = c.in_out("dbefore", {e.tail, n, cols}, e.dtype, t);
  }
  c.run(args);
}

void add_edges(Suite& suite, const Batches& batches) {
  for (Edges e : {Edges{1, 0, false, {}}, Edges{0, 2, false, {}}, Edges{3, 4, true, {}}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      e.dtype = dtype;
      for (size_t b = 0; b < batches.size(); ++b) {
        for (int64_t cols : {1, 7, 32, 65}) {
          const std::string label =
              str("tail ", e.tail, " head ", e.head, "/", name_of(dtype), "/batch ", b, "/", cols);
          const std::vector<int32_t> lengths = batches[b];
          suite.add<EdgeFramesArgs>(label, [=](Case& c) { edges_case(c, e, lengths, cols); });
          suite.add<EdgeFramesGradArgs>(label,
                                        [=](Case& c) { edges_grad_case(c, e, lengths, cols); });
        }
      }
    }
  }
}

// Frames of speech; the layers of kraken's default recogniser for lines 48 high and 1,043 wide; and
// a depthwise one.
void add_benches(Suite& suite) {
  struct Layer {
    Size size;
    int32_t rows, columns, stride, frames, sequences;
  };
  for (const Layer& l :
       {Layer{{80, 256}, 1, 5, 2, 500, 16}, Layer{{256, 256}, 1, 5, 1, 500, 16},
        Layer{{512, 512}, 1, 11, 1, 500, 16}, Layer{{1, 32, 48}, 3, 13, 1, 1043, 8},
        Layer{{32, 32, 24}, 3, 13, 1, 522, 8}, Layer{{32, 64, 12}, 3, 9, 1, 261, 8},
        Layer{{64, 64, 6}, 3, 9, 1, 131, 8}, Layer{{64, 64, 24, 64}, 3, 3, 1, 522, 8}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      const Size& s = l.size;
      Problem p;
      p.dims = {s.in,
                s.out,
                s.height,
                s.height,
                conv_axis(l.rows, 1, 1),
                conv_axis(l.columns, l.stride, 1),
                s.groups};
      p.behind = l.columns / 2;
      p.dtype = dtype;
      const std::string kernel = str(l.rows, "x", l.columns, "/", name_of(dtype), "/", l.sequences,
                                     "x", s.height, "x", l.frames, "/");
      add_all(suite,
              s.groups > 1   ? str("depthwise ", kernel, s.out)
              : s.height > 1 ? str("images ", kernel, s.in, "->", s.out)
                             : str("kernel ", l.columns, " stride ", l.stride, "/", name_of(dtype),
                                   "/", l.sequences, "x", l.frames, "x", s.in, "->", s.out),
              p, std::vector<int32_t>(static_cast<size_t>(l.sequences), l.frames), true);
    }
  }
  const std::vector<int32_t> even(16, 500);
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Edges e{5, 5, true, dtype};
    const std::string label = str("tail 5 head 5/", name_of(dtype), "/16x500x512");
    suite.add_bench<EdgeFramesArgs>(label, [=](Case& c) { edges_case(c, e, even, 512); });
    suite.add_bench<EdgeFramesGradArgs>(label, [=](Case& c) { edges_grad_case(c, e, even, 512); });
  }
}

}  // namespace

void conv_cases(Suite& suite) {
  const Batches batches = {{}, {1}, {6, 6, 6}, {37, 18, 17, 5, 2, 1, 0}};
  add_rows(suite);
  add_images(suite, batches);
  add_groups(suite, batches);
  add_edges(suite, {{}, {1}, {6, 6, 6}, {65, 33, 32, 31, 7, 2, 1, 0}});
  add_benches(suite);
}

}  // namespace rondo::check
