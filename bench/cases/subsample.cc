#include "kernels/subsample/subsample.h"
#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

struct Window {
  int32_t stack, stride;
};

template <class Args>
Args with_layouts(Case& c, Window window, const std::vector<int32_t>& lengths) {
  Args args;
  args.stack = window.stack;
  args.stride = window.stride;
  std::vector<int32_t> shorter;
  for (int32_t length : lengths) shorter.push_back(stacked_length(length, window.stride));
  args.from = c.packed(lengths, 5, 1);
  args.to = c.packed(shorter, 3, 1);
  return args;
}

void stack_case(Case& c, Window window, DType dtype, const std::vector<int32_t>& lengths,
                int64_t cols) {
  auto args = with_layouts<StackFramesArgs>(c, window, lengths);
  args.x = c.rows_input(args.from, cols, dtype);
  args.y = c.rows_output("y", args.to, cols * window.stack, dtype, Tolerance::exact());
  c.work(0, static_cast<double>(args.x.bytes() + args.y.bytes()));
  c.run(args);
}

void grad_case(Case& c, Window window, DType dtype, const std::vector<int32_t>& lengths,
               int64_t cols) {
  auto args = with_layouts<StackFramesGradArgs>(c, window, lengths);
  args.dy = c.rows_input(args.to, cols * window.stack, dtype);
  args.dx = c.rows_output("dx", args.from, cols, dtype, Tolerance::ulps(dtype, 4));
  c.work(0, static_cast<double>(args.dx.bytes() + args.dy.bytes()));
  c.run(args);
}

}  // namespace

void subsample_cases(Suite& suite) {
  const std::vector<std::vector<int32_t>> batches = {
      {}, {1}, {6, 6, 6}, {65, 33, 32, 31, 7, 2, 1, 0}};
  for (Window window : {Window{1, 1}, Window{3, 3}, Window{1, 2}, Window{5, 2}, Window{2, 3}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      for (size_t b = 0; b < batches.size(); ++b) {
        for (int64_t cols : {1, 7, 31, 32, 33, 65}) {
          const std::string label = str("stack ", window.stack, " stride ", window.stride, "/",
                                        name_of(dtype), "/batch ", b, "/", cols);
          const std::vector<int32_t> lengths = batches[b];
          suite.add<StackFramesArgs>(label,
                                     [=](Case& c) { stack_case(c, window, dtype, lengths, cols); });
          suite.add<StackFramesGradArgs>(
              label, [=](Case& c) { grad_case(c, window, dtype, lengths, cols); });
        }
      }
    }
  }
  const std::vector<int32_t> even(16, 512);
  suite.add_bench<StackFramesArgs>("stack 3/f32/16x512x80", [=](Case& c) {
    stack_case(c, {3, 3}, DType::f32, even, 80);
  });
  suite.add_bench<StackFramesGradArgs>("stack 3/f32/16x512x80", [=](Case& c) {
    grad_case(c, {3, 3}, DType::f32, even, 80);
  });
}

}  // namespace rondo::check
