#include <limits>

#include "bench/cases/check/check.h"
#include "kernels/cast/cast.h"

namespace rondo::check {
namespace {

constexpr DType floats[] = {DType::f32, DType::bf16, DType::f64};

// Ordinary values, and those where rounding goes wrong first.
TensorView cast_input(Case& c, DType dtype, int64_t n) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double special[] = {
      inf,         -inf,           std::numeric_limits<double>::quiet_NaN(), 3.4e38, -0.0, 1e-40,
      1 + 0x1p-8,  1 + 3 * 0x1p-8,  // ties of bf16
      1 + 0x1p-24, 1 + 3 * 0x1p-24  // ties of f32
  };
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(c.random(4) == 0 ? special[c.random(10)] : c.random_real(-100, 100));
  }
  return c.input_values({n}, dtype, values);
}

void cast_case(Case& c, DType from, DType to, int64_t n) {
  CastArgs args;
  args.x = cast_input(c, from, n);
  args.y = c.output("y", {n}, to, Tolerance::exact());
  c.work(0, static_cast<double>(args.x.bytes() + args.y.bytes()));
  c.run(args);
}

void fill_case(Case& c, DType dtype, int64_t rows, int64_t cols) {
  FillArgs args;
  args.value = 7.3;
  args.row_count = c.ints({static_cast<int32_t>(rows - rows / 8)});
  args.y = c.in_out("y", {rows, cols}, dtype, Tolerance::exact());
  c.work(0, live_bytes(rows, cols, dtype));
  c.run(args);
}

template <class Args>
void linear_case(Case& c, DType from, DType to, int64_t rows, int64_t cols, float alpha) {
  Args args;
  args.alpha = alpha;
  args.row_count = c.ints({static_cast<int32_t>(rows - rows / 8)});
  args.x = c.input({rows, cols}, from);
  args.y = c.in_out("y", {rows, cols}, to, Tolerance::ulps(to, 2));
  // accumulate reads what it adds to.
  const double passes = std::is_same_v<Args, AccumulateArgs> ? 2 : 1;
  c.work(0, live_bytes(rows, cols, from) + passes * live_bytes(rows, cols, to));
  c.run(args);
}

}  // namespace

void cast_cases(Suite& suite) {
  for (DType from : floats) {
    for (DType to : floats) {
      const std::string types = str(name_of(from), " to ", name_of(to), "/");
      for (int64_t n : {0, 1, 7, 31, 32, 33, 65, 40001}) {
        suite.add<CastArgs>(str(types, n), [=](Case& c) { cast_case(c, from, to, n); });
      }
      if (from == DType::f64 || to == DType::f64) continue;
      for (int64_t rows : {0, 1, 33}) {
        for (int64_t cols : {1, 7, 65, 1025}) {
          const std::string label = str(types, rows, "x", cols);
          suite.add<AccumulateArgs>(label, [=](Case& c) {
            linear_case<AccumulateArgs>(c, from, to, rows, cols, rows == 33 ? -0.3f : 1.0f);
          });
          suite.add<ScaleArgs>(
              label, [=](Case& c) { linear_case<ScaleArgs>(c, from, to, rows, cols, -0.3f); });
        }
      }
    }
  }
  for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    for (int64_t rows : {0, 1, 33}) {
      suite.add<FillArgs>(str(name_of(dtype), "/", rows, "x65"),
                          [=](Case& c) { fill_case(c, dtype, rows, 65); });
    }
  }
  // More than a GPU's threads take in one turn.
  suite.add<CastArgs>("f32 to f64/280001",
                      [](Case& c) { cast_case(c, DType::f32, DType::f64, 280001); });
  suite.add<FillArgs>("u8/1x280000", [](Case& c) { fill_case(c, DType::u8, 1, 280000); });
  suite.add<AccumulateArgs>("f32/1x1090001", [](Case& c) {
    linear_case<AccumulateArgs>(c, DType::f32, DType::f32, 1, 1090001, 0.5f);
  });
  suite.add_bench<CastArgs>("f32 to bf16/4194304",
                            [](Case& c) { cast_case(c, DType::f32, DType::bf16, 4 << 20); });
  suite.add_bench<CastArgs>("bf16 to f32/4194304",
                            [](Case& c) { cast_case(c, DType::bf16, DType::f32, 4 << 20); });
  suite.add_bench<AccumulateArgs>("f32/4096x1024", [](Case& c) {
    linear_case<AccumulateArgs>(c, DType::f32, DType::f32, 4096, 1024, 1);
  });
  suite.add_bench<ScaleArgs>("f32/4096x1024", [](Case& c) {
    linear_case<ScaleArgs>(c, DType::f32, DType::f32, 4096, 1024, 0.5f);
  });
  suite.add_bench<FillArgs>("f32/4096x1024", [](Case& c) { fill_case(c, DType::f32, 4096, 1024); });
}

}  // namespace rondo::check
