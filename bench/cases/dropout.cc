#include "kernels/dropout/dropout.h"

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

struct Shape {
  DType dtype = DType::f32;
  int64_t cols = 33;
  double p = 0.3;
  bool pooled = false;
  int64_t channels = 0;
  std::vector<int32_t> lengths = {9, 7, 7, 1};
};

void dropout_case(Case& c, DropoutArgs& args, const Shape& s) {
  args.layout = c.packed(s.lengths, s.pooled ? 0 : 3, s.pooled ? 2 : 0);
  args.p = s.p;
  args.channels = s.channels;
  args.layer = static_cast<uint32_t>(c.random(1000));
  args.step_seed = c.longs({static_cast<uint64_t>(c.random(INT64_MAX))});
  const Tolerance tolerance = Tolerance::exact();  // one rounding, the same everywhere
  if (s.pooled) {
    args.layout.row_frame = nullptr;
    args.x = args.y = c.in_out("y", {args.layout.capacity.sequences, s.cols}, s.dtype, tolerance);
  } else {
    args.x = c.rows_input(args.layout, s.cols, s.dtype);
    args.y = c.rows_output("y", args.layout, s.cols, s.dtype, tolerance);
  }
  c.work(0, static_cast<double>(args.x.bytes()) * 2);
}

}  // namespace

void dropout_cases(Suite& suite) {
  for (DType dtype : f32_bf16) {
    for (const auto& [cols, p, pooled] :
         every({1, 7, 16, 31, 32, 33, 64, 65, 127, 513}, {0.0, 0.3, 0.999}, {false, true}))
      suite.add(str(pooled ? "pooled/" : "", name_of(dtype), "/", cols, "/p=", p), dropout_case,
                {.dtype = dtype, .cols = cols, .p = p, .pooled = pooled});
    for (const auto& [channels, pooled] : every({1, 7, 16, 64, 65}, {false, true}))
      suite.add(str(pooled ? "pooled/" : "", "channels/", name_of(dtype), "/6x", channels),
                dropout_case,
                {.dtype = dtype, .cols = 6 * channels, .pooled = pooled, .channels = channels});
    suite.add(str("empty/", name_of(dtype)), dropout_case,
              {.dtype = dtype, .p = 0.5, .lengths = {}});
  }
  for (int64_t cols : {40, 1024})
    suite.add_bench(str("f32/4096x", cols), dropout_case,
                    {.cols = cols, .p = 0.2, .lengths = std::vector<int32_t>(16, 256)});
}

}  // namespace rondo::check
