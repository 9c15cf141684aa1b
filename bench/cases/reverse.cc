#include "kernels/reverse/reverse.h"

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

void reverse_case(Case& c, DType dtype, int64_t cols, const std::vector<int32_t>& lengths) {
  ReverseFramesArgs args;
  args.layout = c.packed(lengths, 5, 1);
  args.x = c.rows_input(args.layout, cols, dtype);
  args.y = c.rows_output("y", args.layout, cols, dtype, Tolerance::exact());
  c.work(0, 2.0 * static_cast<double>(args.x.bytes()));
  c.run(args);
}

}  // namespace

void reverse_cases(Suite& suite) {
  const std::vector<std::vector<int32_t>> batches = {
      {}, {1}, {6, 6, 6}, {37, 18, 17, 5, 2, 1, 0}, {300, 299}};
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t cols : {1, 7, 24, 96, 1200}) {
      for (size_t batch = 0; batch < batches.size(); ++batch) {
        if (batch == 4 && cols > 100) continue;
        const std::vector<int32_t>& lengths = batches[batch];
        suite.add<ReverseFramesArgs>(str(name_of(dtype), "/batch ", batch, "/", cols),
                                     [=](Case& c) { reverse_case(c, dtype, cols, lengths); });
      }
    }
  }
  suite.add_bench<ReverseFramesArgs>("f32/8x261x200", [](Case& c) {
    reverse_case(c, DType::f32, 200, std::vector<int32_t>(8, 261));
  });
}

}  // namespace rondo::check
