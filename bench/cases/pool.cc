#include "kernels/pool/pool.h"
#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

void pool_case(Case& c, Pooling pooling, DType dtype, const std::vector<int32_t>& lengths,
               int64_t cols) {
  PoolArgs args;
  args.pooling = pooling;
  args.layout = c.packed(lengths, 5, 2);
  args.x = c.rows_input(args.layout, cols, dtype);
  args.y = c.output("y", {args.layout.capacity.sequences, cols}, dtype, Tolerance::ulps(dtype, 8));
  const size_t read = pooling == Pooling::mean ? args.x.bytes() : args.y.bytes();
  c.work(0, static_cast<double>(read + args.y.bytes()));
  c.run(args);
}

void pool_grad_case(Case& c, Pooling pooling, DType dtype, const std::vector<int32_t>& lengths,
                    int64_t cols) {
  PoolGradArgs args;
  args.pooling = pooling;
  args.layout = c.packed(lengths, 5, 2);
  args.dy = c.input({args.layout.capacity.sequences, cols}, dtype);
  args.dx = c.rows_output("dx", args.layout, cols, dtype, Tolerance::ulps(dtype, 4));
  c.work(0, static_cast<double>(args.dx.bytes()));
  c.run(args);
}

}  // namespace

void pool_cases(Suite& suite) {
  const std::vector<std::vector<int32_t>> batches = {
      {}, {1}, {7, 7, 7}, {65, 33, 32, 31, 1, 0}, {1100, 513}, {0, 0}};
  for (Pooling pooling : {Pooling::last, Pooling::mean}) {
    const char* name = pooling == Pooling::last ? "last" : "mean";
    for (DType dtype : {DType::f32, DType::bf16}) {
      for (size_t b = 0; b < batches.size(); ++b) {
        for (int64_t cols : {1, 7, 31, 32, 33, 65, 129, 300}) {
          const std::string label = str(name, "/", name_of(dtype), "/batch ", b, "/", cols);
          const std::vector<int32_t> lengths = batches[b];
          suite.add<PoolArgs>(label, [=](Case& c) { pool_case(c, pooling, dtype, lengths, cols); });
          suite.add<PoolGradArgs>(
              label, [=](Case& c) { pool_grad_case(c, pooling, dtype, lengths, cols); });
        }
      }
    }
    const std::vector<int32_t> even(16, 256);
    suite.add_bench<PoolArgs>(str(name, "/f32/16x256x512"),
                              [=](Case& c) { pool_case(c, pooling, DType::f32, even, 512); });
    suite.add_bench<PoolGradArgs>(str(name, "/f32/16x256x512"), [=](Case& c) {
      pool_grad_case(c, pooling, DType::f32, even, 512);
    });
  }
}

}  // namespace rondo::check
