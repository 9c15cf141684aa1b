// Reductions in two launches: blocks leave partial sums in the workspace, a second kernel adds them
// up in order. No atomics, so the order of sums depends on shapes alone.
#include <algorithm>

#include "kernels/base/check_view.h"
#include "kernels/reduce/reduce.h"
#include "kernels/simt/column_sums.h"

namespace rondo::RONDO_GPU {
namespace {

// ---- sums over rows ----

template <class T>
struct RowTerms {
  const T* x;
  int64_t cols;
  __device__ Floats<1> operator()(int64_t r, int64_t c) const {
    return {{to_float(x[r * cols + c])}};
  }
};

template <class T>
void rows_as(const Context& context, const ReduceRowsArgs& a) {
  const int64_t rows = a.x.dim(0), cols = a.x.dim(1);
  add_up_columns<1>(context, "reduce_rows",
                    {rows, cols, a.row_count, {a.y.as<float>()}, a.accumulate, nullptr},
                    a.workspace, RowTerms<T>{a.x.as<T>(), cols});
}

// ---- sums over flat arrays ----

struct Square {
  using Sum = double;
  __device__ static double term(float x) { return static_cast<double>(x) * static_cast<double>(x); }
};

struct Nonfinite {
  using Sum = int64_t;
  __device__ static int64_t term(float x) {
    return (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u ? 1 : 0;
  }
};

template <class Sum>
struct FlatShared {
  Sum part[block_warps];
};

template <class Term, class T>
__global__ void flat_parts(typename Term::Sum* parts, const T* x, int64_t n, bool vectors) {
  typename Term::Sum sum = 0;
  for_elements<wide<T>>(n, vectors, [&](int64_t i, auto chunk) {
    const auto v = chunk.get(x + i);
    for (int k = 0; k < chunk.n; ++k) sum += Term::term(v[k]);
  });
  sum = combine_block(shared<FlatShared<typename Term::Sum>>().part, sum, Add{});
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// One block. Out may be narrower than Sum.
template <class Sum, class Out>
__global__ void flat_total(Out* out, const Sum* parts, int count, bool accumulate) {
  Sum sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += block_threads) sum += parts[i];
  sum = combine_block(shared<FlatShared<Sum>>().part, sum, Add{});
  if (threadIdx.x == 0)
    *out = static_cast<Out>((accumulate ? static_cast<Sum>(*out) : Sum{0}) + sum);
}

template <class Term, class T, class Out>
void flat_as(const Context& context, const char* name, const TensorView& x, Out* out,
             bool accumulate, const TensorView& workspace) {
  using Sum = typename Term::Sum;
  constexpr int64_t most_parts = reduce_workspace_bytes / sizeof(Sum);
  static_assert(most_parts <= most_blocks, "each part has a block");
  constexpr int64_t part_elements = block_threads * 16;  // at least, to be worth a block
  const int64_t n = x.numel();
  const int64_t count = std::clamp<int64_t>((n + part_elements - 1) / part_elements, 1, most_parts);
  RONDO_CHECK(workspace.data != nullptr && workspace.bytes() >= reduce_workspace_bytes, name,
              " on a GPU needs a workspace of ", reduce_workspace_bytes, " bytes");
  Sum* parts = reinterpret_cast<Sum*>(workspace.data);
  const T* from = x.as<T>();
  LaunchConfig config = launch_shape(name, count, sizeof(FlatShared<Sum>));
  launch(context, config, flat_parts<Term, T>, parts, from, n, aligned<wide<T>>(from));
  config.grid = {1};
  launch(context, config, flat_total<Sum, Out>, out, parts, static_cast<int>(count), accumulate);
}

template <class Term, class Out>
void flat(const Context& context, const char* name, const TensorView& x, Out* out, bool accumulate,
          const TensorView& workspace) {
  visit_narrow(x.dtype,
               [&]<class T>(T) { flat_as<Term, T>(context, name, x, out, accumulate, workspace); });
}

}  // namespace

void reduce_rows_gpu(const Context& context, const ReduceRowsArgs& a) {
  check_elements("reduce_rows", "y", a.y, a.x.dim(1));
  if (a.x.dim(1) == 0) return;
  visit_narrow(a.x.dtype, [&]<class T>(T) { rows_as<T>(context, a); });
}

void sum_squares_gpu(const Context& context, const SumSquaresArgs& a) {
  check_elements("sum_squares", "out", a.out, 1);
  if (a.out.dtype == DType::f64) {
    flat<Square>(context, "sum_squares", a.x, a.out.as<double>(), a.accumulate, a.workspace);
  } else {
    flat<Square>(context, "sum_squares", a.x, a.out.as<float>(), a.accumulate, a.workspace);
  }
}

void count_nonfinite_gpu(const Context& context, const CountNonfiniteArgs& a) {
  check_elements("count_nonfinite", "out", a.out, 1);
  flat<Nonfinite>(context, "count_nonfinite", a.x, a.out.as<int32_t>(), a.accumulate, a.workspace);
}

}  // namespace rondo::RONDO_GPU
