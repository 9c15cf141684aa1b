// What checkop cannot see of gemm: broken contracts, non-finite values.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/gemm/gemm.h"
#include "tests/catch.h"

namespace {

using namespace rondo;

// A square product whose matrices it owns.
struct Product {
  Context context;
  GemmArgs args;
  std::vector<double> memory;  // a, b, c one after the other
  std::vector<uint8_t> workspace;
  int64_t size;

  Product(ThreadPool& pool, int64_t n, DType dtype = DType::f32)
      : memory(static_cast<size_t>(3 * n * n)), size(n) {
    context = {Backend::cpu, &cpu_device(), nullptr, &pool};
    args.m = args.n = args.k = args.lda = args.ldb = args.ldc = n;
    args.dtype = args.c_dtype = dtype;
    args.a = memory.data();
    args.b = memory.data() + n * n;
    args.c = memory.data() + 2 * n * n;
    for (int64_t i = 0; i < 2 * n * n; ++i) {
      put(i < n * n ? const_cast<void*>(args.a) : const_cast<void*>(args.b), i % (n * n), 0.5);
    }
    workspace.resize(gemm_workspace_bytes(context, args));
    args.workspace =
        TensorView(workspace.data(), DType::u8, {static_cast<int64_t>(workspace.size())});
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void put(void* matrix, int64_t i, double value) {
    if (args.dtype == DType::f64) {
      static_cast<double*>(matrix)[i] = value;
    } else {
      static_cast<float*>(matrix)[i] = static_cast<float>(value);
    }
  }
  float c(int64_t row, int64_t col) const {
    return static_cast<const float*>(args.c)[row * size + col];
  }
};

std::vector<const Variant*> usable_variants(const Product& p) {
  std::vector<const Variant*> list;
  for (const Variant& v : gemm_variants()) {
    const bool cpu = v.backend == Backend::ref || v.backend == Backend::cpu;
    if (cpu && (v.accepts == nullptr || v.accepts(p.context, &p.args))) list.push_back(&v);
  }
  return list;
}

}  // namespace

TEST_CASE("NaN and infinity reach exactly the elements they belong to") {
  ThreadPool pool(2);
  Product p(pool, 40);
  p.put(const_cast<void*>(p.args.a), 3 * 40 + 39, NAN);
  p.put(const_cast<void*>(p.args.b), 39 * 40 + 7, INFINITY);
  for (const Variant* v : usable_variants(p)) {
    INFO(v->name);
    v->run(p.context, &p.args);
    int wrong = 0;
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t j = 0; j < 40; ++j) {
        const float got = p.c(i, j);
        if (i == 3) {
          wrong += !std::isnan(got);
        } else if (j == 7) {
          wrong += got != std::numeric_limits<float>::infinity();
        } else {
          wrong += got != 10.0f;
        }
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a row has the same bits alone as among others") {
  ThreadPool pool(2);
  constexpr int64_t n = 300;  // more than one block of k
  Product p(pool, n);
  uint32_t state = 1;
  for (int64_t i = 0; i < n * n; ++i) {
    for (const void* matrix : {p.args.a, p.args.b}) {
      state = state * 1664525u + 1013904223u;
      p.put(const_cast<void*>(matrix), i, static_cast<double>(state >> 8) * 0x1p-24 - 0.5);
    }
  }
  for (const Variant* v : usable_variants(p)) {
    INFO(v->name);
    p.args.m = n;
    v->run(p.context, &p.args);
    const float* c = static_cast<const float*>(p.args.c);
    const std::vector<float> whole(c, c + n * n);
    const void* a = p.args.a;
    for (int64_t row : {0, 1, 150, 299}) {
      p.args.a = static_cast<const float*>(a) + row * n;
      p.args.m = 1;
      v->run(p.context, &p.args);
      CHECK(std::memcmp(c, whole.data() + row * n, n * sizeof(float)) == 0);
    }
    p.args.a = a;
  }
}

TEST_CASE("broken contracts are named") {
  ThreadPool pool(1);
  Product p(pool, 20);
  SECTION("a leading dimension that is too small") { p.args.ldb = 19; }
  SECTION("an output type that the inputs cannot give") { p.args.c_dtype = DType::bf16; }
  SECTION("more rows than the capacity") {
    static const int32_t rows = 21;
    p.args.row_count = &rows;
  }
  SECTION("a bias of the wrong length") {
    p.args.bias = TensorView(p.memory.data(), DType::f32, {19});
  }
  for (const Variant* v : usable_variants(p)) {
    INFO(v->name);
    CHECK_THROWS_AS(v->run(p.context, &p.args), Error);
  }
}

TEST_CASE("a workspace that is too small is refused") {
  ThreadPool pool(1);
  Product p(pool, 20);
  p.args.workspace.dims[0] -= 1;
  int refused = 0;
  for (const Variant* v : usable_variants(p)) {
    if (std::strcmp(v->name, "generic") == 0 || std::strncmp(v->name, "avx", 3) == 0) {
      try {
        v->run(p.context, &p.args);
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  CHECK(refused > 0);  // the variant that needs most
}

TEST_CASE("a row that is not finite gives no finite result with 8 bits", "[gemm]") {
  ThreadPool pool(2);
  constexpr int64_t n = 9;
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Product p(pool, n);
    p.args.int8 = true;
    p.workspace.resize(gemm_workspace_bytes(p.context, p.args));
    p.args.workspace =
        TensorView(p.workspace.data(), DType::u8, {static_cast<int64_t>(p.workspace.size())});
    p.put(const_cast<void*>(p.args.a), 2 * n + 3, bad);  // in row 2
    for (const Variant* v : usable_variants(p)) {
      INFO(v->name << ", " << bad);
      v->run(p.context, &p.args);
      for (int64_t col = 0; col < n; ++col) {
        CHECK(!std::isfinite(p.c(2, col)));
        CHECK(std::abs(p.c(1, col) - 0.25f * n) < 1e-5f);
      }
    }
  }
}

TEST_CASE("what gemm with 8 bits does not do is refused", "[gemm]") {
  ThreadPool pool(1);
  const auto refuses = [&](auto change) {
    Product p(pool, 4);
    p.args.int8 = true;
    change(p.args);
    CHECK_THROWS_WITH(run(p.context, p.args), Catch::Contains("gemm of 8 bits"));
  };
  refuses([](GemmArgs& g) { g.alpha = 2; });
  refuses([](GemmArgs& g) { g.beta = 1; });
  refuses([](GemmArgs& g) { g.transpose_a = true; });
  refuses([](GemmArgs& g) { g.k = g.lda = 65537; });
}
