#include <algorithm>
#include <cmath>

#include "kernels/check/suites.h"
#include "kernels/conv2d/conv2d.h"

namespace rondo::check {
namespace {

// Frames before a part and behind it; 0: absent.
struct Halo {
  int64_t before = 0, after = 0;
};

// Which gradients are asked for: all, that of the frames or weights alone, or the others alone.
enum class Wanted : uint8_t { all, first, others };

struct Problem {
  Conv2dDims dims;
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

// Positions that windows have along an axis, with `behind` positions of padding at the end.
int32_t windows(const Conv2dAxis& a, int32_t size, int32_t behind) {
  const int64_t slack = int64_t{a.before} + size + behind - a.span();
  return size == 0 || slack < 0 ? 0 : static_cast<int32_t>(slack / a.stride + 1);
}

template <class Args>
Args with_layouts(Case& c, const Problem& p, std::vector<int32_t> lengths) {
  Args args;
  args.dims = p.dims;
  if (p.full) std::erase(lengths, 0);
  std::vector<int32_t> shorter;
  for (int32_t length : lengths) shorter.push_back(windows(p.dims.time, length, p.behind));
  const bool full = p.full && !lengths.empty();
  args.from = c.packed(lengths, full ? 0 : 5, full ? 0 : 1);
  args.to = c.packed(shorter, full ? 0 : 3, full ? 0 : 1);
  return args;
}

int64_t in_cols(const Problem& p) { return p.dims.in_height * p.dims.in; }
int64_t out_cols(const Problem& p) { return p.dims.out_height * p.dims.out; }
int64_t weight_cols(const Problem& p) { return p.dims.weight_cols(); }

TensorView halo_input(Case& c, const PackedView& layout, int64_t frames, const Problem& p) {
  if (frames == 0) return {};
  return c.input({frames, layout.capacity.sequences, in_cols(p)}, p.dtype);
}

template <class Args>
void finish(Case& c, Args& args, Conv2dPhase phase, const Problem& p, size_t bytes) {
  args.workspace = c.workspace(conv2d_workspace_bytes(c.context(), phase, p.dims));
  c.work(2 * static_cast<double>(p.dims.out * weight_cols(p) * p.dims.out_height) *
             static_cast<double>(c.extent_rows(args.to)),
         static_cast<double>(bytes));
  c.run(args);
}

void forward_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  auto args = with_layouts<Conv2dArgs>(c, p, lengths);
  args.x = c.rows_input(args.from, in_cols(p), p.dtype);
  args.before = halo_input(c, args.from, p.halo.before, p);
  args.after = halo_input(c, args.from, p.halo.after, p);
  args.w = c.input({p.dims.out, weight_cols(p)}, p.dtype);
  if (p.bias) args.bias = c.input({p.dims.out}, DType::f32);
  args.y = c.rows_output("y", args.to, out_cols(p), p.dtype,
                         Tolerance::sum(static_cast<double>(weight_cols(p)), p.dtype));
  finish(c, args, Conv2dPhase::forward, p, args.x.bytes() + args.w.bytes() + args.y.bytes());
}

void grad_input_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  auto args = with_layouts<Conv2dGradInputArgs>(c, p, lengths);
  args.dy = c.rows_input(args.to, out_cols(p), p.dtype);
  args.w = c.input({p.dims.out, weight_cols(p)}, p.dtype);
  const double terms = static_cast<double>(p.dims.out * weight_cols(p) / p.dims.in);
  const Tolerance t = Tolerance::sum(terms, p.dtype);
  const auto [before, after] = p.halo;
  if (p.wanted != Wanted::others || before + after == 0)
    args.dx = c.rows_output("dx", args.from, in_cols(p), p.dtype, t);
  const auto of_halo = [&](const char* name, int64_t frames) -> TensorView {
    if (p.wanted == Wanted::first || frames == 0) return {};
    return c.output(name, {frames, args.from.capacity.sequences, in_cols(p)}, p.dtype, t);
  };
  args.dbefore = of_halo("dbefore", before);
  args.dafter = of_halo("dafter", after);
  finish(c, args, Conv2dPhase::grad_input, p, args.dx.bytes() + args.w.bytes() + args.dy.bytes());
}

void grad_weight_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  auto args = with_layouts<Conv2dGradWeightArgs>(c, p, lengths);
  args.x = c.rows_input(args.from, in_cols(p), p.dtype);
  args.before = halo_input(c, args.from, p.halo.before, p);
  args.after = halo_input(c, args.from, p.halo.after, p);
  args.dy = c.rows_input(args.to, out_cols(p), p.dtype);
  const int64_t pixels = c.extent_rows(args.to) * p.dims.out_height;
  const double terms = static_cast<double>(pixels) + 1;
  args.accumulate = !p.bias;
  const auto sums = [&](const char* name, std::initializer_list<int64_t> shape, double deviation) {
    const Tolerance t = Tolerance::sum(terms, DType::f32, deviation);
    return args.accumulate ? c.in_out(name, shape, DType::f32, t)
                           : c.output(name, shape, DType::f32, t);
  };
  if (p.wanted != Wanted::others) args.dw = sums("dw", {p.dims.out, weight_cols(p)}, 1.0 / 3);
  if (p.wanted != Wanted::first) args.dbias = sums("dbias", {p.dims.out}, std::sqrt(1.0 / 3));
  finish(c, args, Conv2dPhase::grad_weight, p, args.x.bytes() + args.dw.bytes() + args.dy.bytes());
}

void add_all(Suite& suite, const std::string& label, const Problem& p,
             const std::vector<int32_t>& lengths) {
  suite.add<Conv2dArgs>(label, [=](Case& c) { forward_case(c, p, lengths); });
  suite.add<Conv2dGradInputArgs>(label, [=](Case& c) { grad_input_case(c, p, lengths); });
  suite.add<Conv2dGradWeightArgs>(label, [=](Case& c) { grad_weight_case(c, p, lengths); });
}

// An axis of a case: its windows, and the padding behind the last position.
struct Axis {
  Conv2dAxis axis;
  int32_t behind;
};

std::string name_of_axis(const Axis& a) {
  return str(a.axis.kernel, "/", a.axis.stride, "/", a.axis.dilation, "-", a.axis.before, "+",
             a.behind);
}

// Groups of channels: depthwise, of every width of a vector's rest and with more outputs than
// inputs, and groups that are small convolutions.
void add_groups(Suite& suite, const std::vector<std::vector<int32_t>>& batches) {
  struct Size {
    int64_t in, out, groups;
    int32_t height;
  };
  const Axis heights[] = {
      {{3, 1, 1, 1}, 1}, {{4, 2, 1, 2}, 1}, {{3, 3, 2, 1}, 2}, {{5, 1, 1, 0}, 0}};
  const Axis times[] = {{{5, 1, 1, 2}, 2}, {{3, 2, 1, 1}, 1}, {{2, 2, 2, 0}, 2}};
  int number = 0;
  for (const Size& s :
       {Size{3, 3, 3, 6}, Size{8, 8, 8, 13}, Size{17, 17, 17, 9}, Size{48, 48, 48, 5},
        Size{4, 12, 4, 7}, Size{6, 4, 2, 8}, Size{12, 36, 3, 5}, Size{40, 34, 2, 6}}) {
    for (const Axis& height : heights) {
      for (DType dtype : {DType::f32, DType::bf16}) {
        const Axis& time = times[number % 3];
        Problem p;
        p.dims = {s.in,        s.out,     s.height, windows(height.axis, s.height, height.behind),
                  height.axis, time.axis, s.groups};
        p.behind = time.behind;
        p.dtype = dtype;
        vary(p, number);
        const size_t batch = number % 5 == 0 ? static_cast<size_t>(number / 5 % 4) : 3;
        ++number;
        add_all(suite,
                str("groups ", s.groups, " height ", name_of_axis(height), " time ",
                    name_of_axis(time), name_of(p.halo), "/", name_of(dtype), "/batch ", batch, "/",
                    s.height, "x", s.in, "->", s.out),
                p, batches[batch]);
      }
    }
  }
  for (DType dtype : {DType::f32, DType::bf16}) {
    Problem p;
    p.dims = {64, 64, 24, 24, conv2d_same(3, 1, 1), conv2d_same(3, 1, 1), 64};
    p.behind = 1;
    p.dtype = dtype;
    const std::vector<int32_t> lines(8, 522);
    const std::string label = str("depthwise 3x3/", name_of(dtype), "/8x24x522/64");
    suite.add_bench<Conv2dArgs>(label, [=](Case& c) { forward_case(c, p, lines); });
    suite.add_bench<Conv2dGradInputArgs>(label, [=](Case& c) { grad_input_case(c, p, lines); });
    suite.add_bench<Conv2dGradWeightArgs>(label, [=](Case& c) { grad_weight_case(c, p, lines); });
  }
}

// The layers of kraken's default recogniser for lines 48 high and 1,043 wide.
void add_benches(Suite& suite) {
  struct Layer {
    int64_t in, out;
    int32_t width, height, frames;
  };
  for (Layer l : {Layer{1, 32, 13, 48, 1043}, Layer{32, 32, 13, 24, 522}, Layer{32, 64, 9, 12, 261},
                  Layer{64, 64, 9, 6, 131}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      Problem p;
      p.dims = {l.in, l.out, l.height, l.height, conv2d_same(3, 1, 1), conv2d_same(l.width, 1, 1)};
      p.behind = l.width / 2;
      p.dtype = dtype;
      const std::vector<int32_t> lines(8, l.frames);
      const std::string label = str("kernel 3x", l.width, "/", name_of(dtype), "/8x", l.height, "x",
                                    l.frames, "/", l.in, "->", l.out);
      suite.add_bench<Conv2dArgs>(label, [=](Case& c) { forward_case(c, p, lines); });
      suite.add_bench<Conv2dGradInputArgs>(label, [=](Case& c) { grad_input_case(c, p, lines); });
      suite.add_bench<Conv2dGradWeightArgs>(label, [=](Case& c) { grad_weight_case(c, p, lines); });
    }
  }
}

}  // namespace

void conv2d_check(Suite& suite) {
  const std::vector<std::vector<int32_t>> batches = {{}, {1}, {6, 6, 6}, {37, 18, 17, 5, 2, 1, 0}};
  // One tap; odd and even kernels; no padding; strides, which gradients undo class by class, also
  // such that blocks of frames begin at other places of a stride; gaps between taps, also such that
  // no tap reaches some rows; windows wholly before the first row.
  const Axis heights[] = {{{1, 1, 1, 0}, 0}, {{3, 1, 1, 1}, 1}, {{4, 2, 1, 2}, 1},
                          {{3, 3, 2, 1}, 2}, {{2, 1, 3, 0}, 0}, {{2, 2, 2, 1}, 3},
                          {{5, 3, 1, 2}, 2}};
  const Axis times[] = {{{1, 1, 1, 0}, 0}, {{3, 1, 1, 1}, 1}, {{5, 2, 1, 2}, 2}, {{3, 3, 2, 4}, 1},
                        {{4, 1, 1, 3}, 0}, {{2, 2, 2, 0}, 2}, {{5, 3, 1, 2}, 2}};
  struct Size {
    int64_t in, out;
    int32_t height;
  };
  const Size sizes[] = {{1, 3, 7}, {2, 17, 13}, {3, 33, 5}, {5, 40, 29}, {1, 1, 4}};
  int number = 0;
  for (const Axis& height : heights) {
    for (const Axis& time : times) {
      for (DType dtype : {DType::f32, DType::bf16}) {
        // Every pair of axes with one of the sizes and batches, by turns.
        const Size& s = sizes[(number + number / 5) % 5];
        const size_t batch = number % 3 == 0 ? static_cast<size_t>(number / 3 % 4) : 3;
        Problem p;
        p.dims = {s.in,        s.out,    s.height, windows(height.axis, s.height, height.behind),
                  height.axis, time.axis};
        p.behind = time.behind;
        p.dtype = dtype;
        vary(p, number);
        ++number;
        if (p.dims.out_height == 0) continue;
        add_all(suite,
                str("height ", name_of_axis(height), " time ", name_of_axis(time), name_of(p.halo),
                    "/", name_of(dtype), "/batch ", batch, "/", s.height, "x", s.in, "->", s.out),
                p, batches[batch]);
      }
    }
  }
  // Every height of a tile, and panels of every width.
  for (int32_t height = 1; height <= 26; height += height < 14 ? 1 : 4) {
    for (int64_t out : {4, 16, 24, 64}) {
      Problem p;
      p.dims = {2, out, height, height, conv2d_same(3, 1, 1), conv2d_same(3, 1, 1)};
      p.behind = 1;
      add_all(suite, str("tiles/f32/", height, "x2->", out), p, {5, 3});
    }
  }
  // Blocks of frames, and more of them than partitions of the sums.
  for (DType dtype : {DType::f32, DType::bf16}) {
    Problem p;
    p.dims = {4, 5, 6, 6, conv2d_same(3, 1, 1), conv2d_same(19, 1, 1)};
    p.behind = 9;
    p.dtype = dtype;
    add_all(suite, str("kernel 3x19/long/", name_of(dtype), "/6x4->5"), p, {300, 70, 20, 3});
  }
  add_groups(suite, batches);
  add_benches(suite);
}

}  // namespace rondo::check
