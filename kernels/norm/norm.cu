// Layer normalisation: a team of threads per row, which reads it once from device memory and then
// from the first-level cache. The weights' gradients are sums of columns, before dx is written
// (which may overwrite dy).
#include "kernels/base/check_view.h"
#include "kernels/norm/norm.h"
#include "kernels/simt/column_sums.h"

namespace rondo::RONDO_GPU {
namespace {

template <class T>
struct Forward {
  const T* x;
  const float *gamma, *beta;
  T* y;
  float *mean, *rstd;
  int64_t rows, cols;
  const int32_t* row_count;
  float epsilon;
  bool vectors;
};

template <class T, int lanes>
__global__ void layer_norm(Forward<T> a) {
  constexpr int N = wide<T, float>;
  const Team<lanes> team;
  const int64_t rows = live_rows(a.rows, a.row_count);
  const float share = 1.0f / static_cast<float>(a.cols);
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const T* x = a.x + r * a.cols;
    T* y = a.y + r * a.cols;
    float sum = 0;
    team.template for_columns<N>(a.cols, a.vectors, [&](int64_t i, auto chunk) {
      const auto v = chunk.get(x + i);
      for (int k = 0; k < chunk.n; ++k) sum += v[k];
    });
    const float mean = team.sum(sum) * share;
    float squares = 0;
    team.template for_columns<N>(a.cols, a.vectors, [&](int64_t i, auto chunk) {
      const auto v = chunk.get(x + i);
      for (int k = 0; k < chunk.n; ++k) squares += (v[k] - mean) * (v[k] - mean);
    });
    const float rstd = 1.0f / sqrtf(team.sum(squares) * share + a.epsilon);
    if (team.rank == 0) {
      if (a.mean) a.mean[r] = mean;
      if (a.rstd) a.rstd[r] = rstd;
    }
    team.template for_columns<N>(a.cols, a.vectors, [&](int64_t i, auto chunk) {
      auto v = chunk.get(x + i);
      const auto gamma = chunk.get(a.gamma + i), beta = chunk.get(a.beta + i);
      for (int k = 0; k < chunk.n; ++k) v[k] = (v[k] - mean) * rstd * gamma[k] + beta[k];
      chunk.put(y + i, v);
    });
  }
}

template <class T>
struct Backward {
  const T *x, *dy;
  const float *gamma, *mean, *rstd;
  T* dx;
  int64_t rows, cols;
  const int32_t* row_count;
  bool vectors;
};

template <class T, int lanes>
__global__ void layer_norm_grad(Backward<T> a) {
  constexpr int N = wide<T, float>;
  const Team<lanes> team;
  const int64_t rows = live_rows(a.rows, a.row_count);
  const float share = 1.0f / static_cast<float>(a.cols);
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const int64_t row = r * a.cols;
    const float mean = a.mean[r], rstd = a.rstd[r];
    float sum_g = 0, sum_gx = 0;
    team.template for_columns<N>(a.cols, a.vectors, [&](int64_t i, auto chunk) {
      const auto x = chunk.get(a.x + row + i), dy = chunk.get(a.dy + row + i);
      const auto gamma = chunk.get(a.gamma + i);
      for (int k = 0; k < chunk.n; ++k) {
        const float g = dy[k] * gamma[k];
        sum_g += g;
        sum_gx += g * ((x[k] - mean) * rstd);
      }
    });
    const float mean_g = team.sum(sum_g) * share, mean_gx = team.sum(sum_gx) * share;
    team.template for_columns<N>(a.cols, a.vectors, [&](int64_t i, auto chunk) {
      const auto x = chunk.get(a.x + row + i), gamma = chunk.get(a.gamma + i);
      auto g = chunk.get(a.dy + row + i);
      for (int k = 0; k < chunk.n; ++k) {
        g[k] = rstd * (g[k] * gamma[k] - mean_g - (x[k] - mean) * rstd * mean_gx);
      }
      chunk.put(a.dx + row + i, g);
    });
  }
}

// What row r adds to the gradients of gamma and beta.
template <class T>
struct WeightTerms {
  Backward<T> a;
  __device__ Floats<2> operator()(int64_t r, int64_t c) const {
    const float dy = to_float(a.dy[r * a.cols + c]), x = to_float(a.x[r * a.cols + c]);
    return {{dy * ((x - a.mean[r]) * a.rstd[r]), dy}};
  }
};

template <class T>
void forward(const Context& context, const LayerNormArgs& args) {
  Forward<T> a = {args.x.as<T>(),
                  args.gamma.as<float>(),
                  args.beta.as<float>(),
                  args.y.as<T>(),
                  args.mean.as<float>(),
                  args.rstd.as<float>(),
                  args.x.dim(0),
                  args.x.dim(1),
                  args.row_count,
                  args.epsilon,
                  false};
  a.vectors = aligned_rows<wide<T, float>>(a.cols, a.x, a.y, a.gamma, a.beta);
  with_team("layer_norm", a.rows, a.cols, [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
    launch(context, config, layer_norm<T, lanes>, a);
  });
}

template <class T>
void backward(const Context& context, const LayerNormGradArgs& args) {
  Backward<T> a = {args.x.as<T>(),         args.dy.as<T>(),
                   args.gamma.as<float>(), args.mean.as<float>(),
                   args.rstd.as<float>(),  args.dx.as<T>(),
                   args.x.dim(0),          args.x.dim(1),
                   args.row_count,         false};
  a.vectors = aligned_rows<wide<T, float>>(a.cols, a.x, a.dy, a.dx, a.gamma);
  if (args.dgamma || args.dbeta) {
    add_up_columns<2>(context, "layer_norm_weight_grad",
                      {a.rows,
                       a.cols,
                       a.row_count,
                       {args.dgamma.as<float>(), args.dbeta.as<float>()},
                       args.accumulate,
                       nullptr},
                      args.workspace, WeightTerms<T>{a});
  }
  if (!args.dx || a.rows == 0) return;
  with_team("layer_norm_grad", a.rows, a.cols,
            [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
              launch(context, config, layer_norm_grad<T, lanes>, a);
            });
}

}  // namespace

void layer_norm_gpu(const Context& context, const LayerNormArgs& a) {
  const int64_t rows = a.x.dim(0), cols = a.x.dim(1);
  check_like("layer_norm", "y", a.y, a.x);
  check_elements("layer_norm", "gamma", a.gamma, cols);
  check_elements("layer_norm", "beta", a.beta, cols);
  if (a.mean) check_elements("layer_norm", "mean", a.mean, rows);
  if (a.rstd) check_elements("layer_norm", "rstd", a.rstd, rows);
  if (a.x.numel() == 0) return;
  visit_narrow(a.x.dtype, [&]<class T>(T) { forward<T>(context, a); });
}

void layer_norm_grad_gpu(const Context& context, const LayerNormGradArgs& a) {
  const int64_t rows = a.x.dim(0), cols = a.x.dim(1);
  check_like("layer_norm_grad", "dy", a.dy, a.x);
  if (a.dx) check_like("layer_norm_grad", "dx", a.dx, a.x);
  check_elements("layer_norm_grad", "gamma", a.gamma, cols);
  check_elements("layer_norm_grad", "mean", a.mean, rows);
  check_elements("layer_norm_grad", "rstd", a.rstd, rows);
  if (a.dgamma) check_elements("layer_norm_grad", "dgamma", a.dgamma, cols);
  if (a.dbeta) check_elements("layer_norm_grad", "dbeta", a.dbeta, cols);
  visit_narrow(a.x.dtype, [&]<class T>(T) { backward<T>(context, a); });
}

}  // namespace rondo::RONDO_GPU
