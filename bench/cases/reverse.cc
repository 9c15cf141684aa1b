#include "kernels/reverse/reverse.h"

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

void reverse_case(Case& c, ReverseFramesArgs& args, DType dtype, int64_t cols,
                  const std::vector<int32_t>& lengths) {
  args.layout = c.packed(lengths, 5, 1);
  args.x = c.rows_input(args.layout, cols, dtype);
  args.y = c.rows_output("y", args.layout, cols, dtype, Tolerance::exact());
  c.work(0, 2.0 * static_cast<double>(args.x.bytes()));
}

}  // namespace

void reverse_cases(Suite& suite) {
  const std::vector<int32_t> batches[] = {{}, {1}, {6, 6, 6}, {37, 18, 17, 5, 2, 1, 0}, {300, 299}};
  for (const auto& [dtype, cols, batch] : every(f32_bf16, {1, 7, 24, 96, 1200}, {0, 1, 2, 3, 4})) {
    if (batch == 4 && cols > 100) continue;
    suite.add(str(name_of(dtype), "/batch ", batch, "/", cols), reverse_case, dtype, cols,
              batches[batch]);
  }
  suite.add_bench("f32/8x261x200", reverse_case, DType::f32, 200, std::vector<int32_t>(8, 261));
}

}  // namespace rondo::check
