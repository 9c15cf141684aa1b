#include "kernels/pool2d/pool2d.h"
#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

struct Problem {
  Pooling2d pooling;
  Pool2dDims dims;
  DType dtype;
  bool whole = false;  // frames that fill no window are dropped
};

template <class Args>
Args with_layouts(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  Args args;
  args.pooling = p.pooling;
  args.dims = p.dims;
  std::vector<int32_t> shorter;
  for (int32_t length : lengths)
    shorter.push_back((length + (p.whole ? 0 : p.dims.columns - 1)) / p.dims.columns);
  args.from = c.packed(lengths, 5, 1);
  args.to = c.packed(shorter, 3, 1);
  return args;
}

Tolerance tolerance(const Problem& p) {
  return p.pooling == Pooling2d::greatest ? Tolerance::exact() : Tolerance::ulps(p.dtype, 4);
}

int64_t in_cols(const Problem& p) { return p.dims.height * p.dims.channels; }
int64_t out_cols(const Problem& p) { return p.dims.out_height() * p.dims.channels; }

void forward_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths) {
  auto args = with_layouts<Pool2dArgs>(c, p, lengths);
  args.x = c.rows_input(args.from, in_cols(p), p.dtype);
  args.y = c.rows_output("y", args.to, out_cols(p), p.dtype, tolerance(p));
  c.work(0, static_cast<double>(args.x.bytes() + args.y.bytes()));
  c.run(args);
}

// Every value of x is one of eight: many windows have their greatest more than once.
TensorView coarse_input(Case& c, const PackedView& layout, const Problem& p) {
  std::vector<double> values;
  const int64_t rows = layout.capacity.rows;
  for (int64_t i = 0; i < rows * in_cols(p); ++i)
    values.push_back(static_cast<double>(c.random(8)) / 4 - 1);
  return c.input_values({rows, in_cols(p)}, p.dtype, values);
}

void grad_case(Case& c, const Problem& p, const std::vector<int32_t>& lengths, bool ties) {
  auto args = with_layouts<Pool2dGradArgs>(c, p, lengths);
  if (p.pooling == Pooling2d::greatest) {
    args.x = ties ? coarse_input(c, args.from, p) : c.rows_input(args.from, in_cols(p), p.dtype);
  }
  args.dy = c.rows_input(args.to, out_cols(p), p.dtype);
  args.dx = c.rows_output("dx", args.from, in_cols(p), p.dtype, tolerance(p));
  c.work(0, static_cast<double>(args.x.bytes() + args.dy.bytes() + args.dx.bytes()));
  c.run(args);
}

}  // namespace

void pool2d_cases(Suite& suite) {
  const std::vector<std::vector<int32_t>> batches = {{}, {1}, {6, 6, 6}, {37, 18, 17, 5, 2, 1, 0}};
  struct Window {
    int32_t height, rows, columns;
  };
  int number = 0;
  for (Pooling2d pooling : {Pooling2d::greatest, Pooling2d::mean}) {
    const char* name = pooling == Pooling2d::greatest ? "greatest" : "mean";
    for (DType dtype : {DType::f32, DType::bf16}) {
      for (Window w : {Window{4, 2, 2}, Window{7, 3, 1}, Window{5, 1, 3}, Window{3, 2, 5}}) {
        for (int64_t channels : {1, 7, 16, 33}) {
          const Problem p{pooling, {channels, w.height, w.rows, w.columns}, dtype};
          // The ragged batch, and one of the others by turns; of these two, every other one with
          // whole windows alone.
          for (size_t b : {size_t{3}, static_cast<size_t>(number++ % 3)}) {
            Problem q = p;
            q.whole = (number + static_cast<int>(b)) % 2 == 0;
            const std::vector<int32_t> lengths = batches[b];
            const std::string label =
                str(name, " ", w.rows, "x", w.columns, q.whole ? " whole/" : "/", name_of(dtype),
                    "/batch ", b, "/", w.height, "x", channels);
            suite.add<Pool2dArgs>(label, [=](Case& c) { forward_case(c, q, lengths); });
            suite.add<Pool2dGradArgs>(label, [=](Case& c) { grad_case(c, q, lengths, b % 2); });
          }
        }
      }
    }
    const std::vector<int32_t> lines(8, 1043);
    const Problem p{pooling, {32, 48, 2, 2}, DType::f32};
    const std::string label = str(name, " 2x2/f32/8x48x1043x32");
    suite.add_bench<Pool2dArgs>(label, [=](Case& c) { forward_case(c, p, lines); });
    suite.add_bench<Pool2dGradArgs>(label, [=](Case& c) { grad_case(c, p, lines, false); });
  }
}

}  // namespace rondo::check
