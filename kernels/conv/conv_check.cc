#include "kernels/check/suites.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/edge_frames.h"

namespace rondo::check {
namespace {

struct Problem {
  ConvDims dims;
  int32_t right = 0;  // padding
  DType dtype = DType::f32;
  bool halo = false;  // frames before and behind are there
  bool bias = true;   // else accumulated gradients
};

template <class Args>
Args with_layouts(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  Args args;
  args.dims = p.dims;
  std::vector<int32_t> shorter;
  for (int32_t length : lengths) shorter.push_back(conv_length(p.dims, length, p.right));
  args.from = c.packed(lengths, 5, 1);
  args.to = c.packed(shorter, 3, 1);
  return args;
}

// Frames before a part that convolutions reach; one more or less than that is right as well.
int64_t before_frames(const Problem& p) { return p.dims.left; }
int64_t after_frames(const Problem& p) { return p.right + 1; }

TensorView halo_input(Case& c, const PackedView& layout, int64_t frames, const Problem& p) {
  if (!p.halo || frames == 0) return {};
  return c.input({frames, layout.capacity.sequences, p.dims.in}, p.dtype);
}

double weights(const Problem& p) {
  return static_cast<double>(p.dims.in * p.dims.out * p.dims.kernel);
}

template <class Args>
void set_workspace(Case& c, Args& args, ConvPhase phase, DType dtype) {
  args.workspace = c.workspace(conv_workspace_bytes(c.context(), phase, args.dims, dtype,
                                                    args.from.capacity, args.to.capacity));
}

void forward_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  auto args = with_layouts<ConvArgs>(c, p, lengths);
  const ConvDims& d = p.dims;
  args.x = c.rows_input(args.from, d.in, p.dtype);
  args.before = halo_input(c, args.from, before_frames(p), p);
  args.after = halo_input(c, args.from, after_frames(p), p);
  args.w = c.input({d.out, d.in * d.kernel}, p.dtype);
  if (p.bias) args.bias = c.input({d.out}, DType::f32);
  args.y = c.rows_output("y", args.to, d.out, p.dtype,
                         Tolerance::sum(static_cast<double>(d.in * d.kernel), p.dtype));
  set_workspace(c, args, ConvPhase::forward, p.dtype);
  c.work(2 * weights(p) * static_cast<double>(c.extent_rows(args.to)),
         static_cast<double>(args.x.bytes() + args.w.bytes() + args.y.bytes()));
  c.run(args);
}

void grad_input_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  auto args = with_layouts<ConvGradInputArgs>(c, p, lengths);
  const ConvDims& d = p.dims;
  args.whole_strides = d.left + p.right + 1 == d.span();
  args.dy = c.rows_input(args.to, d.out, p.dtype);
  args.w = c.input({d.out, d.in * d.kernel}, p.dtype);
  const Tolerance t = Tolerance::sum(static_cast<double>(d.out * d.kernel), p.dtype);
  args.dx = c.rows_output("dx", args.from, d.in, p.dtype, t);
  if (p.halo) {
    const int64_t sequences = args.from.capacity.sequences;
    if (d.left > 0) args.dbefore = c.output("dbefore", {d.left, sequences, d.in}, p.dtype, t);
    args.dafter = c.output("dafter", {after_frames(p), sequences, d.in}, p.dtype, t);
  }
  set_workspace(c, args, ConvPhase::grad_input, p.dtype);
  c.work(2 * weights(p) * static_cast<double>(c.extent_rows(args.to)),
         static_cast<double>(args.dx.bytes() + args.w.bytes() + args.dy.bytes()));
  c.run(args);
}

void grad_weight_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  auto args = with_layouts<ConvGradWeightArgs>(c, p, lengths);
  const ConvDims& d = p.dims;
  args.x = c.rows_input(args.from, d.in, p.dtype);
  args.before = halo_input(c, args.from, before_frames(p), p);
  args.after = halo_input(c, args.from, after_frames(p), p);
  args.dy = c.rows_input(args.to, d.out, p.dtype);
  const Tolerance t = Tolerance::sum(static_cast<double>(c.extent_rows(args.to)) + 1, DType::f32);
  args.accumulate = !p.bias;
  const std::initializer_list<int64_t> shape = {d.out, d.in * d.kernel};
  args.dw =
      args.accumulate ? c.in_out("dw", shape, DType::f32, t) : c.output("dw", shape, DType::f32, t);
  set_workspace(c, args, ConvPhase::grad_weight, p.dtype);
  c.work(2 * weights(p) * static_cast<double>(c.extent_rows(args.to)),
         static_cast<double>(args.x.bytes() + args.dw.bytes() + args.dy.bytes()));
  c.run(args);
}

void add_all(Suite& suite, const std::string& label, const Problem& p,
             const std::vector<int32_t>& lengths) {
  suite.add<ConvArgs>(label, [=](Case& c) { forward_case(c, p, lengths); });
  suite.add<ConvGradInputArgs>(label, [=](Case& c) { grad_input_case(c, p, lengths); });
  suite.add<ConvGradWeightArgs>(label, [=](Case& c) { grad_weight_case(c, p, lengths); });
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

void add_edges(Suite& suite, const std::vector<std::vector<int32_t>>& batches) {
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

void add_benches(Suite& suite) {
  const std::vector<int32_t> even(16, 500);
  struct Size {
    int64_t in, out;
    int32_t kernel, stride;
  };
  for (Size s : {Size{80, 256, 5, 2}, Size{256, 256, 5, 1}, Size{512, 512, 11, 1}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      Problem p{{s.in, s.out, s.kernel, s.stride, 1, s.kernel / 2}, s.kernel / 2, dtype};
      const std::string label = str("kernel ", s.kernel, " stride ", s.stride, "/", name_of(dtype),
                                    "/16x500x", s.in, "->", s.out);
      suite.add_bench<ConvArgs>(label, [=](Case& c) { forward_case(c, p, even); });
      suite.add_bench<ConvGradInputArgs>(label, [=](Case& c) { grad_input_case(c, p, even); });
      suite.add_bench<ConvGradWeightArgs>(label, [=](Case& c) { grad_weight_case(c, p, even); });
    }
  }
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Edges e{5, 5, true, dtype};
    const std::string label = str("tail 5 head 5/", name_of(dtype), "/16x500x512");
    suite.add_bench<EdgeFramesArgs>(label, [=](Case& c) { edges_case(c, e, even, 512); });
    suite.add_bench<EdgeFramesGradArgs>(label, [=](Case& c) { edges_grad_case(c, e, even, 512); });
  }
}

}  // namespace

void conv_check(Suite& suite) {
  const std::vector<std::vector<int32_t>> batches = {
      {}, {1}, {6, 6, 6}, {65, 33, 32, 31, 7, 2, 1, 0}};
  struct Window {
    int32_t kernel, stride, dilation, left, right;
  };
  // One tap; odd and even kernels; none of the padding; gaps between windows; causal; looking
  // ahead; wide steps between taps, also such that no tap reaches some frames; strides without
  // padding.
  const Window windows[] = {{1, 1, 1, 0, 0}, {3, 1, 1, 1, 1}, {4, 1, 1, 2, 1}, {5, 1, 1, 0, 0},
                            {3, 2, 1, 1, 1}, {2, 3, 1, 0, 1}, {4, 1, 1, 3, 0}, {4, 1, 1, 0, 3},
                            {3, 2, 3, 4, 2}, {4, 2, 2, 3, 3}, {3, 2, 1, 0, 0}, {5, 3, 1, 2, 2}};
  struct Size {
    int64_t in, out;
  };
  for (const Window& w : windows) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      for (size_t b = 0; b < batches.size(); ++b) {
        for (Size s : {Size{1, 1}, Size{7, 9}, Size{32, 16}, Size{33, 65}}) {
          for (bool halo : {false, true}) {
            // Halos and accumulation on every other size: they do not depend on it.
            if (halo != (s.in % 2 == 0 || s.in == 7)) continue;
            Problem p{{s.in, s.out, w.kernel, w.stride, w.dilation, w.left},
                      w.right,
                      dtype,
                      halo,
                      s.in % 32 != 0};
            const std::string label =
                str("kernel ", w.kernel, " stride ", w.stride, " dilation ", w.dilation, " left ",
                    w.left, " right ", w.right, halo ? " halo/" : "/", name_of(dtype), "/batch ", b,
                    "/", s.in, "->", s.out);
            add_all(suite, label, p, batches[b]);
          }
        }
      }
    }
  }
  // More rows than are gathered at a time, on CPUs.
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Problem p{{96, 8, 13, 1, 1, 6}, 6, dtype, true, false};
    add_all(suite, str("kernel 13/long/", name_of(dtype), "/96->8"), p, {900, 400, 3});
  }
  add_edges(suite, batches);
  add_benches(suite);
}

}  // namespace rondo::check
