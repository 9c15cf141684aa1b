// Losses over rows: a team of threads per row. Cross-entropy reads a row three times, twice from
// the first-level cache. What a thread overwrites (grad may be logits), no other thread reads.
#include "kernels/base/check_view.h"
#include "kernels/loss/loss.h"
#include "kernels/simt/memory_bound.h"

namespace rondo::RONDO_GPU {
namespace {

template <class T>
struct CrossEntropy {
  const T* logits;
  const int32_t* targets;
  const float* scale;
  float* loss;
  T* grad;
  int64_t rows, classes;
  const int32_t* row_count;
  bool vectors;
};

template <class T, int lanes>
__global__ void cross_entropy(CrossEntropy<T> a) {
  constexpr int N = wide<T>;
  const Team<lanes> team;
  const int64_t rows = live_rows(a.rows, a.row_count);
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const T* x = a.logits + r * a.classes;
    T* grad = a.grad ? a.grad + r * a.classes : nullptr;
    const int32_t target = a.targets[r];
    if (target == ignored_target) {
      if (team.rank == 0) a.loss[r] = 0;
      if (grad) {
        team.template for_columns<N>(a.classes, a.vectors,
                                     [&](int64_t i, auto chunk) { chunk.put(grad + i, {}); });
      }
      continue;
    }
    const bool known = target >= 0 && target < a.classes;
    const float scale = !known ? NAN : a.scale ? a.scale[r] : 1.0f;
    float highest = -INFINITY;
    team.template for_columns<N>(a.classes, a.vectors, [&](int64_t i, auto chunk) {
      const auto v = chunk.get(x + i);
      for (int k = 0; k < chunk.n; ++k) highest = fmaxf(highest, v[k]);
    });
    highest = team.max(highest);
    float sum = 0, at_target = 0;
    team.template for_columns<N>(a.classes, a.vectors, [&](int64_t i, auto chunk) {
      const auto v = chunk.get(x + i);
      for (int k = 0; k < chunk.n; ++k) {
        sum += expf(v[k] - highest);
        if (i + k == target) at_target = v[k];  // one thread has it
      }
    });
    sum = team.sum(sum);
    at_target = team.sum(at_target);
    if (team.rank == 0) {
      a.loss[r] = scale == scale ? logf(sum) - (at_target - highest) : NAN;
    }
    if (!grad) continue;
    const float share = 1.0f / sum;
    team.template for_columns<N>(a.classes, a.vectors, [&](int64_t i, auto chunk) {
      auto v = chunk.get(x + i);
      for (int k = 0; k < chunk.n; ++k) {
        v[k] = (expf(v[k] - highest) * share - (i + k == target ? 1.0f : 0.0f)) * scale;
      }
      chunk.put(grad + i, v);
    });
  }
}

template <class T>
struct Mse {
  const T *pred, *target;
  const float* scale;
  float* loss;
  T* grad;
  int64_t rows, cols;
  const int32_t* row_count;
  float share;
  bool vectors;
};

template <class T, int lanes>
__global__ void mse(Mse<T> a) {
  constexpr int N = wide<T>;
  const Team<lanes> team;
  const int64_t rows = live_rows(a.rows, a.row_count);
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const T* pred = a.pred + r * a.cols;
    const T* target = a.target + r * a.cols;
    const float slope = 2.0f * a.share * (a.scale ? a.scale[r] : 1.0f);
    float sum = 0;
    team.template for_columns<N>(a.cols, a.vectors, [&](int64_t i, auto chunk) {
      auto p = chunk.get(pred + i);
      const auto t = chunk.get(target + i);
      for (int k = 0; k < chunk.n; ++k) {
        const float difference = p[k] - t[k];
        sum += difference * difference;
        p[k] = difference * slope;
      }
      if (a.grad) chunk.put(a.grad + r * a.cols + i, p);
    });
    sum = team.sum(sum);
    if (team.rank == 0) a.loss[r] = sum * a.share;
  }
}

template <class T>
void cross_entropy_as(const Context& context, const CrossEntropyArgs& args) {
  CrossEntropy<T> a = {args.logits.as<T>(),   args.targets,      args.grad_scale.as<float>(),
                       args.loss.as<float>(), args.grad.as<T>(), args.logits.dim(0),
                       args.logits.dim(1),    args.row_count,    false};
  a.vectors = aligned_rows<wide<T>>(a.classes, a.logits, a.grad);
  with_team("cross_entropy", a.rows, a.classes,
            [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
              launch(context, config, cross_entropy<T, lanes>, a);
            });
}

template <class T>
void mse_as(const Context& context, const MseArgs& args) {
  Mse<T> a = {args.pred.as<T>(),
              args.target.as<T>(),
              args.grad_scale.as<float>(),
              args.loss.as<float>(),
              args.grad.as<T>(),
              args.pred.dim(0),
              args.pred.dim(1),
              args.row_count,
              1.0f,
              false};
  // No columns: no sum, and nothing to divide by.
  if (args.reduction == MseReduction::mean && a.cols > 0)
    a.share = 1.0f / static_cast<float>(a.cols);
  a.vectors = aligned_rows<wide<T>>(a.cols, a.pred, a.target, a.grad);
  with_team("mse", a.rows, a.cols, [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
    launch(context, config, mse<T, lanes>, a);
  });
}

}  // namespace

void cross_entropy_gpu(const Context& context, const CrossEntropyArgs& a) {
  const int64_t rows = a.logits.dim(0);
  if (a.grad) check_like("cross_entropy", "grad", a.grad, a.logits);
  if (a.grad_scale) check_elements("cross_entropy", "grad_scale", a.grad_scale, rows);
  check_elements("cross_entropy", "loss", a.loss, rows);
  if (rows == 0) return;
  visit_narrow(a.logits.dtype, [&]<class T>(T) { cross_entropy_as<T>(context, a); });
}

void mse_gpu(const Context& context, const MseArgs& a) {
  const int64_t rows = a.pred.dim(0);
  check_like("mse", "target", a.target, a.pred);
  if (a.grad) check_like("mse", "grad", a.grad, a.pred);
  if (a.grad_scale) check_elements("mse", "grad_scale", a.grad_scale, rows);
  check_elements("mse", "loss", a.loss, rows);
  if (rows == 0) return;
  visit_narrow(a.pred.dtype, [&]<class T>(T) { mse_as<T>(context, a); });
}

}  // namespace rondo::RONDO_GPU
