#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/check/check.h"
#include "kernels/base/cpu/packed_weights.h"
#include "kernels/gemm/gemm.h"

namespace rondo::check {
namespace {

struct Shape {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  DType dtype = DType::f32, c_dtype = DType::f32;
  float alpha = 1, beta = 0;
  bool bias = false;
  int64_t padding = 0;     // leading dimensions larger than minimal by this
  int64_t row_count = -1;  // of each further product of the batch one more
  int64_t batch = 1;
  bool packed = false;  // b is kept packed
  bool int8 = false;
};

std::string label(const Shape& s) {
  std::string text =
      str(name_of(s.dtype), s.c_dtype == s.dtype ? "" : str("-", name_of(s.c_dtype)), "/",
          s.transpose_a ? 't' : 'n', s.transpose_b ? 't' : 'n', "/", s.m, "x", s.n, "x", s.k);
  if (s.alpha != 1) text += str("/alpha", s.alpha);
  if (s.beta != 0) text += str("/beta", s.beta);
  if (s.bias) text += "/bias";
  if (s.padding) text += str("/ld+", s.padding);
  if (s.row_count >= 0) text += str("/rows", s.row_count);
  if (s.packed) text += "/packed";
  if (s.int8) text += "/int8";
  if (s.batch != 1) text += str("/batch", s.batch);
  return text;
}

Tolerance tolerance(const Shape& s) {
  if (s.int8) return Tolerance::exact();
  const double alpha = std::abs(s.alpha), beta = std::abs(s.beta);
  return Tolerance::sum(static_cast<double>(s.k), s.c_dtype, alpha / 3, beta + 1);
}

// `batch` times [rows, cols] inside rows of `ld` elements; what lies between is NaN, past the live
// rows too: `live`, and one more in each further matrix if `grows`.
struct Matrices {
  int64_t batch, rows, cols, ld, live;
  bool grows;
};
TensorView matrices(Case& c, const Matrices& m, DType dtype) {
  std::vector<double> values(static_cast<size_t>(m.batch * m.rows * m.ld), nan);
  for (int64_t i = 0; i < m.batch * m.rows; ++i) {
    if (i % m.rows >= m.live + (m.grows ? i / m.rows : 0)) continue;
    for (int64_t j = 0; j < m.cols; ++j) {
      values[static_cast<size_t>(i * m.ld + j)] = c.random_real(-1, 1);
    }
  }
  return c.input_values({m.batch * m.rows, m.ld}, dtype, values);
}

void limit_rows(Case& c, const Shape& s, GemmArgs& g) {
  if (s.row_count < 0) return;
  std::vector<int32_t> counts;
  for (int64_t i = 0; i < s.batch; ++i) counts.push_back(static_cast<int32_t>(s.row_count + i));
  g.row_count = c.ints(counts);
  g.row_count_stride = 1;
}

void gemm_case(Case& c, GemmArgs& g, const Shape& s) {
  g.m = s.m, g.n = s.n, g.k = s.k;
  g.transpose_a = s.transpose_a, g.transpose_b = s.transpose_b;
  g.dtype = s.dtype, g.c_dtype = s.c_dtype;
  g.alpha = s.alpha, g.beta = s.beta;
  g.int8 = s.int8;
  const int64_t a_rows = s.transpose_a ? s.k : s.m, a_cols = s.transpose_a ? s.m : s.k;
  const int64_t b_rows = s.transpose_b ? s.n : s.k, b_cols = s.transpose_b ? s.k : s.n;
  g.lda = a_cols + s.padding, g.ldb = b_cols + 2 * s.padding, g.ldc = s.n + 3 * s.padding;
  const int64_t live = s.row_count < 0 ? a_rows : s.row_count;
  const bool limited = s.row_count >= 0;
  g.a = matrices(c, {s.batch, a_rows, a_cols, g.lda, live, limited}, s.dtype).data;
  // Rows of b past the limited k are NaN as well (b is transposed: its columns are finite).
  const bool limits_b = s.transpose_a && !s.transpose_b;
  g.b = matrices(c, {s.batch, b_rows, b_cols, g.ldb, limits_b ? live : b_rows, limited}, s.dtype)
            .data;
  g.batch = s.batch;
  g.a_stride = a_rows * g.lda, g.b_stride = b_rows * g.ldb, g.c_stride = s.m * g.ldc;
  if (s.bias) g.bias = c.input({s.n}, s.dtype == DType::f64 ? DType::f64 : DType::f32);
  limit_rows(c, s, g);
  // Compared whole, so that a write between the rows or past row_count shows. With beta == 0 all
  // starts as NaN, so that a read shows.
  g.c = s.beta == 0 ? c.output("c", {s.batch * s.m, g.ldc}, s.c_dtype, tolerance(s)).data
                    : c.in_out("c", {s.batch * s.m, g.ldc}, s.c_dtype, tolerance(s)).data;
  // Every number of threads and every repetition finds what the first one packed.
  if (s.packed) g.packed_b = &c.keep<PackedWeights>();
  g.workspace = c.workspace(gemm_workspace_bytes(c.context(), g));
  const double flops =
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  c.work(flops, static_cast<double>((s.m + s.n) * s.k) * static_cast<double>(size_of(s.dtype)) +
                    static_cast<double>(s.m * s.n) * static_cast<double>(size_of(s.c_dtype)));
}

Suite::Entry& add(Suite& suite, const Shape& s) { return suite.add(label(s), gemm_case, s); }

constexpr std::initializer_list<std::pair<DType, DType>> types = {{DType::f32, DType::f32},
                                                                  {DType::bf16, DType::f32},
                                                                  {DType::bf16, DType::bf16},
                                                                  {DType::f64, DType::f64}};

// Every size in every place; what else can vary goes round with the shape's index. The simulator
// has a Latin square of them, every two sizes in every two places, and what is of several tiles
// in all three.
void add_sizes(Suite& suite) {
  constexpr int64_t sizes[] = {0, 1, 7, 31, 32, 33, 65, 130};
  constexpr int count = std::size(sizes);
  int i = 0;
  for (const auto& [m, n, k] :
       every({0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7})) {
    for (const auto& [dtype, c_dtype] : types) {
      Shape s{sizes[m], sizes[n], sizes[k], (i & 1) != 0, (i & 2) != 0, dtype, c_dtype};
      s.bias = i % 3 == 0;
      s.alpha = i % 5 == 0 ? 0.75f : 1.0f;
      s.beta = i % 7 == 0 ? -0.5f : 0.0f;
      s.padding = i % 11 == 0 ? 5 : 0;
      const bool simulated = (m + n + k) % count == 0 || std::min({m, n, k}) >= count - 2;
      auto& entry = add(suite, s);
      if (!simulated) entry.simulated.emplace();
      ++i;
    }
    ++i;  // the next shape starts elsewhere in the round
  }
}

void add_options(Suite& suite, DType dtype, DType c_dtype) {
  const auto shape = [&](int64_t m, int64_t n, int64_t k, int transposed = 0) -> Shape {
    return {m, n, k, (transposed & 1) != 0, (transposed & 2) != 0, dtype, c_dtype};
  };
  for (int bits = 0; bits < 64; ++bits) {
    Shape s = shape(45, 39, 50, bits);
    s.bias = bits & 4;
    s.beta = bits & 8 ? 1.0f : 0.0f;
    s.padding = bits & 16 ? 3 : 0;
    s.row_count = bits & 32 ? (bits & 1 ? 37 : 29) : -1;
    add(suite, s);
  }
  for (const auto& [rows, transpose_a] : every({0, 1, 45}, {false, true})) {
    Shape s = transpose_a ? shape(12, 39, 45, 1) : shape(45, 39, 12);
    s.row_count = rows;
    add(suite, s);
  }
  // alpha == 0 reads nothing.
  for (float beta : {0.0f, 2.0f}) {
    Shape s = shape(33, 17, 9);
    s.alpha = 0, s.beta = beta;
    add(suite, s);
  }
  // More than one block in each dimension of the CPU's blocked kernels.
  for (int bits = 0; bits < 4; ++bits) {
    Shape s = shape(400, 70, 1100, bits);
    s.beta = bits == 1 ? 1.0f : 0.0f;
    s.bias = bits == 2;
    add(suite, s).simulated.emplace();
  }
  add(suite, shape(30, 4500, 20, 2));
  // Rows, columns and blocks for each thread, in one and in several blocks of k and of columns.
  for (const auto& [of, transpose_b] :
       every({shape(1, 39, 50), shape(45, 39, 50), shape(20, 300, 65), shape(400, 70, 1100),
              shape(3, 9000, 300), shape(7, 9, 0)},
             {false, true})) {
    Shape s = of;
    s.transpose_b = s.bias = transpose_b;
    s.packed = true;
    s.row_count = s.m == 45 ? 29 : -1;
    add(suite, s).simulated.emplace();
  }
  for (int bits = 0; bits < 8; ++bits) {
    Shape s = shape(70, 39, 50, bits);
    s.batch = 3;
    s.bias = bits == 3;
    s.padding = bits == 5 ? 3 : 0;
    s.row_count = bits & 4 ? 40 : -1;
    add(suite, s);
  }
  Shape none = shape(7, 9, 5);
  none.batch = 0;
  add(suite, none);
}

// Tiles and panels of all instruction sets, and what is left of them, in every place.
void add_int8(Suite& suite) {
  int i = 0;
  for (const auto& [m, n, k] :
       every({0, 1, 3, 5, 24, 25, 130}, {1, 16, 33, 64, 150}, {0, 1, 4, 7, 64, 65, 1100})) {
    Shape s{m, n, k, false, i % 2 == 0};
    s.int8 = true;
    s.bias = i % 3 == 0;
    s.padding = i % 5 == 0 ? 5 : 0;
    s.packed = i % 7 < 3;
    s.row_count = !s.packed && i % 4 == 1 ? m / 2 : -1;
    add(suite, s).simulated.emplace();
    ++i;
  }
  Shape blocks{700, 70, 1100, false, true};  // of rows, in the second-level cache
  blocks.int8 = true;
  add(suite, blocks).simulated.emplace();
}

}  // namespace

void gemm_cases(Suite& suite) {
  add_sizes(suite);
  add_int8(suite);
  for (const auto& [dtype, c_dtype] : types) add_options(suite, dtype, c_dtype);
  // Input projections (x W^T), their input gradients (dgates W), weight gradients (dgates^T x), an
  // output layer, and the large square one that stands for the peak.
  const Shape benches[] = {
      {1536, 1536, 1536},
      {1600, 1024, 80, false, true},
      {1600, 2048, 512, false, true},
      {3200, 4096, 1024, false, true},
      {100, 2048, 512, false, true},
      {16, 2048, 512, false, true},
      {1, 2048, 512, false, true},
      {1600, 512, 2048},
      {2048, 512, 1600, true, false},
      {1024, 80, 6400, true, false},
      {1600, 32, 1024, false, true},
      {1600, 5000, 512, false, true},
  };
  for (Shape s : benches) {
    for (const auto& [dtype, c_dtype] : types) {
      if (c_dtype == DType::bf16 || (dtype == DType::f64 && s.m != s.k)) continue;
      s.dtype = dtype, s.c_dtype = c_dtype;
      suite.add_bench(label(s), gemm_case, s);
    }
    if (s.transpose_a || !s.transpose_b) continue;
    s.dtype = s.c_dtype = DType::f32;
    s.packed = s.int8 = true;
    suite.add_bench(label(s), gemm_case, s);
  }
}

}  // namespace rondo::check
