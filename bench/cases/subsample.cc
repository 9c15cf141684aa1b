#include "kernels/subsample/subsample.h"

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

struct Window {
  int32_t stack, stride;
};

template <class Args>
void set_layouts(Case& c, Args& args, Window window, const std::vector<int32_t>& lengths) {
  args.stack = window.stack;
  args.stride = window.stride;
  c.set_layouts(args, lengths,
                [&](int32_t length) { return stacked_length(length, window.stride); });
}

void stack_case(Case& c, StackFramesArgs& args, Window window, DType dtype,
                const std::vector<int32_t>& lengths, int64_t cols) {
  set_layouts(c, args, window, lengths);
  args.x = c.rows_input(args.from, cols, dtype);
  args.y = c.rows_output("y", args.to, cols * window.stack, dtype, Tolerance::exact());
  c.work(0, static_cast<double>(args.x.bytes() + args.y.bytes()));
}

void grad_case(Case& c, StackFramesGradArgs& args, Window window, DType dtype,
               const std::vector<int32_t>& lengths, int64_t cols) {
  set_layouts(c, args, window, lengths);
  args.dy = c.rows_input(args.to, cols * window.stack, dtype);
  args.dx = c.rows_output("dx", args.from, cols, dtype, Tolerance::ulps(dtype, 4));
  c.work(0, static_cast<double>(args.dx.bytes() + args.dy.bytes()));
}

}  // namespace

void subsample_cases(Suite& suite) {
  const std::vector<int32_t> batches[] = {{}, {1}, {6, 6, 6}, {65, 33, 32, 31, 7, 2, 1, 0}};
  for (const auto& [window, dtype, batch, cols] :
       every({Window{1, 1}, Window{3, 3}, Window{1, 2}, Window{5, 2}, Window{2, 3}}, f32_bf16,
             {0, 1, 2, 3}, {1, 7, 31, 32, 33, 65})) {
    const std::string label = str("stack ", window.stack, " stride ", window.stride, "/",
                                  name_of(dtype), "/batch ", batch, "/", cols);
    suite.add(label, stack_case, window, dtype, batches[batch], cols);
    suite.add(label, grad_case, window, dtype, batches[batch], cols);
  }
  const std::vector<int32_t> even(16, 512);
  suite.add_bench("stack 3/f32/16x512x80", stack_case, {3, 3}, DType::f32, even, 80);
  suite.add_bench("stack 3/f32/16x512x80", grad_case, {3, 3}, DType::f32, even, 80);
}

}  // namespace rondo::check
