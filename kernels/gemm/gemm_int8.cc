// The products of 8-bit integers on CPUs: one driver, the kernels of one instruction set each; and
// the reference.
#include <algorithm>
#include <vector>

#include "kernels/base/carver.h"
#include "kernels/base/cpu/packed_weights.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/gemm/gemm_impl.h"
#include "kernels/gemm/int8_ref.h"

namespace rondo {
namespace {

constexpr double work_per_thread = 1 << 20;  // multiply-adds worth waking a thread for

struct Int8Space {
  int8_t* rows;
  float* scales;
  void* packed;

  Int8Space(Carver& carver, const GemmArgs& g, const Int8Kernel& kernel)
      : rows(static_cast<int8_t*>(carver.take(g.m * int8_row_bytes(g.k), 1))),
        scales(carver.take<float>(g.m, sizeof(float))),
        packed(carver.take(static_cast<int64_t>(packed_bytes(g, kernel)), 1)) {}

  static size_t packed_bytes(const GemmArgs& g, const Int8Kernel& kernel) {
    return static_cast<size_t>(kernel.panels(columns(g))) * kernel.panel_bytes(g.k);
  }
  static Int8Matrix columns(const GemmArgs& g) {
    Int8Matrix m;
    m.w = static_cast<const float*>(g.b);
    m.columns = g.n, m.k = g.k;
    m.column_stride = g.transpose_b ? g.ldb : 1;
    m.k_stride = g.transpose_b ? 1 : g.ldb;
    return m;
  }
};

const void* pack_columns(const GemmArgs& g, const Int8Kernel& kernel, ThreadPool& pool,
                         void* workspace) {
  Int8Matrix m = Int8Space::columns(g);
  const auto pack = [&](void* to) {
    m.packed = to;
    pool.for_range(kernel.panels(m), 1,
                   [&](int64_t first, int64_t last) { kernel.pack(m, first, last); });
  };
  if (g.packed_b) {
    return g.packed_b->get(
        {reinterpret_cast<int64_t>(&kernel), g.n, g.k, m.column_stride, m.k_stride},
        Int8Space::packed_bytes(g, kernel), pack);
  }
  pack(workspace);
  return workspace;
}

}  // namespace

size_t gemm_int8_workspace(const GemmArgs& args, const Int8Kernel& kernel) {
  Carver carver(nullptr);
  Int8Space(carver, args, kernel);
  return carver.used();
}

void gemm_int8(const Context& context, const GemmArgs& g, const Int8Kernel& kernel) {
  const GemmExtent e = gemm_extent(g);
  if (e.m == 0 || e.n == 0) return;
  Carver carver(g.workspace.data);
  const Int8Space space(carver, g, kernel);
  RONDO_CHECK(g.workspace.bytes() >= carver.used(), "workspace of ", g.workspace.bytes(),
              " bytes, needs ", carver.used());
  ThreadPool& pool = *context.pool;
  Int8Product p;
  p.packed = pack_columns(g, kernel, pool, space.packed);
  const auto* a = static_cast<const float*>(g.a);
  pool.for_range(e.m, 1 + (64 << 10) / (e.k + 1), [&](int64_t first, int64_t last) {
    kernel.quantize(a + first * g.lda, g.lda, last - first, e.k,
                    space.rows + first * int8_row_bytes(e.k), space.scales + first);
  });
  p.rows = e.m, p.k = e.k, p.columns = e.n;
  p.a = space.rows, p.scales = space.scales;
  p.c = static_cast<float*>(g.c), p.ldc = g.ldc;
  p.bias = g.bias ? g.bias.as<float>() : nullptr;
  // Each thread has some of the panels, and all rows: panels are the larger part where rows are
  // few, and rows of integers are short.
  const int64_t panels = kernel.panels(Int8Space::columns(g));
  const double work =
      static_cast<double>(e.m) * static_cast<double>(e.k) * 4 * kernel.width;  // of a panel
  const auto grain = static_cast<int64_t>(work_per_thread / std::max(work, 1.0)) + 1;
  pool.for_range(panels, grain, [&](int64_t first, int64_t last) {
    Int8Product part = p;
    part.first_panel = first, part.last_panel = last;
    kernel.multiply(part);
  });
}

void gemm_int8_ref(const GemmArgs& g) {
  const GemmExtent e = gemm_extent(g);
  std::vector<Int8Row> columns;
  for (int64_t j = 0; j < e.n; ++j) {
    columns.emplace_back(static_cast<const float*>(g.b) + j * (g.transpose_b ? g.ldb : 1), e.k,
                         g.transpose_b ? 1 : g.ldb);
  }
  for (int64_t i = 0; i < e.m; ++i) {
    const Int8Row row(static_cast<const float*>(g.a) + i * g.lda, e.k);
    for (int64_t j = 0; j < e.n; ++j) {
      float value = row.times(columns[static_cast<size_t>(j)]);
      if (g.bias) value += g.bias.as<float>()[j];
      static_cast<float*>(g.c)[i * g.ldc + j] = value;
    }
  }
}

}  // namespace rondo
