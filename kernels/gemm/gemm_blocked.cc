#include "kernels/gemm/gemm_blocked.h"

#include <algorithm>
#include <atomic>

#include "kernels/gemm/gemm_impl.h"

namespace rondo {
namespace {

constexpr int64_t l1_units = 256;             // steps of k whose b panel stays in a 48 KiB L1
constexpr int64_t a_block_floats = 96 << 10;  // 384 KiB: a block of a in L2
constexpr int64_t b_block_floats = 2 << 20;   // 8 MiB: the shared block of b in L3
constexpr double work_per_thread = 1 << 20;   // multiply-adds worth waking a thread for

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Sizes that depend on the capacity alone, so that the workspace can be planned.
struct Plan {
  int64_t units;  // steps of k per block, at most
  int64_t nc;     // columns of b packed at a time
  int64_t mc;     // rows of a packed at a time, at most
  size_t a_floats, b_floats;
};

Plan make_plan(const GemmArgs& g, const GemmKernel& kernel) {
  Plan p;
  const int64_t units = std::max<int64_t>(ceil_div(g.k, kernel.depth), 1);
  // A bf16 result is rounded once, so its sum over k may not be cut.
  p.units = g.c_dtype == DType::bf16 ? units : std::min(units, l1_units);
  const int64_t columns = round_up(std::max<int64_t>(g.n, 1), kernel.nr);
  p.nc = std::max<int64_t>(b_block_floats / p.units / kernel.nr, 1) * kernel.nr;
  p.nc = std::min(p.nc, columns);
  p.mc = std::max<int64_t>(a_block_floats / p.units / kernel.mr, 1) * kernel.mr;
  p.mc = std::min(p.mc, std::max<int64_t>(g.m, 1));
  p.a_floats = static_cast<size_t>(round_up(p.mc * p.units + gemm_slack, 16));
  p.b_floats = static_cast<size_t>(round_up(p.nc * p.units + gemm_slack, 16));
  return p;
}

struct Job {
  const GemmArgs& g;
  const GemmExtent& e;
  const GemmKernel& kernel;
  const Plan& plan;
  int workers;
  float* b_block;
  float* a_blocks;

  // The current block of k and of columns.
  int64_t k0 = 0, k_size = 0, col0 = 0, cols = 0;
  bool first = true;
  // How it is cut: m_blocks x n_blocks.
  int64_t m_blocks = 1, n_blocks = 1;

  int64_t elements(int64_t rows, int64_t columns, int64_t ld) const { return rows * ld + columns; }
  static const void* at(const void* x, int64_t element, DType t) {
    return static_cast<const char*>(x) + element * static_cast<int64_t>(size_of(t));
  }

  void cut() {
    m_blocks = ceil_div(e.m, plan.mc);
    n_blocks = 1;
    if (workers == 1) return;
    // Two blocks per thread or more, when they hold a few panels each.
    const int64_t wanted = std::max<int64_t>(m_blocks, 2 * workers);
    const int64_t most = std::max<int64_t>(e.m / (4 * kernel.mr), 1);
    m_blocks = std::max(m_blocks, std::min(wanted, most));
    if (m_blocks >= workers) {
      m_blocks = round_up(m_blocks, workers);
    } else {
      n_blocks = std::min(ceil_div(workers, m_blocks), ceil_div(cols, kernel.nr));
    }
  }

  void pack_b(int worker) const {
    const int64_t panels = ceil_div(cols, kernel.nr);
    const int64_t begin = panels * worker / workers * kernel.nr;
    const int64_t end = std::min(panels * (worker + 1) / workers * kernel.nr, cols);
    if (begin >= end) return;
    const int64_t units = ceil_div(k_size, kernel.depth), col = col0 + begin;
    GemmPack pack;
    pack.x = at(g.b, g.transpose_b ? col * g.ldb + k0 : k0 * g.ldb + col, g.dtype);
    pack.dtype = g.dtype;
    pack.ld = g.ldb;
    pack.k_contiguous = g.transpose_b;
    pack.count = end - begin;
    pack.k = k_size;
    pack.out = b_block + begin * units;
    kernel.pack_b(pack);
  }

  void multiply(int worker, int64_t index) const {
    const int64_t mb = index / n_blocks, nb = index % n_blocks;
    const int64_t row = e.m * mb / m_blocks, rows = e.m * (mb + 1) / m_blocks - row;
    const int64_t panels = ceil_div(cols, kernel.nr);
    const int64_t col = panels * nb / n_blocks * kernel.nr;
    const int64_t width = std::min(panels * (nb + 1) / n_blocks * kernel.nr, cols) - col;
    if (rows == 0 || width <= 0) return;
    GemmPack pack;
    pack.x = at(g.a, g.transpose_a ? k0 * g.lda + row : row * g.lda + k0, g.dtype);
    pack.dtype = g.dtype;
    pack.ld = g.lda;
    pack.k_contiguous = !g.transpose_a;
    pack.count = rows;
    pack.k = k_size;
    pack.out = a_blocks + static_cast<size_t>(worker) * plan.a_floats;
    kernel.pack_a(pack);
    GemmBlock block;
    block.m = rows, block.n = width, block.units = ceil_div(k_size, kernel.depth);
    block.a = pack.out;
    block.b = b_block + col * block.units;
    block.c = const_cast<void*>(at(g.c, row * g.ldc + col0 + col, g.c_dtype));
    block.ldc = g.ldc;
    block.c_dtype = g.c_dtype;
    block.alpha = g.alpha;
    block.beta = first ? g.beta : 1.0f;
    block.bias = first && g.bias ? g.bias.as<float>() + col0 + col : nullptr;
    kernel.multiply(block);
  }
};

}  // namespace

size_t gemm_blocked_workspace(const Context& context, const GemmArgs& args,
                              const GemmKernel& kernel) {
  const Plan p = make_plan(args, kernel);
  return (p.b_floats + p.a_floats * static_cast<size_t>(context.pool->size())) * sizeof(float);
}

void gemm_blocked(const Context& context, const GemmArgs& g, const GemmKernel& kernel) {
  GemmExtent e = gemm_extent(g);
  if (e.m == 0 || e.n == 0) return;
  if (g.alpha == 0) e.k = 0;
  const Plan plan = make_plan(g, kernel);
  RONDO_CHECK(g.workspace.bytes() >= gemm_blocked_workspace(context, g, kernel), "workspace of ",
              g.workspace.bytes(), " bytes, needs ", gemm_blocked_workspace(context, g, kernel));
  const double work =
      static_cast<double>(e.m) * static_cast<double>(e.n) * static_cast<double>(e.k);
  const int workers = static_cast<int>(
      std::clamp(work / work_per_thread, 1.0, static_cast<double>(context.pool->size())));
  float* memory = static_cast<float*>(g.workspace.data);
  Job job{g, e, kernel, plan, workers, memory, memory + plan.b_floats};

  // Blocks of k of equal size; with k == 0 one empty block still scales c.
  const int64_t units = ceil_div(e.k, kernel.depth);
  const int64_t k_blocks = std::max<int64_t>(ceil_div(units, plan.units), 1);
  SpinBarrier barrier(workers);
  std::atomic<int64_t> next{0};
  context.pool->run(
      [&](int worker) {
        for (int64_t col = 0; col < e.n; col += plan.nc) {
          for (int64_t kb = 0; kb < k_blocks; ++kb) {
            const int64_t u0 = units * kb / k_blocks, u1 = units * (kb + 1) / k_blocks;
            if (worker == 0) {
              job.k0 = u0 * kernel.depth;
              job.k_size = std::min(u1 * kernel.depth, e.k) - job.k0;
              job.col0 = col;
              job.cols = std::min(plan.nc, e.n - col);
              job.first = kb == 0;
              job.cut();
              next.store(0, std::memory_order_relaxed);
            }
            if (workers > 1) barrier.arrive_and_wait();
            job.pack_b(worker);
            if (workers > 1) barrier.arrive_and_wait();
            const int64_t count = job.m_blocks * job.n_blocks;
            for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
              job.multiply(worker, i);
            }
            if (workers > 1) barrier.arrive_and_wait();
          }
        }
      },
      workers);
}

}  // namespace rondo
