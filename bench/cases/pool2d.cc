#include "kernels/pool2d/pool2d.h"

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

struct Problem {
  Pooling2d pooling;
  Pool2dDims dims;
  DType dtype;
  bool whole = false;  // frames that fill no window are dropped
  std::vector<int32_t> lengths = {};

  int64_t in_cols() const { return dims.height * dims.channels; }
  int64_t out_cols() const { return dims.out_height() * dims.channels; }
  Tolerance tolerance() const {
    return pooling == Pooling2d::greatest ? Tolerance::exact() : Tolerance::ulps(dtype, 4);
  }
};

template <class Args>
void set_layouts(Case& c, Args& args, const Problem& p) {
  args.pooling = p.pooling;
  args.dims = p.dims;
  const int32_t columns = p.dims.columns, rest = p.whole ? 0 : columns - 1;
  c.set_layouts(args, p.lengths, [&](int32_t length) { return (length + rest) / columns; });
}

void forward_case(Case& c, Pool2dArgs& args, const Problem& p) {
  set_layouts(c, args, p);
  args.x = c.rows_input(args.from, p.in_cols(), p.dtype);
  args.y = c.rows_output("y", args.to, p.out_cols(), p.dtype, p.tolerance());
  c.work(0, static_cast<double>(args.x.bytes() + args.y.bytes()));
}

// Every value of x is one of eight: many windows have their greatest more than once.
TensorView coarse_input(Case& c, const PackedView& layout, const Problem& p) {
  std::vector<double> values;
  const int64_t rows = layout.capacity.rows;
  for (int64_t i = 0; i < rows * p.in_cols(); ++i)
    values.push_back(static_cast<double>(c.random(8)) / 4 - 1);
  return c.input_values({rows, p.in_cols()}, p.dtype, values);
}

void grad_case(Case& c, Pool2dGradArgs& args, const Problem& p, bool ties) {
  set_layouts(c, args, p);
  if (p.pooling == Pooling2d::greatest) {
    args.x = ties ? coarse_input(c, args.from, p) : c.rows_input(args.from, p.in_cols(), p.dtype);
  }
  args.dy = c.rows_input(args.to, p.out_cols(), p.dtype);
  args.dx = c.rows_output("dx", args.from, p.in_cols(), p.dtype, p.tolerance());
  c.work(0, static_cast<double>(args.x.bytes() + args.dy.bytes() + args.dx.bytes()));
}

}  // namespace

void pool2d_cases(Suite& suite) {
  const std::vector<int32_t> batches[] = {{}, {1}, {6, 6, 6}, {37, 18, 17, 5, 2, 1, 0}};
  struct Window {
    int32_t height, rows, columns;
  };
  int number = 0;
  for (Pooling2d pooling : {Pooling2d::greatest, Pooling2d::mean}) {
    const char* name = pooling == Pooling2d::greatest ? "greatest" : "mean";
    for (const auto& [dtype, w, channels] :
         every(f32_bf16, {Window{4, 2, 2}, Window{7, 3, 1}, Window{5, 1, 3}, Window{3, 2, 5}},
               {1, 7, 16, 33})) {
      // The ragged batch, and one of the others by turns; of these two, every other one with
      // whole windows alone.
      for (int b : {3, number++ % 3}) {
        const Problem p{pooling,
                        {channels, w.height, w.rows, w.columns},
                        dtype,
                        (number + b) % 2 == 0,
                        batches[b]};
        const std::string label = str(name, " ", w.rows, "x", w.columns, p.whole ? " whole/" : "/",
                                      name_of(dtype), "/batch ", b, "/", w.height, "x", channels);
        suite.add(label, forward_case, p);
        suite.add(label, grad_case, p, b % 2 != 0);
      }
    }
    const Problem p{pooling, {32, 48, 2, 2}, DType::f32, false, std::vector<int32_t>(8, 1043)};
    const std::string label = str(name, " 2x2/f32/8x48x1043x32");
    suite.add_bench(label, forward_case, p);
    suite.add_bench(label, grad_case, p, false);
  }
}

}  // namespace rondo::check
