#include "kernels/gemm/gemm_blocked.h"

#include <algorithm>
#include <atomic>

#include "kernels/base/arithmetic.h"
#include "kernels/base/cpu/packed_weights.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/gemm/gemm_impl.h"

namespace rondo {
namespace {

constexpr int64_t l1_units = 256;             // steps of k whose b panel stays in a 48 KiB L1
constexpr int64_t a_block_floats = 96 << 10;  // 384 KiB: a block of a in L2
constexpr int64_t b_block_floats = 2 << 20;   // 8 MiB: the shared block of b in L3
constexpr double work_per_thread = 1 << 20;   // multiply-adds worth waking a thread for
constexpr int64_t private_floats = 8 << 20;   // 32 MiB: for a block of b per thread

// Sizes that depend on the capacity alone, so that the workspace can be laid out.
struct Blocking {
  int64_t units;  // steps of k per block, at most
  int64_t nc;     // columns of b packed at a time
  int64_t mc;     // rows of a packed at a time, at most
  size_t a_floats, b_floats;
  // Blocks of b there is room for: one for each thread, or two, so that several threads can pack
  // the next one while others still read this one.
  int b_buffers;
};

Blocking blocking_of(const GemmArgs& g, const GemmKernel& kernel, int threads) {
  Blocking p;
  const int64_t units = std::max<int64_t>(kernel.units(g.k), kernel.step);
  // A bf16 result is rounded once, so its sum over k may not be cut.
  p.units = g.c_dtype == DType::bf16 ? units : std::min(units, l1_units);
  const int64_t columns = round_up(std::max<int64_t>(g.n, 1), kernel.nr);
  p.nc = std::max<int64_t>(b_block_floats / p.units / kernel.nr, 1) * kernel.nr;
  p.nc = std::min(p.nc, columns);
  p.mc = std::max<int64_t>(a_block_floats / p.units / kernel.mr, 1) * kernel.mr;
  p.mc = std::min(p.mc, std::max<int64_t>(g.m, 1));
  p.a_floats = static_cast<size_t>(round_up(p.mc * p.units + gemm_slack, 16));
  p.b_floats = static_cast<size_t>(round_up(p.nc * p.units + gemm_slack, 16));
  p.b_buffers = threads > 1 ? 2 : 1;
  if (static_cast<int64_t>(p.b_floats) * threads <= private_floats) p.b_buffers = threads;
  return p;
}

// A block of k and of columns, and how its product is cut: m_blocks x n_blocks.
struct Block {
  int64_t k0, k_size, col0, cols;
  int64_t m_blocks, n_blocks;
  bool first;      // of k
  const float* b;  // packed
};

// A product, or a thread's part of one, shared by `workers` threads.
struct Job {
  GemmArgs g;
  GemmExtent e;
  const GemmKernel& kernel;
  const Blocking& blocking;
  int workers;
  const float* bias;
  float* b_blocks;  // workers == 1 ? 1 : 2
  float* a_blocks;
  const float* packed_b;      // all of b, where it is kept (pack_all); else absent
  int64_t packed_column = 0;  // the first column of this part

  static const void* at(const void* x, int64_t element, DType t) {
    return static_cast<const char*>(x) + element * static_cast<int64_t>(size_of(t));
  }

  int64_t k_blocks() const {
    // With k == 0 one empty block still scales c.
    return std::max<int64_t>(ceil_div(kernel.units(e.k), blocking.units), 1);
  }
  int64_t blocks() const { return ceil_div(e.n, blocking.nc) * k_blocks(); }

  // Blocks of k are of equal size.
  Block block(int64_t index) const {
    const int64_t steps = kernel.units(e.k) / kernel.step, kb = index % k_blocks();
    const int64_t values = kernel.step * kernel.depth;
    Block b{};
    b.k0 = steps * kb / k_blocks() * values;
    b.k_size = std::min(steps * (kb + 1) / k_blocks() * values, e.k) - b.k0;
    b.col0 = index / k_blocks() * blocking.nc;
    b.cols = std::min(blocking.nc, e.n - b.col0);
    b.first = kb == 0;
    if (packed_b) {
      b.b = packed_b + b.k0 / kernel.depth * packed_columns() +
            (packed_column + b.col0) * kernel.units(b.k_size);
    } else {
      b.b = space_for(index);
    }
    cut(b);
    return b;
  }

  float* space_for(int64_t index) const {
    return b_blocks + static_cast<size_t>(workers == 1 ? 0 : index % 2) * blocking.b_floats;
  }

  int64_t packed_columns() const { return round_up(g.n, kernel.nr); }

  void cut(Block& b) const {
    b.m_blocks = ceil_div(e.m, blocking.mc);
    b.n_blocks = 1;
    if (workers == 1) return;
    // Two blocks per thread or more, when they hold a few panels each.
    const int64_t wanted = std::max<int64_t>(b.m_blocks, 2 * workers);
    const int64_t most = std::max<int64_t>(e.m / (4 * kernel.mr), 1);
    b.m_blocks = std::max(b.m_blocks, std::min(wanted, most));
    if (b.m_blocks >= workers) {
      b.m_blocks = round_up(b.m_blocks, workers);
    } else {
      b.n_blocks = std::min(ceil_div(workers, b.m_blocks), ceil_div(b.cols, kernel.nr));
    }
  }

  void pack_b(int64_t index, int worker) const {
    if (packed_b) return;
    const Block b = block(index);
    const int64_t panels = ceil_div(b.cols, kernel.nr);
    const int64_t begin = panels * worker / workers * kernel.nr;
    const int64_t end = std::min(panels * (worker + 1) / workers * kernel.nr, b.cols);
    if (begin >= end) return;
    pack_columns(b, b.col0 + begin, end - begin, space_for(index) + begin * kernel.units(b.k_size));
  }

  // `count` columns of b from `col` on, of one block of k.
  void pack_columns(const Block& b, int64_t col, int64_t count, float* to) const {
    GemmPack pack;
    pack.x = at(g.b, g.transpose_b ? col * g.ldb + b.k0 : b.k0 * g.ldb + col, g.dtype);
    pack.dtype = g.dtype;
    pack.ld = g.ldb;
    pack.k_contiguous = g.transpose_b;
    pack.count = count;
    pack.k = b.k_size;
    pack.out = to;
    kernel.pack_b(pack);
  }

  // All of b for block(): block of k by block of k, each with all columns, whatever part of them a
  // thread takes.
  void pack_all(float* to, ThreadPool& pool) const {
    for (int64_t kb = 0; kb < k_blocks(); ++kb) {
      const Block b = block(kb);
      const int64_t units = kernel.units(b.k_size);
      float* const begin = to + b.k0 / kernel.depth * packed_columns();
      pool.for_range(ceil_div(e.n, kernel.nr), 1, [&](int64_t first, int64_t last) {
        const int64_t col = first * kernel.nr;
        pack_columns(b, col, std::min(last * kernel.nr, e.n) - col, begin + col * units);
      });
    }
  }

  void multiply(const Block& b, int worker, int64_t index) const {
    const int64_t mb = index / b.n_blocks, nb = index % b.n_blocks;
    const int64_t row = e.m * mb / b.m_blocks, rows = e.m * (mb + 1) / b.m_blocks - row;
    const int64_t panels = ceil_div(b.cols, kernel.nr);
    const int64_t col = panels * nb / b.n_blocks * kernel.nr;
    const int64_t width = std::min(panels * (nb + 1) / b.n_blocks * kernel.nr, b.cols) - col;
    if (rows == 0 || width <= 0) return;
    GemmPack pack;
    pack.x = at(g.a, g.transpose_a ? b.k0 * g.lda + row : row * g.lda + b.k0, g.dtype);
    pack.dtype = g.dtype;
    pack.ld = g.lda;
    pack.k_contiguous = !g.transpose_a;
    pack.count = rows;
    pack.k = b.k_size;
    pack.out = a_blocks + static_cast<size_t>(worker) * blocking.a_floats;
    kernel.pack_a(pack);
    GemmBlock part;
    part.m = rows, part.n = width, part.units = kernel.units(b.k_size);
    part.a = pack.out;
    part.b = b.b + col * part.units;
    part.c = const_cast<void*>(at(g.c, row * g.ldc + b.col0 + col, g.c_dtype));
    part.ldc = g.ldc;
    part.c_dtype = g.c_dtype;
    part.alpha = g.alpha;
    part.beta = b.first ? g.beta : 1.0f;
    part.bias = b.first && bias ? bias + b.col0 + col : nullptr;
    kernel.multiply(part);
  }

  void work(int worker, SpinBarrier& barrier, std::atomic<int64_t> (&next)[2]) const {
    const int64_t count = blocks();
    pack_b(0, worker);
    for (int64_t i = 0; i < count; ++i) {
      // Past it block i is packed, and nobody reads the buffer or the counter of block i - 1.
      if (workers > 1) barrier.arrive_and_wait();
      if (worker == 0) next[(i + 1) % 2].store(0, std::memory_order_relaxed);
      const Block b = block(i);
      const int64_t parts = b.m_blocks * b.n_blocks;
      for (int64_t part; (part = next[i % 2].fetch_add(1, std::memory_order_relaxed)) < parts;) {
        multiply(b, worker, part);
      }
      if (i + 1 < count) pack_b(i + 1, worker);
    }
  }

  // The rows, or columns, of one of `count` threads that share nothing.
  Job rows_of(int thread, int count) const {
    Job part = private_to(thread);
    const int64_t first = e.m * thread / count;
    part.e.m = e.m * (thread + 1) / count - first;
    part.g.a = at(g.a, g.transpose_a ? first : first * g.lda, g.dtype);
    part.g.c = const_cast<void*>(at(g.c, first * g.ldc, g.c_dtype));
    return part;
  }
  Job columns_of(int thread, int count) const {
    Job part = private_to(thread);
    const int64_t panels = ceil_div(e.n, kernel.nr);
    const int64_t first = panels * thread / count * kernel.nr;
    part.e.n = std::min(panels * (thread + 1) / count * kernel.nr, e.n) - first;
    part.g.b = at(g.b, g.transpose_b ? first * g.ldb : first, g.dtype);
    part.packed_column += first;
    part.g.c = const_cast<void*>(at(g.c, first, g.c_dtype));
    if (bias) part.bias = bias + first;
    return part;
  }

  Job private_to(int thread) const {
    Job part = *this;
    part.workers = 1;
    part.b_blocks += static_cast<size_t>(thread) * blocking.b_floats;
    part.a_blocks += static_cast<size_t>(thread) * blocking.a_floats;
    return part;
  }
};

// How threads divide a product. What one packs and another reads crosses between their caches, a
// line at a time, and where cores share no cache that costs more than packing it twice. So each
// thread works for itself, on rows or on columns, whenever it multiplies what it packs often
// enough.
enum class Division : uint8_t { blocks, rows, columns };

Division divide(const Job& job) {
  if (job.workers == 1) return Division::blocks;
  if (job.packed_b) {
    // Only rows of a are packed: a few tiles of them each, or all by everyone.
    if (job.e.m / job.workers >= 4 * job.kernel.mr) return Division::rows;
    return job.e.n / job.workers >= 4 * job.kernel.nr ? Division::columns : Division::blocks;
  }
  if (job.blocking.b_buffers < job.workers) return Division::blocks;
  // Packing across rows is mere copying; along them it transposes.
  const int64_t copied = 128 * job.kernel.depth, transposed = 256 * job.kernel.depth;
  const bool rows = job.e.m / job.workers >= (job.g.transpose_b ? transposed : copied);
  const bool columns = job.e.n / job.workers >= (job.g.transpose_a ? copied : transposed);
  if (rows && (!columns || job.e.n <= job.e.m)) return Division::rows;
  return columns ? Division::columns : Division::blocks;
}

// The whole of b in this kernel's panels, packed now or before.
const float* packed_weights(const Job& job, ThreadPool& pool) {
  const GemmArgs& g = job.g;
  if (!g.packed_b || job.e.k == 0) return nullptr;
  const size_t floats =
      static_cast<size_t>(job.packed_columns() * job.kernel.units(g.k) + gemm_slack);
  const PackedWeights::Form form = {
      reinterpret_cast<int64_t>(&job.kernel), g.n, g.k, job.blocking.units, g.transpose_b,
      static_cast<int64_t>(g.dtype)};
  return static_cast<const float*>(g.packed_b->get(form, floats * sizeof(float), [&](void* to) {
    job.pack_all(static_cast<float*>(to), pool);
  }));
}

}  // namespace

size_t gemm_blocked_workspace(const Context& context, const GemmArgs& args,
                              const GemmKernel& kernel) {
  const int threads = context.pool->size();
  const Blocking p = blocking_of(args, kernel, threads);
  return (p.b_floats * static_cast<size_t>(p.b_buffers) +
          p.a_floats * static_cast<size_t>(threads)) *
         sizeof(float);
}

void gemm_blocked(const Context& context, const GemmArgs& g, const GemmKernel& kernel) {
  GemmExtent e = gemm_extent(g);
  if (e.m == 0 || e.n == 0) return;
  if (g.alpha == 0) e.k = 0;
  const Blocking blocking = blocking_of(g, kernel, context.pool->size());
  RONDO_CHECK(g.workspace.bytes() >= gemm_blocked_workspace(context, g, kernel), "workspace of ",
              g.workspace.bytes(), " bytes, needs ", gemm_blocked_workspace(context, g, kernel));
  const double work =
      static_cast<double>(e.m) * static_cast<double>(e.n) * static_cast<double>(e.k);
  const int workers = static_cast<int>(
      std::clamp(work / work_per_thread, 1.0, static_cast<double>(context.pool->size())));
  float* memory = static_cast<float*>(g.workspace.data);
  float* a_blocks = memory + blocking.b_floats * static_cast<size_t>(blocking.b_buffers);
  const float* bias = g.bias ? g.bias.as<float>() : nullptr;
  Job job{g, e, kernel, blocking, workers, bias, memory, a_blocks, nullptr};
  job.packed_b = packed_weights(job, *context.pool);
  const Division division = divide(job);
  SpinBarrier barrier(workers);
  std::atomic<int64_t> next[2] = {0, 0};
  context.pool->run(
      [&](int worker) {
        if (division == Division::blocks) return job.work(worker, barrier, next);
        std::atomic<int64_t> own[2] = {0, 0};
        const Job part = division == Division::rows ? job.rows_of(worker, workers)
                                                    : job.columns_of(worker, workers);
        part.work(0, barrier, own);
      },
      workers);
}

}  // namespace rondo
