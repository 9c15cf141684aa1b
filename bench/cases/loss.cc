#include "kernels/loss/loss.h"

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

// Every combination of absent arguments comes up over the sweep.
struct Presence {
  bool scaled, with_grad;
};

void cross_entropy_case(Case& c, CrossEntropyArgs& args, DType dtype, int64_t rows, int64_t classes,
                        Presence present) {
  args.row_count = c.live_rows(rows);
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r) {
    targets.push_back(static_cast<int32_t>(c.random(classes + 1)) - 1);
  }
  args.targets = c.ints(targets);
  if (present.scaled) args.grad_scale = c.input({rows}, DType::f32);
  args.loss = c.in_out("loss", {rows}, DType::f32, Tolerance::ulps(DType::f32, 32));
  const Fill logits = {Fill::uniform, -10, 10};
  if (present.with_grad) {
    args.logits = args.grad =
        c.in_out("grad", {rows, classes}, dtype, Tolerance::ulps(dtype, 8), logits);
  } else {
    args.logits = c.input({rows, classes}, dtype, logits);
  }
  c.work(0, (present.with_grad ? 2.0 : 1.0) * live_bytes(rows, classes, dtype));
}

// An ignored row of NaN, targets out of range, NaN beside finite rows, a target of probability 0.
void special_rows(Case& c, CrossEntropyArgs& args) {
  args.logits = c.input_values({6, 3}, DType::f32,
                               {nan, nan, infinity, 1, 2, 3, 1, 2, 3,  //
                                1, nan, 2, 1, 2, 3, -infinity, 2, 3});
  args.targets = c.ints({-1, 3, -2, 0, 1, 0});
  args.loss = c.output("loss", {6}, DType::f32, Tolerance::ulps(DType::f32, 8));
  args.grad = c.output("grad", {6, 3}, DType::f32, Tolerance::ulps(DType::f32, 8));
}

void mse_case(Case& c, MseArgs& args, DType dtype, int64_t rows, int64_t cols,
              MseReduction reduction, Presence present) {
  args.reduction = reduction;
  args.row_count = c.live_rows(rows);
  args.target = c.input({rows, cols}, dtype);
  if (present.scaled) args.grad_scale = c.input({rows}, DType::f32);
  args.loss = c.in_out("loss", {rows}, DType::f32, Tolerance::ulps(DType::f32, 64));
  if (present.with_grad) {
    args.pred = args.grad = c.in_out("grad", {rows, cols}, dtype, Tolerance::ulps(dtype, 4));
  } else {
    args.pred = c.input({rows, cols}, dtype);
  }
  c.work(0, (present.with_grad ? 3.0 : 2.0) * live_bytes(rows, cols, dtype));
}

}  // namespace

void loss_cases(Suite& suite) {
  int i = 0;
  for (const auto& [dtype, rows, cols] :
       every(f32_bf16, {0, 1, 9, 33, 65}, {1, 7, 31, 32, 33, 65, 513, 1101, 1200})) {
    if (rows > 9 && cols > 1000) continue;
    const std::string label = str(name_of(dtype), "/", rows, "x", cols);
    const Presence present = {i % 2 == 0, i % 5 != 0};
    ++i;
    suite.add(label, cross_entropy_case, dtype, rows, cols, present);
    suite.add("mean/" + label, mse_case, dtype, rows, cols, MseReduction::mean, present);
    suite.add("sum/" + label, mse_case, dtype, rows, cols, MseReduction::sum, present);
  }
  suite.add("special values", special_rows);
  const Presence with_grad = {false, true};
  suite.add("no columns", mse_case, DType::f32, 3, 0, MseReduction::mean, with_grad);
  suite.add_bench("f32/1024x5000", cross_entropy_case, DType::f32, 1024, 5000, with_grad);
  suite.add_bench("f32/4096x1024", mse_case, DType::f32, 4096, 1024, MseReduction::mean, with_grad);
}

}  // namespace rondo::check
