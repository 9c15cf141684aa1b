// Matrix products by tiles in shared memory, for every shape, transposition and leading dimension.
// One block computes a tile of 64 x 64 results, walking k in pieces of 32; the next piece comes
// from memory into registers while the present one is multiplied. f32 by fused multiply-adds, each
// thread 8 x 4 results; bf16 by mma_m16n8k16, each warp 32 x 32. Every result is summed in the
// order of k, piece by piece (which keeps long f32 sums accurate), whatever its place in a tile:
// rows have the same bits in any company. blockIdx.y is the product of the batch.
#include <algorithm>

#include "kernels/gemm/gemm_impl.h"
#include "kernels/simt/outer_product.h"
#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int tile = 64;    // rows and columns of c
constexpr int k_tile = 32;  // contracted at a time
constexpr int threads = 128;
constexpr int vectors = tile * k_tile / 4 / threads;  // of an operand's tile, per thread

template <class T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
};

// Where element (outer, k) of an operand's tile lies, outer being a row of c for a and a column
// for b. f32 is read along outer, bf16 in pairs along k; the padding spreads rows over banks.
template <class T>
struct Layout;
template <>
struct Layout<float> {
  static constexpr int elements = k_tile * (tile + 4);
  static constexpr bool k_contiguous = false;
  __device__ static int at(int outer, int k) { return k * (tile + 4) + outer; }
};
template <>
struct Layout<bf16> {
  static constexpr int elements = tile * (k_tile + 8);
  static constexpr bool k_contiguous = true;
  __device__ static int at(int outer, int k) { return outer * (k_tile + 8) + k; }
};

template <class T>
struct GemmShared {
  alignas(16) uint32_t a[Layout<T>::elements * sizeof(T) / 4];
  alignas(16) uint32_t b[Layout<T>::elements * sizeof(T) / 4];
};

// A matrix [outer, k] in memory; contiguous along k, or along outer.
template <class T>
struct Operand {
  const T* data;
  int64_t ld, stride;  // to the next row; to the next product's
  bool k_contiguous;
  bool aligned;  // Fours may be read wherever the contiguous index is a multiple of 4
};

struct Problem {
  int64_t m, n, k, ldc, c_stride, row_count_stride;
  float alpha, beta;
  const float* bias;
  const int32_t* row_count;
  bool limits_k;  // row_count, rather than m
};

template <class T>
__device__ Four<T> load_four(const Operand<T>& x, int64_t line, int64_t along, int64_t lines,
                             int64_t length) {
  Four<T> f;
  if (line < lines && along + 4 <= length && x.aligned) {
    return *reinterpret_cast<const Four<T>*>(x.data + line * x.ld + along);
  }
  for (int j = 0; j < 4; ++j) {
    const bool inside = line < lines && along + j < length;
    f.v[j] = inside ? x.data[line * x.ld + along + j] : to<T>(0.0f);
  }
  return f;
}

// This thread's part of the tile at (outer0, k0); zero past outer_end and k_end.
template <class T>
__device__ void load_part(Four<T> (&part)[vectors], const Operand<T>& x, int64_t outer0, int64_t k0,
                          int64_t outer_end, int64_t k_end) {
  for (int i = 0; i < vectors; ++i) {
    const int v = i * threads + static_cast<int>(threadIdx.x);
    if (x.k_contiguous) {
      constexpr int per_line = k_tile / 4;
      part[i] = load_four(x, outer0 + v / per_line, k0 + v % per_line * 4, outer_end, k_end);
    } else {
      constexpr int per_line = tile / 4;
      part[i] = load_four(x, k0 + v / per_line, outer0 + v % per_line * 4, k_end, outer_end);
    }
  }
}

template <class T>
__device__ void store_part(T* to, const Four<T> (&part)[vectors], bool k_contiguous) {
  for (int i = 0; i < vectors; ++i) {
    const int v = i * threads + static_cast<int>(threadIdx.x);
    const int per_line = (k_contiguous ? k_tile : tile) / 4;
    const int line = v / per_line, along = v % per_line * 4;
    const int outer = k_contiguous ? line : along, k = k_contiguous ? along : line;
    if (k_contiguous == Layout<T>::k_contiguous) {
      *reinterpret_cast<Four<T>*>(to + Layout<T>::at(outer, k)) = part[i];
      continue;
    }
    for (int j = 0; j < 4; ++j) {
      to[Layout<T>::at(outer + (k_contiguous ? 0 : j), k + (k_contiguous ? j : 0))] = part[i].v[j];
    }
  }
}

// The results of one thread: how they are summed, and which they are.
template <class T>
struct Sums;

template <>
struct Sums<float> {
  float sum[8][4] = {};

  __device__ void multiply(const float* a, const float* b) {
    const int row = static_cast<int>(threadIdx.x) / 16 * 8;
    const int col = static_cast<int>(threadIdx.x) % 16 * 4;
    float part[8][4] = {};
    for (int p = 0; p < k_tile; ++p) {
      const auto a0 = *reinterpret_cast<const Four<float>*>(a + Layout<float>::at(row, p));
      const auto a1 = *reinterpret_cast<const Four<float>*>(a + Layout<float>::at(row + 4, p));
      const auto b0 = *reinterpret_cast<const Four<float>*>(b + Layout<float>::at(col, p));
      add_outer_product(part, a0.v, a1.v, b0.v);
    }
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 4; ++j) sum[i][j] += part[i][j];
    }
  }
  template <class Store>
  __device__ void each(Store store) const {
    const int row = static_cast<int>(threadIdx.x) / 16 * 8;
    const int col = static_cast<int>(threadIdx.x) % 16 * 4;
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 4; ++j) store(row + i, col + j, sum[i][j]);
    }
  }
};

template <>
struct Sums<bf16> {
  float sum[2][4][4] = {};  // 16 rows, 8 columns, a fragment

  // Two neighbours along k.
  __device__ static uint32_t pair(const bf16* x, int outer, int k) {
    return *reinterpret_cast<const uint32_t*>(x + Layout<bf16>::at(outer, k));
  }
  __device__ static int first_row() { return static_cast<int>(threadIdx.x) / 64 * 32; }
  __device__ static int first_col() { return static_cast<int>(threadIdx.x) / 32 % 2 * 32; }

  __device__ void multiply(const bf16* a, const bf16* b) {
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, q = lane % 4;
    for (int p = 0; p < k_tile; p += 16) {
      uint32_t a_part[2][4], b_part[4][2];
      for (int i = 0; i < 2; ++i) {
        const int row = first_row() + i * 16 + g;
        a_part[i][0] = pair(a, row, p + 2 * q);
        a_part[i][1] = pair(a, row + 8, p + 2 * q);
        a_part[i][2] = pair(a, row, p + 2 * q + 8);
        a_part[i][3] = pair(a, row + 8, p + 2 * q + 8);
      }
      for (int j = 0; j < 4; ++j) {
        const int col = first_col() + j * 8 + g;
        b_part[j][0] = pair(b, col, p + 2 * q);
        b_part[j][1] = pair(b, col, p + 2 * q + 8);
      }
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 4; ++j) mma_m16n8k16(sum[i][j], a_part[i], b_part[j]);
      }
    }
  }
  template <class Store>
  __device__ void each(Store store) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, q = lane % 4;
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 4; ++j) {
        const int row = first_row() + i * 16 + g, col = first_col() + j * 8 + 2 * q;
        for (int e = 0; e < 4; ++e) store(row + e / 2 * 8, col + e % 2, sum[i][j][e]);
      }
    }
  }
};

template <class T, class C>
__global__ void __launch_bounds__(threads)
    product(Problem s, Operand<T> a, Operand<T> b, C* c, int64_t column_tiles) {
  auto& memory = shared<GemmShared<T>>();
  T* a_tile = reinterpret_cast<T*>(memory.a);
  T* b_tile = reinterpret_cast<T*>(memory.b);
  int64_t m = s.m, k = s.k;
  const int64_t index = blockIdx.y;
  if (s.row_count) {
    const int64_t count = s.row_count[index * s.row_count_stride];
    int64_t& limited = s.limits_k ? k : m;
    limited = count < limited ? count : limited;
  }
  a.data += index * a.stride;
  b.data += index * b.stride;
  c += index * s.c_stride;
  if (s.alpha == 0.0f) k = 0;
  const int64_t row0 = blockIdx.x / column_tiles * tile, col0 = blockIdx.x % column_tiles * tile;
  if (row0 >= m) return;

  Sums<T> sums;
  Four<T> a_part[vectors], b_part[vectors];
  if (k > 0) {
    load_part(a_part, a, row0, 0, m, k);
    load_part(b_part, b, col0, 0, s.n, k);
  }
  for (int64_t k0 = 0; k0 < k; k0 += k_tile) {
    store_part(a_tile, a_part, a.k_contiguous);
    store_part(b_tile, b_part, b.k_contiguous);
    __syncthreads();
    if (k0 + k_tile < k) {
      load_part(a_part, a, row0, k0 + k_tile, m, k);
      load_part(b_part, b, col0, k0 + k_tile, s.n, k);
    }
    sums.multiply(a_tile, b_tile);
    __syncthreads();
  }
  sums.each([&](int row, int col, float sum) {
    const int64_t i = row0 + row, j = col0 + col;
    if (i >= m || j >= s.n) return;
    C& result = c[i * s.ldc + j];
    float value = s.alpha * sum;
    if (s.beta != 0.0f) value += s.beta * to_float(result);
    if (s.bias) value += s.bias[j];
    result = to<C>(value);
  });
}

constexpr int64_t most_helper_blocks = 1024;

unsigned helper_blocks(int64_t elements) {
  return static_cast<unsigned>(std::min<int64_t>((elements + 255) / 256, most_helper_blocks));
}

template <class T>
__global__ void zero_tail(T* data, int64_t ld, int64_t rows, int64_t cols, const int32_t* count,
                          bool of_rows) {
  const int64_t row0 = of_rows ? *count : 0, col0 = of_rows ? 0 : *count;
  const int64_t tail_cols = cols - col0, n = (rows - row0) * tail_cols;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    data[(row0 + i / tail_cols) * ld + col0 + i % tail_cols] = to<T>(0.0f);
  }
}

__global__ void add_bias(GemmBiasArgs a) {
  const int64_t n = a.rows * a.cols, stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    bf16& c = a.c[i / a.cols * a.ldc + i % a.cols];
    float value = a.results[i] + a.bias[i % a.cols];
    if (a.beta != 0.0f) value += a.beta * to_float(c);
    c = to_bf16(value);
  }
}

template <class T>
Operand<T> operand(const void* data, int64_t ld, int64_t stride, bool k_contiguous) {
  const bool aligned =
      ld % 4 == 0 && stride % 4 == 0 && reinterpret_cast<uintptr_t>(data) % sizeof(Four<T>) == 0;
  return {static_cast<const T*>(data), ld, stride, k_contiguous, aligned};
}

template <class T, class C>
void product_of(const Context& context, const GemmArgs& g) {
  const int64_t column_tiles = (g.n + tile - 1) / tile;
  const LaunchConfig config = {.kernel = "gemm",
                               .grid = {blocks_for(g.m, tile) * static_cast<unsigned>(column_tiles),
                                        static_cast<unsigned>(g.batch)},
                               .block = {threads},
                               .shared_bytes = sizeof(GemmShared<T>)};
  const Problem problem = {.m = g.m,
                           .n = g.n,
                           .k = g.k,
                           .ldc = g.ldc,
                           .c_stride = g.c_stride,
                           .row_count_stride = g.row_count_stride,
                           .alpha = g.alpha,
                           .beta = g.beta,
                           .bias = g.bias ? g.bias.as<float>() : nullptr,
                           .row_count = g.row_count,
                           .limits_k = g.transpose_a};
  launch(context, config, product<T, C>, problem,
         operand<T>(g.a, g.lda, g.a_stride, !g.transpose_a),
         operand<T>(g.b, g.ldb, g.b_stride, g.transpose_b), static_cast<C*>(g.c), column_tiles);
}

}  // namespace

void gemm_zero_tail(const Context& context, const GemmTailArgs& a) {
  const LaunchConfig config = {
      .kernel = "gemm_zero_tail", .grid = {helper_blocks(a.rows * a.cols)}, .block = {256}};
  if (a.dtype == DType::bf16) {
    launch(context, config, zero_tail<bf16>, static_cast<bf16*>(a.data), a.ld, a.rows, a.cols,
           a.count, a.of_rows);
  } else {
    launch(context, config, zero_tail<float>, static_cast<float*>(a.data), a.ld, a.rows, a.cols,
           a.count, a.of_rows);
  }
}

void gemm_add_bias(const Context& context, const GemmBiasArgs& a) {
  launch(context,
         {.kernel = "gemm_add_bias", .grid = {helper_blocks(a.rows * a.cols)}, .block = {256}},
         add_bias, a);
}

void gemm_gpu(const Context& context, const GemmArgs& g) {
  check_gemm(g);
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  if (g.dtype == DType::f32) return product_of<float, float>(context, g);
  if (g.c_dtype == DType::f32) return product_of<bf16, float>(context, g);
  product_of<bf16, bf16>(context, g);
}

}  // namespace rondo::RONDO_GPU
