// Of the tiles of logits: a warp to a row. What is done to a whole row is done by a thread, for it
// is a handful of numbers.
#include "kernels/linear_ctc/linear_ctc_impl.h"
#include "kernels/simt/memory_bound.h"

namespace rondo::RONDO_GPU {
namespace {

__global__ void linear_ctc_columns(LinearCtcRows a) {
  for (int64_t n = blockIdx.x; n < a.layout.extent->sequences; n += gridDim.x) {
    const int64_t first = a.label_offsets[n], count = a.label_offsets[n + 1] - first;
    const int32_t* labels = a.labels + first;
    int32_t* classes = a.classes + n * a.columns;
    if (threadIdx.x == 0) classes[0] = a.blank;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      int64_t j = 0;
      while (labels[j] != labels[i]) ++j;
      classes[1 + i] = j == i ? labels[i] : -1;
      a.places[first + i] = static_cast<int32_t>(1 + j);
    }
  }
}

// Rows of the tile that the batch has.
__device__ int64_t rows_in(const LinearCtcRows& a, const LinearCtcTile& t) {
  const int64_t rows = a.layout.extent->rows - t.first_row;
  return rows < t.rows ? rows : t.rows;
}

__global__ void linear_ctc_statistics(LinearCtcRows a, LinearCtcTile t, bool vectors) {
  const Team<32> team;
  const int64_t rows = rows_in(a, t);
  const bool begins = t.first_class == 0;
  for (int64_t i = team.first(); i < rows; i += team.stride()) {
    const int64_t r = t.first_row + i;
    const float* z = t.logits + i * t.classes;
    float highest = -INFINITY;
    team.template for_columns<4>(t.classes, vectors, [&](int64_t k, auto chunk) {
      const auto v = chunk.get(z + k);
      for (int j = 0; j < chunk.n; ++j) highest = fmaxf(highest, v[j]);
    });
    // A NaN may slip through the maximum, but not through the sum.
    highest = team.max(highest);
    const float shift = finite_shift(highest);
    float sum = 0;
    team.template for_columns<4>(t.classes, vectors, [&](int64_t k, auto chunk) {
      const auto v = chunk.get(z + k);
      for (int j = 0; j < chunk.n; ++j) sum += expf(v[j] - shift);
    });
    sum = team.sum(sum);
    if (team.rank == 0) {
      // One thread alone reads and writes what earlier tiles have left.
      const float before = begins ? -INFINITY : a.highest[r];
      const float most = fmaxf(before, highest), base = finite_shift(most);
      const float earlier = begins ? 0 : a.total[r] * expf(before - base);
      a.total[r] = earlier + sum * expf(shift - base);
      a.highest[r] = most;
    }
    const LinearCtcColumns c = columns_of_row(a, r);
    for_columns_in(c, t, team.rank, 32, [&](int64_t k, int64_t v) { c.label_grad[k] = z[v]; });
  }
}

__global__ void linear_ctc_normalize(LinearCtcRows a) {
  const Team<32> team;
  for (int64_t r = team.first(); r < a.layout.extent->rows; r += team.stride()) {
    const float log_sum = finite_shift(a.highest[r]) + logf(a.total[r]);
    // Of no finite logit, or an infinite one, there is no softmax.
    const bool finite = log_sum > -INFINITY && log_sum < INFINITY;
    const float normalizer = finite ? log_sum : NAN;
    if (team.rank == 0) a.normalizer[r] = normalizer;
    const LinearCtcColumns c = columns_of_row(a, r);
    for (int64_t k = team.rank; k < c.count; k += 32) {
      if (c.classes[k] >= 0) c.label_grad[k] -= normalizer;
    }
  }
}

__global__ void linear_ctc_settle(LinearCtcRows a) {
  const Team<32> team;
  for (int64_t r = team.first(); r < a.layout.extent->rows; r += team.stride()) {
    const LinearCtcColumns c = columns_of_row(a, r);
    float posterior = 0;
    for (int64_t k = team.rank; k < c.count; k += 32) posterior -= c.label_grad[k];
    posterior = team.sum(posterior);
    if (team.rank != 0) continue;
    if (posterior == 0) a.normalizer[r] = INFINITY;
    if (posterior != posterior) a.normalizer[r] = posterior;
  }
}

template <class T>
__global__ void linear_ctc_gradient(LinearCtcRows a, LinearCtcTile t, bool vectors) {
  const Team<32> team;
  const int64_t rows = rows_in(a, t);
  for (int64_t i = team.first(); i < rows; i += team.stride()) {
    const int64_t r = t.first_row + i;
    const float* z = t.logits + i * t.classes;
    T* out = static_cast<T*>(t.gradient) + i * t.classes;
    const float normalizer = a.normalizer[r];
    const LinearCtcColumns c = columns_of_row(a, r);
    team.template for_columns<4>(t.classes, vectors, [&](int64_t k, auto chunk) {
      auto v = chunk.get(z + k);
      for (int j = 0; j < chunk.n; ++j) v[j] = expf(v[j] - normalizer);
      chunk.put(out + k, v);
    });
    __syncwarp();
    for_columns_in(c, t, team.rank, 32, [&](int64_t k, int64_t v) {
      if constexpr (sizeof(T) == 4) {
        out[v] += c.label_grad[k];  // the gradient has taken the place of the logits
      } else {
        out[v] = to<T>(expf(z[v] - normalizer) + c.label_grad[k]);
      }
    });
  }
}

LaunchConfig rows_launch(const char* kernel, int64_t rows) {
  return launch_shape(kernel, (rows + block_warps - 1) / block_warps);
}

void columns(const Context& context, const LinearCtcRows& a) {
  launch(context, launch_shape("linear_ctc_columns", a.layout.capacity.sequences),
         linear_ctc_columns, a);
}

void statistics(const Context& context, const LinearCtcRows& a, const LinearCtcTile& t) {
  launch(context, rows_launch("linear_ctc_statistics", t.rows), linear_ctc_statistics, a, t,
         aligned_rows<4>(t.classes, t.logits));
}

void normalize(const Context& context, const LinearCtcRows& a) {
  launch(context, rows_launch("linear_ctc_normalize", a.layout.capacity.rows), linear_ctc_normalize,
         a);
}

void settle(const Context& context, const LinearCtcRows& a) {
  launch(context, rows_launch("linear_ctc_settle", a.layout.capacity.rows), linear_ctc_settle, a);
}

void gradient(const Context& context, const LinearCtcRows& a, const LinearCtcTile& t) {
  visit_narrow(t.dtype, [&]<class T>(T) {
    launch(context, rows_launch("linear_ctc_gradient", t.rows), linear_ctc_gradient<T>, a, t,
           aligned_rows<4>(t.classes, t.logits, static_cast<const T*>(t.gradient)));
  });
}

constexpr LinearCtcDevice device{columns, statistics, normalize, settle, gradient};

}  // namespace

void linear_ctc_gpu(const Context& context, const LinearCtcArgs& a) {
  linear_ctc_with(device, context, a);
}

void linear_ctc_grad_gpu(const Context& context, const LinearCtcGradArgs& a) {
  linear_ctc_with(device, context, a);
}

}  // namespace rondo::RONDO_GPU
