#include <limits>

#include "bench/cases/check/check.h"
#include "kernels/loss/loss.h"

namespace rondo::check {
namespace {

// Every combination of absent arguments comes up over the sweep.
struct Presence {
  bool scaled, with_grad;
};

void cross_entropy_case(Case& c, DType dtype, int64_t rows, int64_t classes, Presence present) {
  CrossEntropyArgs args;
  args.row_count = c.ints({static_cast<int32_t>(rows - rows / 8)});
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
  c.run(args);
}

// An ignored row of NaN, targets out of range, NaN beside finite rows, a target of probability 0.
void special_rows(Case& c) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  CrossEntropyArgs args;
  args.logits = c.input_values({6, 3}, DType::f32,
                               {nan, nan, inf, 1, 2, 3, 1, 2, 3,  //
                                1, nan, 2, 1, 2, 3, -inf, 2, 3});
  args.targets = c.ints({-1, 3, -2, 0, 1, 0});
  args.loss = c.output("loss", {6}, DType::f32, Tolerance::ulps(DType::f32, 8));
  args.grad = c.output("grad", {6, 3}, DType::f32, Tolerance::ulps(DType::f32, 8));
  c.run(args);
}

void mse_case(Case& c, DType dtype, int64_t rows, int64_t cols, MseReduction reduction,
              Presence present) {
  MseArgs args;
  args.reduction = reduction;
  args.row_count = c.ints({static_cast<int32_t>(rows - rows / 8)});
  args.target = c.input({rows, cols}, dtype);
  if (present.scaled) args.grad_scale = c.input({rows}, DType::f32);
  args.loss = c.in_out("loss", {rows}, DType::f32, Tolerance::ulps(DType::f32, 64));
  if (present.with_grad) {
    args.pred = args.grad = c.in_out("grad", {rows, cols}, dtype, Tolerance::ulps(dtype, 4));
  } else {
    args.pred = c.input({rows, cols}, dtype);
  }
  c.work(0, (present.with_grad ? 3.0 : 2.0) * live_bytes(rows, cols, dtype));
  c.run(args);
}

}  // namespace

void loss_cases(Suite& suite) {
  int i = 0;
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t rows : {0, 1, 9, 33, 65}) {
      for (int64_t cols : {1, 7, 31, 32, 33, 65, 513, 1101, 1200}) {
        if (rows > 9 && cols > 1000) continue;
        const std::string label = str(name_of(dtype), "/", rows, "x", cols);
        const Presence present = {i % 2 == 0, i % 5 != 0};
        ++i;
        suite.add<CrossEntropyArgs>(
            label, [=](Case& c) { cross_entropy_case(c, dtype, rows, cols, present); });
        for (MseReduction reduction : {MseReduction::mean, MseReduction::sum}) {
          suite.add<MseArgs>(str(reduction == MseReduction::mean ? "mean/" : "sum/", label),
                             [=](Case& c) { mse_case(c, dtype, rows, cols, reduction, present); });
        }
      }
    }
  }
  suite.add<CrossEntropyArgs>("special values", special_rows);
  suite.add<MseArgs>("no columns", [](Case& c) {
    mse_case(c, DType::f32, 3, 0, MseReduction::mean, {false, true});
  });
  suite.add_bench<CrossEntropyArgs>("f32/1024x5000", [](Case& c) {
    cross_entropy_case(c, DType::f32, 1024, 5000, {false, true});
  });
  suite.add_bench<MseArgs>("f32/4096x1024", [](Case& c) {
    mse_case(c, DType::f32, 4096, 1024, MseReduction::mean, {false, true});
  });
}

}  // namespace rondo::check
