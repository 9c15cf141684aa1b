#include "kernels/pool/pool.h"
#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

void pool_case(Case& c, PoolArgs& args, Pooling pooling, DType dtype,
               const std::vector<int32_t>& lengths, int64_t cols) {
  args.pooling = pooling;
  args.layout = c.packed(lengths, 5, 2);
  args.x = c.rows_input(args.layout, cols, dtype);
  args.y = c.output("y", {args.layout.capacity.sequences, cols}, dtype, Tolerance::ulps(dtype, 8));
  const size_t read = pooling == Pooling::mean ? args.x.bytes() : args.y.bytes();
  c.work(0, static_cast<double>(read + args.y.bytes()));
}

void pool_grad_case(Case& c, PoolGradArgs& args, Pooling pooling, DType dtype,
                    const std::vector<int32_t>& lengths, int64_t cols) {
  args.pooling = pooling;
  args.layout = c.packed(lengths, 5, 2);
  args.dy = c.input({args.layout.capacity.sequences, cols}, dtype);
  args.dx = c.rows_output("dx", args.layout, cols, dtype, Tolerance::ulps(dtype, 4));
  c.work(0, static_cast<double>(args.dx.bytes()));
}

}  // namespace

void pool_cases(Suite& suite) {
  const std::vector<int32_t> batches[] = {{},          {1},   {7, 7, 7}, {65, 33, 32, 31, 1, 0},
                                          {1100, 513}, {0, 0}};
  for (Pooling pooling : {Pooling::last, Pooling::mean}) {
    const char* name = pooling == Pooling::last ? "last" : "mean";
    for (const auto& [dtype, batch, cols] :
         every(f32_bf16, {0, 1, 2, 3, 4, 5}, {1, 7, 31, 32, 33, 65, 129, 300})) {
      const std::string label = str(name, "/", name_of(dtype), "/batch ", batch, "/", cols);
      suite.add(label, pool_case, pooling, dtype, batches[batch], cols);
      suite.add(label, pool_grad_case, pooling, dtype, batches[batch], cols);
    }
    const std::vector<int32_t> even(16, 256);
    const std::string label = str(name, "/f32/16x256x512");
    suite.add_bench(label, pool_case, pooling, DType::f32, even, 512);
    suite.add_bench(label, pool_grad_case, pooling, DType::f32, even, 512);
  }
}

}  // namespace rondo::check
