// What kernels bound by memory share: wide accesses, loops over elements, rows worked on by teams
// of threads. For *.cu files; sums of columns are in kernels/simt/column_sums.h.
//
// Storage is float or bf16, arithmetic float. Loops hand their body a Chunk: N adjacent elements,
// read and written in one access of up to 16 bytes, or single ones where the memory is not aligned
// or an array ends.
//
//   for_elements<wide<T>>(n, vectors, [&](int64_t i, auto chunk) {
//     auto x = chunk.get(p + i);
//     for (int k = 0; k < chunk.n; ++k) x[k] *= 2;
//     chunk.put(p + i, x);
//   });
//
// Every order of summation is fixed by the shapes, never by timing: results are deterministic.
#pragma once

#include <type_traits>

#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {

// Blocks of 256 threads, and as many as fill 132 multiprocessors (H100, H200) once; loops with a
// stride do the rest.
inline constexpr int block_threads = 256;
inline constexpr int block_warps = block_threads / 32;
inline constexpr int64_t most_blocks = 132 * 8;

inline LaunchConfig launch_shape(const char* kernel, int64_t blocks, size_t shared_bytes = 0) {
  const int64_t grid = blocks < 1 ? 1 : blocks < most_blocks ? blocks : most_blocks;
  return {.kernel = kernel,
          .grid = {static_cast<unsigned>(grid)},
          .block = {block_threads},
          .shared_bytes = shared_bytes};
}

// f(T{}) for the element type of an array GPUs work on.
template <class F>
void visit_narrow(DType t, F f) {
  if (t == DType::f32) return f(float{});
  RONDO_CHECK(t == DType::bf16, name_of(t), " where f32 or bf16 is expected");
  f(bf16{});
}

// ---- chunks ----

template <int N>
struct Floats {
  float v[N];
  __device__ float& operator[](int i) { return v[i]; }
  __device__ float operator[](int i) const { return v[i]; }
};

template <int N>
struct Chunk {
  static constexpr int n = N;

  template <class T>
  __device__ static Floats<N> get(const T* p) {
    static_assert(N * sizeof(T) == 8 || N * sizeof(T) == 16);
    const auto words = load_words<N * sizeof(T)>(p);
    Floats<N> x;
    for (int i = 0; i < N; ++i) {
      if constexpr (sizeof(T) == 4) {
        x.v[i] = __uint_as_float(words.w[i]);
      } else {
        const uint32_t pair = words.w[i / 2];
        x.v[i] = __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
      }
    }
    return x;
  }
  template <class T>
  __device__ static void put(T* p, const Floats<N>& x) {
    Words<N * sizeof(T)> words;
    if constexpr (sizeof(T) == 4) {
      for (int i = 0; i < N; ++i) words.w[i] = __float_as_uint(x.v[i]);
    } else {
      for (int i = 0; i < N / 2; ++i) {
        words.w[i] = to_bf16(x.v[2 * i]).bits | uint32_t{to_bf16(x.v[2 * i + 1]).bits} << 16;
      }
    }
    store_words(p, words);
  }
};

template <>
struct Chunk<1> {
  static constexpr int n = 1;
  template <class T>
  __device__ static Floats<1> get(const T* p) {
    return {{to_float(*p)}};
  }
  template <class T>
  __device__ static void put(T* p, const Floats<1>& x) {
    *p = to<T>(x.v[0]);
  }
};

// Elements per access where all of these types are touched: the largest takes 16 bytes.
template <class... T>
inline constexpr int wide = [] {
  size_t largest = 0;
  ((largest = sizeof(T) > largest ? sizeof(T) : largest), ...);
  return 16 / static_cast<int>(largest);
}();

// Whether each p is aligned to N elements (nullptr is).
template <int N, class... T>
bool aligned(const T*... p) {
  return (... && (reinterpret_cast<uintptr_t>(p) % (N * sizeof(T)) == 0));
}

// ---- elements ----

// body(i, chunk) over [0, n), split over the whole grid. vectors: aligned<N> of what is touched.
template <int N, class F>
__device__ void for_elements(int64_t n, bool vectors, F body) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  const int64_t whole = vectors ? n / N : 0;
  for (int64_t i = first; i < whole; i += stride) body(i * N, Chunk<N>{});
  for (int64_t i = whole * N + first; i < n; i += stride) body(i, Chunk<1>{});
}

inline LaunchConfig elements_launch(const char* kernel, int64_t n, int chunk) {
  return launch_shape(kernel, (n + block_threads * chunk - 1) / (block_threads * chunk));
}

// ---- rows ----

// The rows a call covers; `count` is device memory, or nullptr: all.
__device__ inline int64_t live_rows(int64_t rows, const int32_t* count) {
  return count ? *count : rows;
}

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Combines over groups of `lanes` threads of a warp; everyone gets the result.
template <int lanes, class Op, class T>
__device__ T combine_lanes(T v, Op op) {
  const unsigned group = threadIdx.x % 32 / lanes * lanes;
  const unsigned mask = (lanes == 32 ? ~0u : (1u << lanes % 32) - 1) << group;
  for (int x = lanes / 2; x > 0; x /= 2) v = op(v, __shfl_xor_sync(mask, v, x, lanes));
  return v;
}

// Combines over the block, warp by warp in order; everyone gets the result. `part` is shared
// memory for this alone.
template <class Op, class T>
__device__ T combine_block(T (&part)[block_warps], T v, Op op) {
  v = combine_lanes<32>(v, op);
  __syncthreads();  // the results of the call before have been read
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = part[0];
  for (int w = 1; w < block_warps; ++w) v = op(v, part[w]);
  return v;
}

// Threads that work on one row together: 8 or 32 lanes of a warp, or the whole block. Row by row:
//
//   const Team<lanes> team;
//   for (int64_t r = team.first(); r < rows; r += team.stride()) {
//     float sum = 0;
//     team.template for_columns<wide<T>>(cols, vectors, [&](int64_t i, auto chunk) { ... });
//     sum = team.sum(sum);   // the same for all its threads
//   }
template <int lanes>
struct Team {
  struct Shared {
    float part[block_warps];
  };
  static constexpr int per_block = block_threads / lanes;
  static constexpr size_t shared_bytes = lanes > 32 ? sizeof(Shared) : 0;

  int rank;
  __device__ Team() : rank(static_cast<int>(threadIdx.x) % lanes) {}

  __device__ int64_t first() const {
    return int64_t{blockIdx.x} * per_block + static_cast<int>(threadIdx.x) / lanes;
  }
  __device__ int64_t stride() const { return int64_t{gridDim.x} * per_block; }

  __device__ float sum(float v) const { return combine(v, Add{}); }
  __device__ float max(float v) const { return combine(v, Larger{}); }

  // vectors: rows begin at multiples of N elements (aligned_rows).
  template <int N, class F>
  __device__ void for_columns(int64_t cols, bool vectors, F body) const {
    if (vectors) {
      for (int64_t i = int64_t{rank} * N; i < cols; i += lanes * N) body(i, Chunk<N>{});
    } else {
      for (int64_t i = rank; i < cols; i += lanes) body(i, Chunk<1>{});
    }
  }

 private:
  template <class Op>
  __device__ float combine(float v, Op op) const {
    if constexpr (lanes > 32) {
      return combine_block(shared<Shared>().part, v, op);
    } else {
      return combine_lanes<lanes>(v, op);
    }
  }
};

// As aligned, for every row of `cols` elements.
template <int N, class... T>
bool aligned_rows(int64_t cols, const T*... p) {
  return cols % N == 0 && aligned<N>(p...);
}

template <int lanes>
struct Lanes {};

// f(Lanes<lanes>, config) for the team that suits rows of `cols` elements.
template <class F>
void with_team(const char* kernel, int64_t rows, int64_t cols, F f) {
  const auto call = [&]<int lanes>(Lanes<lanes> team) {
    const int64_t teams = block_threads / lanes;
    f(team, launch_shape(kernel, (rows + teams - 1) / teams, Team<lanes>::shared_bytes));
  };
  if (cols <= 64) return call(Lanes<8>{});
  if (cols <= 1024) return call(Lanes<32>{});
  call(Lanes<block_threads>{});
}

}  // namespace rondo::RONDO_GPU
