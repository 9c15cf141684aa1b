// What the cases of checkop are given: large tensors, and what they weigh.
#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/cases/check/check.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/dispatch.h"
#include "kernels/cast/cast.h"
#include "tests/catch.h"

namespace rondo {
namespace {

struct OnCpu {
  ThreadPool pool{1};
  Stream stream = cpu_device().make_stream();
  Context context{Backend::cpu, &cpu_device(), &stream, &pool};
};

const float* numbers(const TensorView& view) { return static_cast<const float*>(view.data); }

TEST_CASE("a large input begins as a small one, and no two rows are alike") {
  OnCpu on;
  constexpr int64_t rows = 300, cols = 1024;
  check::Case small(on.context, 1, nullptr, 1), large(on.context, 1, nullptr, 1);
  const float* few = numbers(small.input({7, cols}, DType::f32));
  const float* all = numbers(large.input({rows, cols}, DType::f32));
  CHECK(std::equal(few, few + 7 * cols, all));
  for (int64_t i = 0; i < rows * cols; ++i) {
    if (!(all[i] >= -1 && all[i] < 1)) FAIL("number " << i << " is " << all[i]);
  }
  for (int64_t a = 0; a < rows; ++a) {
    for (int64_t b = 0; b < a; ++b) {
      if (std::equal(all + a * cols, all + (a + 1) * cols, all + b * cols)) FAIL(a << " = " << b);
    }
  }
  // What comes next is of the case's own sequence too.
  CHECK(small.random(1 << 30) != large.random(1 << 30));
}

TEST_CASE("planes of a large packed input have their rows, and NaN behind them") {
  OnCpu on;
  constexpr int64_t planes = 3, cols = 64;
  check::Case c(on.context, 1, nullptr, 1);
  const PackedView layout = c.packed(std::vector<int32_t>(20, 30), 50, 1);
  const int64_t rows = c.extent_rows(layout), capacity = layout.capacity.rows;
  REQUIRE(planes * rows * cols > 65521);
  const float* x = numbers(c.planes_input(planes, layout, cols, DType::f32));
  for (int64_t i = 0; i < planes * capacity * cols; ++i) {
    const bool live = i / cols % capacity < rows;
    if (live == std::isnan(x[i])) FAIL("number " << i << " is " << x[i]);
  }
  // An output is NaN all over.
  const float* y = numbers(c.planes_output("y", planes, layout, cols, DType::f32, {}));
  for (int64_t i = 0; i < planes * capacity * cols; ++i) {
    if (!std::isnan(y[i])) FAIL("output " << i << " is " << y[i]);
  }
}

TEST_CASE("of the variants of a case that are to be the chosen one, one is accepted") {
  OnCpu on;
  int accepted = 0, on_cpu = 0;
  for (const Variant& v : cast_variants()) {
    if (v.backend != Backend::cpu || (v.accepts && !v.accepts(on.context, nullptr))) continue;
    check::Case c(on.context, 1, &v, 1);
    c.only_if_chosen(cast_variants());
    CastArgs args;
    args.x = c.input({100}, DType::f32);
    args.y = c.output("y", {100}, DType::bf16, {});
    c.run(args);
    ++on_cpu;
    accepted += c.accepted() ? 1 : 0;
    CHECK(c.accepted() == (&v == &select_variant(on.context, "cast", &args)));
  }
  CHECK(on_cpu > 1);
  CHECK(accepted == 1);
}

TEST_CASE("a case that is only weighed takes no memory and runs nothing") {
  OnCpu on;
  check::Case c(on.context, 1, nullptr, 1);
  c.only_weigh();
  constexpr int64_t huge = int64_t{1} << 40;
  const TensorView x = c.input({huge}, DType::f32), y = c.output("y", {huge}, DType::bf16, {});
  CHECK(x.data != y.data);
  c.workspace(size_t{huge});  // never filled by the host
  const PackedView first = c.packed({3, 2}), second = c.packed({5});
  CHECK(c.extent_rows(first) == 5);
  CHECK(c.extent_rows(second) == 5);
  c.run(CastArgs{});
  CHECK(c.host_bytes() >= size_t{huge} * 6);
  CHECK(c.host_bytes() < size_t{huge} * 6 + 10000);
}

}  // namespace
}  // namespace rondo
