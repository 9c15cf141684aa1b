#include "kernels/cast/cast.h"

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

// Ordinary values, and those where rounding goes wrong first.
TensorView cast_input(Case& c, DType dtype, int64_t n) {
  const double special[] = {
      infinity,    -infinity,      nan,        3.4e38,
      -0.0,        1e-40,          1 + 0x1p-8, 1 + 3 * 0x1p-8,  // ties of bf16
      1 + 0x1p-24, 1 + 3 * 0x1p-24                              // ties of f32
  };
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(c.random(4) == 0 ? special[c.random(10)] : c.random_real(-100, 100));
  }
  return c.input_values({n}, dtype, values);
}

void cast_case(Case& c, CastArgs& args, DType from, DType to, int64_t n) {
  args.x = cast_input(c, from, n);
  args.y = c.output("y", {n}, to, Tolerance::exact());
  c.work(0, static_cast<double>(args.x.bytes() + args.y.bytes()));
}

void fill_case(Case& c, FillArgs& args, DType dtype, int64_t rows, int64_t cols) {
  args.value = 7.3;
  args.row_count = c.live_rows(rows);
  args.y = c.in_out("y", {rows, cols}, dtype, Tolerance::exact());
  c.work(0, live_bytes(rows, cols, dtype));
}

template <class Args>
void linear_case(Case& c, Args& args, DType from, DType to, int64_t rows, int64_t cols,
                 float alpha) {
  args.alpha = alpha;
  args.row_count = c.live_rows(rows);
  args.x = c.input({rows, cols}, from);
  args.y = c.in_out("y", {rows, cols}, to, Tolerance::ulps(to, 2));
  // accumulate reads what it adds to.
  const double passes = std::is_same_v<Args, AccumulateArgs> ? 2 : 1;
  c.work(0, live_bytes(rows, cols, from) + passes * live_bytes(rows, cols, to));
}
constexpr auto accumulate_case = linear_case<AccumulateArgs>;
constexpr auto scale_case = linear_case<ScaleArgs>;

}  // namespace

void cast_cases(Suite& suite) {
  constexpr DType f32 = DType::f32, bf16 = DType::bf16, f64 = DType::f64;
  for (const auto& [from, to] : every({f32, bf16, f64}, {f32, bf16, f64})) {
    const std::string types = str(name_of(from), " to ", name_of(to), "/");
    for (int64_t n : {0, 1, 7, 31, 32, 33, 65, 40001})
      suite.add(str(types, n), cast_case, from, to, n);
    if (from == f64 || to == f64) continue;
    for (const auto& [rows, cols] : every({0, 1, 33}, {1, 7, 65, 1025})) {
      const std::string label = str(types, rows, "x", cols);
      suite.add(label, accumulate_case, from, to, rows, cols, rows == 33 ? -0.3f : 1.0f);
      suite.add(label, scale_case, from, to, rows, cols, -0.3f);
    }
  }
  for (const auto& [dtype, rows] :
       every({f32, bf16, f64, DType::i32, DType::i64, DType::u8}, {0, 1, 33}))
    suite.add(str(name_of(dtype), "/", rows, "x65"), fill_case, dtype, rows, 65);
  // More than a GPU's threads take in one turn.
  suite.add("f32 to f64/280001", cast_case, f32, f64, 280001);
  suite.add("u8/1x280000", fill_case, DType::u8, 1, 280000);
  suite.add("f32/1x1090001", accumulate_case, f32, f32, 1, 1090001, 0.5f);
  suite.add_bench("f32 to bf16/4194304", cast_case, f32, bf16, 4 << 20);
  suite.add_bench("bf16 to f32/4194304", cast_case, bf16, f32, 4 << 20);
  suite.add_bench("f32/4096x1024", accumulate_case, f32, f32, 4096, 1024, 1.0f);
  suite.add_bench("f32/4096x1024", scale_case, f32, f32, 4096, 1024, 0.5f);
  suite.add_bench("f32/4096x1024", fill_case, f32, 4096, 1024);
}

}  // namespace rondo::check
