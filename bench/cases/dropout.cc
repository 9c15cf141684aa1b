#include <utility>

#include "bench/cases/check/check.h"
#include "kernels/dropout/dropout.h"

namespace rondo::check {
namespace {

void dropout_case(Case& c, DType dtype, std::vector<int32_t> lengths, int64_t cols, double p,
                  bool pooled, int64_t channels = 0) {
  DropoutArgs args;
  args.layout = c.packed(std::move(lengths), pooled ? 0 : 3, pooled ? 2 : 0);
  args.p = p;
  args.channels = channels;
  args.layer = static_cast<uint32_t>(c.random(1000));
  args.step_seed = c.longs({static_cast<uint64_t>(c.random(INT64_MAX))});
  const Tolerance tolerance = Tolerance::exact();  // one rounding, the same everywhere
  if (pooled) {
    args.layout.row_frame = nullptr;
    args.x = args.y = c.in_out("y", {args.layout.capacity.sequences, cols}, dtype, tolerance);
  } else {
    args.x = c.rows_input(args.layout, cols, dtype);
    args.y = c.rows_output("y", args.layout, cols, dtype, tolerance);
  }
  c.work(0, static_cast<double>(args.x.bytes()) * 2);
  c.run(args);
}

}  // namespace

void dropout_cases(Suite& suite) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t cols : {1, 7, 16, 31, 32, 33, 64, 65, 127, 513}) {
      for (double p : {0.0, 0.3, 0.999}) {
        for (bool pooled : {false, true}) {
          suite.add<DropoutArgs>(str(pooled ? "pooled/" : "", name_of(dtype), "/", cols, "/p=", p),
                                 [=](Case& c) {
                                   dropout_case(c, dtype, {9, 7, 7, 1}, cols, p, pooled);
                                 });
        }
      }
    }
    for (int64_t channels : {1, 7, 16, 64, 65}) {
      for (bool pooled : {false, true}) {
        suite.add<DropoutArgs>(
            str(pooled ? "pooled/" : "", "channels/", name_of(dtype), "/6x", channels),
            [=](Case& c) {
              dropout_case(c, dtype, {9, 7, 7, 1}, 6 * channels, 0.3, pooled, channels);
            });
      }
    }
    suite.add<DropoutArgs>(str("empty/", name_of(dtype)),
                           [=](Case& c) { dropout_case(c, dtype, {}, 33, 0.5, false); });
  }
  for (int64_t cols : {40, 1024}) {
    suite.add_bench<DropoutArgs>(str("f32/4096x", cols), [=](Case& c) {
      dropout_case(c, DType::f32, std::vector<int32_t>(16, 256), cols, 0.2, false);
    });
  }
}

}  // namespace rondo::check
