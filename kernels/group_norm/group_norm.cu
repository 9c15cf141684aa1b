// Group normalisation on GPUs. Sums are those of columns (kernels/simt/column_sums.h), a block of
// threads to a block of frames and 32 channels; then a thread for each group of a sequence adds
// them up; then a thread goes over every few values. The mean comes before the squares, so x is
// read three times forward. This is for correct results on every GPU, not for speed.
#include "kernels/group_norm/group_norm_impl.h"
#include "kernels/simt/column_sums.h"

namespace rondo::RONDO_GPU {
namespace {

struct Batch {
  GroupNormDims d;
  PackedView layout;
  GroupNormSpace space;

  __device__ int64_t group_size() const { return d.channels / d.groups; }
  // Values of sequence n in each group.
  __device__ double count(int64_t n) const {
    return static_cast<double>(layout.lengths[n] * d.height * group_size());
  }
  __device__ double* part(int64_t block, int k, int64_t c) const {
    return space.parts + (block * 2 + k) * d.channels + c;
  }
  __device__ float* of_group(int64_t n, int64_t k) const {
    return space.of_groups + (n * d.groups + k) * 2;
  }
};

// parts[block][k][c] = the sums of K terms over the pixels of block blockIdx.x, for 32 channels.
// terms(n, channel, place) gives them.
template <int K, class Terms>
__global__ void group_norm_parts(Batch a, Terms terms) {
  GroupNormBlock b;
  if (!group_norm_block(a.layout, blockIdx.x, &b)) return;
  const int64_t c = int64_t{blockIdx.y} * 32 + threadIdx.x % 32, height = a.d.height;
  double total[K] = {};
  sum_columns<K>(0, b.count * height, c < a.d.channels, total, [&](int64_t p) {
    const int64_t row = a.layout.row_offsets[b.first + p / height] + b.n;
    return terms(b.n, c, (row * height + p % height) * a.d.channels + c);
  });
  if (threadIdx.x >= 32 || c >= a.d.channels) return;
  for (int k = 0; k < K; ++k) *a.part(blockIdx.x, k, c) = total[k];
}

template <class T>
struct Values {
  const T* x;
  __device__ Floats<1> operator()(int64_t, int64_t, int64_t place) const {
    return {{to_float(x[place])}};
  }
};

template <class T>
struct Squares {
  const T* x;
  Batch a;
  __device__ Floats<1> operator()(int64_t n, int64_t c, int64_t place) const {
    const float centred = to_float(x[place]) - a.of_group(n, c / a.group_size())[0];
    return {{centred * centred}};
  }
};

template <class T>
struct GradientTerms {
  const T *x, *dy;
  const float *mean, *rstd;
  int64_t groups, size;
  __device__ Floats<2> operator()(int64_t n, int64_t c, int64_t place) const {
    const int64_t k = n * groups + c / size;
    const float g = to_float(dy[place]);
    return {{g, g * ((to_float(x[place]) - mean[k]) * rstd[k])}};
  }
};

// The sum over the blocks of sequence n of what they have of channel c.
__device__ inline double sequence_sum(const Batch& a, int64_t n, int k, int64_t c) {
  double sum = 0;
  for_group_norm_blocks(a.layout, n, [&](int64_t block, int64_t) { sum += *a.part(block, k, c); });
  return sum;
}

// A thread per group of a sequence: of_group(n, k)[0] = the mean, or, when that is known, [1] =
// rstd.
__global__ void group_norm_statistics(Batch a, bool squares, float epsilon, float* mean,
                                      float* rstd) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= int64_t{a.layout.capacity.sequences} * a.d.groups) return;
  const int64_t n = i / a.d.groups, k = i % a.d.groups, size = a.group_size();
  double value = 0;
  if (n < a.layout.extent->sequences) {
    for (int64_t c = k * size; c < (k + 1) * size; ++c) value += sequence_sum(a, n, 0, c);
    value /= a.count(n);
    if (squares) value = 1 / sqrt(value + static_cast<double>(epsilon));
  }
  a.of_group(n, k)[squares] = static_cast<float>(value);
  float* kept = squares ? rstd : mean;
  if (kept) kept[i] = static_cast<float>(value);
}

template <class T>
struct Apply {
  Batch a;
  const T* x;
  const float *gamma, *beta;
  T* y;
  bool vectors;
};

template <class T>
__global__ void group_norm(Apply<T> f) {
  const Batch& a = f.a;
  const int64_t cols = a.d.height * a.d.channels, size = a.group_size();
  for_elements<wide<T, float>>(a.layout.extent->rows * cols, f.vectors, [&](int64_t i, auto chunk) {
    const int64_t r = i / cols, n = r - a.layout.row_offsets[a.layout.row_frame[r]];
    const int64_t c = i % a.d.channels;
    auto v = chunk.get(f.x + i);
    const auto gamma = chunk.get(f.gamma + c), beta = chunk.get(f.beta + c);
    for (int j = 0; j < chunk.n; ++j) {
      const float* of = a.of_group(n, (c + j) / size);
      v[j] = (v[j] - of[0]) * (of[1] * gamma[j]) + beta[j];
    }
    chunk.put(f.y + i, v);
  });
}

// A thread per group of a sequence: the sums of its channels, and its two means.
__global__ void group_norm_grad_sums(Batch a, const float* gamma) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t n = i / a.d.groups, k = i % a.d.groups, size = a.group_size();
  if (n >= a.layout.extent->sequences) return;
  double g = 0, gx = 0;
  for (int64_t c = k * size; c < (k + 1) * size; ++c) {
    double* sums = a.space.sums + n * 2 * a.d.channels + c;
    sums[0] = sequence_sum(a, n, 0, c);
    sums[a.d.channels] = sequence_sum(a, n, 1, c);
    g += static_cast<double>(gamma[c]) * sums[0];
    gx += static_cast<double>(gamma[c]) * sums[a.d.channels];
  }
  a.of_group(n, k)[0] = static_cast<float>(g / a.count(n));
  a.of_group(n, k)[1] = static_cast<float>(gx / a.count(n));
}

// A thread per channel.
__global__ void group_norm_weight_grad(Batch a, float* dgamma, float* dbeta, bool accumulate) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= a.d.channels) return;
  for (int which = 0; which < 2; ++which) {
    float* out = which == 0 ? dbeta : dgamma;
    if (out == nullptr) continue;
    double sum = accumulate ? static_cast<double>(out[c]) : 0;
    for (int64_t n = 0; n < a.layout.extent->sequences; ++n)
      sum += a.space.sums[(2 * n + which) * a.d.channels + c];
    out[c] = static_cast<float>(sum);
  }
}

template <class T>
struct ApplyGradient {
  Batch a;
  const T *x, *dy;
  const float *gamma, *mean, *rstd;
  T* dx;
  bool vectors;
};

template <class T>
__global__ void group_norm_grad(ApplyGradient<T> f) {
  const Batch& a = f.a;
  const int64_t cols = a.d.height * a.d.channels, size = a.group_size();
  for_elements<wide<T, float>>(a.layout.extent->rows * cols, f.vectors, [&](int64_t i, auto chunk) {
    const int64_t r = i / cols, n = r - a.layout.row_offsets[a.layout.row_frame[r]];
    const int64_t c = i % a.d.channels;
    const auto x = chunk.get(f.x + i), gamma = chunk.get(f.gamma + c);
    auto g = chunk.get(f.dy + i);
    for (int j = 0; j < chunk.n; ++j) {
      const int64_t k = (c + j) / size;
      const float* of = a.of_group(n, k);
      const float rstd = f.rstd[n * a.d.groups + k];
      const float xhat = (x[j] - f.mean[n * a.d.groups + k]) * rstd;
      g[j] = rstd * (g[j] * gamma[j] - of[0] - xhat * of[1]);
    }
    chunk.put(f.dx + i, g);
  });
}

template <class Args>
Batch batch_of(const Args& args) {
  return {args.dims, args.layout,
          group_norm_space(args.workspace, args.dims, args.layout.capacity)};
}

template <int K, class Terms>
void sum_parts(const Context& context, const char* name, const Batch& a, const Terms& terms) {
  const int64_t blocks = group_norm_blocks(a.layout.capacity);
  launch(context,
         {.kernel = name,
          .grid = {static_cast<unsigned>(blocks), blocks_for(a.d.channels, 32)},
          .block = {block_threads},
          .shared_bytes = sizeof(ColumnSums<K>)},
         group_norm_parts<K, Terms>, a, terms);
}

LaunchConfig one_each(const char* name, int64_t threads) {
  return {.kernel = name, .grid = {blocks_for(threads, 128)}, .block = {128}};
}

template <class T>
void forward(const Context& context, const GroupNormArgs& args) {
  const Batch a = batch_of(args);
  const T* x = args.x.as<T>();
  const int64_t groups = int64_t{a.layout.capacity.sequences} * a.d.groups;
  const auto statistics = [&](bool squares) {
    launch(context, one_each("group_norm_statistics", groups), group_norm_statistics, a, squares,
           args.epsilon, args.mean.as<float>(), args.rstd.as<float>());
  };
  sum_parts<1>(context, "group_norm_values", a, Values<T>{x});
  statistics(false);
  sum_parts<1>(context, "group_norm_squares", a, Squares<T>{x, a});
  statistics(true);
  Apply<T> f = {a, x, args.gamma.as<float>(), args.beta.as<float>(), args.y.as<T>(), false};
  constexpr int N = wide<T, float>;
  f.vectors = aligned_rows<N>(a.d.channels, f.x, f.y, f.gamma, f.beta);
  if (args.x.numel() == 0) return;
  launch(context, elements_launch("group_norm", args.x.numel(), N), group_norm<T>, f);
}

template <class T>
void backward(const Context& context, const GroupNormGradArgs& args) {
  const Batch a = batch_of(args);
  const int64_t sequences = a.layout.capacity.sequences;
  ApplyGradient<T> f = {a,
                        args.x.as<T>(),
                        args.dy.as<T>(),
                        args.gamma.as<float>(),
                        args.mean.as<float>(),
                        args.rstd.as<float>(),
                        args.dx.as<T>(),
                        false};
  if (sequences > 0) {
    sum_parts<2>(
        context, "group_norm_grad_parts", a,
        GradientTerms<T>{f.x, f.dy, f.mean, f.rstd, a.d.groups, a.d.channels / a.d.groups});
    launch(context, one_each("group_norm_grad_sums", sequences * a.d.groups), group_norm_grad_sums,
           a, f.gamma);
  }
  if (args.dgamma || args.dbeta) {
    launch(context, one_each("group_norm_weight_grad", a.d.channels), group_norm_weight_grad, a,
           args.dgamma.as<float>(), args.dbeta.as<float>(), args.accumulate);
  }
  if (!args.dx || args.dx.numel() == 0) return;
  constexpr int N = wide<T, float>;
  f.vectors = aligned_rows<N>(a.d.channels, f.x, f.dy, f.dx, f.gamma);
  launch(context, elements_launch("group_norm_grad", args.dx.numel(), N), group_norm_grad<T>, f);
}

}  // namespace

void group_norm_gpu(const Context& context, const GroupNormArgs& a) {
  check_group_norm(a);
  if (a.layout.capacity.sequences == 0) return;
  visit_narrow(a.x.dtype, [&]<class T>(T) { forward<T>(context, a); });
}

void group_norm_grad_gpu(const Context& context, const GroupNormGradArgs& a) {
  check_group_norm(a);
  visit_narrow(a.x.dtype, [&]<class T>(T) { backward<T>(context, a); });
}

}  // namespace rondo::RONDO_GPU
