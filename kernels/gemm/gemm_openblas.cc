// Products by OpenBLAS, cut into tiles that our own threads share.
//
// OpenBLAS starts its threads when it is loaded and would wake them for every product of more than
// about 64^3: they spin beside ours and split k or not by their count. Its only switch is
// process-wide (openblas_set_num_threads; the thread-local one came in 0.3.27, newer than
// Debian 12's). So the switch is held at 1 only while a product of ours runs, counted over
// concurrent callers, and put back by the last. A program that calls OpenBLAS from other threads
// meanwhile gets correct, single-threaded results. Nothing here starts OpenBLAS's threads; to keep
// even the idle ones away, set OPENBLAS_NUM_THREADS=1 before the process starts.
#include <cblas.h>

#include <algorithm>
#include <mutex>

#include "kernels/base/cpu/parallel.h"
#include "kernels/gemm/gemm_impl.h"

namespace rondo {
namespace {

class SingleThreadedBlas {
 public:
  SingleThreadedBlas() {
    State& s = state();
    std::lock_guard lock(s.mutex);
    if (s.users++ == 0) {
      s.before = openblas_get_num_threads();
      if (s.before != 1) openblas_set_num_threads(1);
    }
  }
  ~SingleThreadedBlas() {
    State& s = state();
    std::lock_guard lock(s.mutex);
    if (--s.users == 0 && s.before != 1) openblas_set_num_threads(s.before);
  }
  SingleThreadedBlas(const SingleThreadedBlas&) = delete;
  SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;

 private:
  struct State {
    std::mutex mutex;
    int users = 0;
    int before = 1;
  };
  static State& state() {
    static State s;
    return s;
  }
};

void call_blas(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, float alpha,
               const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void call_blas(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha,
               const double* a, int lda, const double* b, int ldb, double beta, double* c,
               int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

// c = beta * c + bias over a tile of c.
template <class T>
void scale_and_bias(const GemmArgs& g, T* c, const T* bias, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      T& value = c[i * g.ldc + j];
      value = (g.beta == 0 ? T(0) : T(g.beta) * value) + (bias ? bias[j] : T(0));
    }
  }
}

struct Tile {
  int64_t row, rows, col, cols;
};

template <class T>
void product_tile(const GemmArgs& g, int64_t k, const Tile& t) {
  T* c = static_cast<T*>(g.c) + t.row * g.ldc + t.col;
  const T* bias = g.bias ? g.bias.as<T>() + t.col : nullptr;
  const bool prepare = bias != nullptr || k == 0 || g.alpha == 0;
  if (prepare) scale_and_bias<T>(g, c, bias, t.rows, t.cols);
  if (k == 0 || g.alpha == 0) return;
  const T* a = static_cast<const T*>(g.a) + (g.transpose_a ? t.row : t.row * g.lda);
  const T* b = static_cast<const T*>(g.b) + (g.transpose_b ? t.col * g.ldb : t.col);
  call_blas(g.transpose_a ? CblasTrans : CblasNoTrans, g.transpose_b ? CblasTrans : CblasNoTrans,
            static_cast<int>(t.rows), static_cast<int>(t.cols), static_cast<int>(k), T(g.alpha), a,
            static_cast<int>(g.lda), b, static_cast<int>(g.ldb), prepare ? T(1) : T(g.beta), c,
            static_cast<int>(g.ldc));
}

// The tiles depend on the shape alone, because the last bits of an element may depend on where
// the tile's edge lies.
template <class T>
void product(const Context& context, const GemmArgs& g, const GemmExtent& e) {
  constexpr int64_t at_most = 8, unit = 48;
  const bool by_rows = e.m >= e.n;
  const int64_t length = by_rows ? e.m : e.n;
  const double work = static_cast<double>(e.m) * static_cast<double>(e.n) *
                      static_cast<double>(std::max<int64_t>(e.k, 1));
  int64_t tiles = std::clamp<int64_t>(length / (4 * unit), 1, at_most);
  if (work < 1e6) tiles = 1;
  const int64_t step = ((length + tiles - 1) / tiles + unit - 1) / unit * unit;
  tiles = (length + step - 1) / step;
  const SingleThreadedBlas guard;
  context.pool->for_range(tiles, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = i * step, size = std::min(step, length - begin);
      product_tile<T>(g, e.k, by_rows ? Tile{begin, size, 0, e.n} : Tile{0, e.m, begin, size});
    }
  });
}

}  // namespace

bool gemm_openblas_accepts(const Context&, const void* args) {
  if (args == nullptr) return true;
  const auto& g = *static_cast<const GemmArgs*>(args);
  constexpr int64_t limit = INT32_MAX;
  return (g.dtype == DType::f32 || g.dtype == DType::f64) && g.m <= limit && g.n <= limit &&
         g.k <= limit && g.lda <= limit && g.ldb <= limit && g.ldc <= limit;
}

void gemm_openblas(const Context& context, const GemmArgs& args) {
  gemm_each(args, [&](const GemmArgs& one) {
    const GemmExtent e = gemm_extent(one);
    if (e.m == 0 || e.n == 0) return;
    if (one.dtype == DType::f64) {
      product<double>(context, one, e);
    } else {
      product<float>(context, one, e);
    }
  });
}

}  // namespace rondo
