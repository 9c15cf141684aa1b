#include <cmath>
#include <limits>

#include "kernels/base/variants.h"
#include "kernels/loss/loss.h"

namespace rondo {
namespace {

template <class T>
using LossOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
void cross_entropy_row(const T* x, int64_t classes, int32_t target, double scale, LossOf<T>& loss,
                       T* grad) {
  if (target == ignored_target) {
    loss = 0;
    for (int64_t v = 0; grad && v < classes; ++v) grad[v] = T(0.0f);
    return;
  }
  if (target < 0 || target >= classes) scale = std::numeric_limits<double>::quiet_NaN();
  double highest = -std::numeric_limits<double>::infinity();
  for (int64_t v = 0; v < classes; ++v) highest = std::fmax(highest, static_cast<double>(x[v]));
  double sum = 0;
  for (int64_t v = 0; v < classes; ++v) sum += std::exp(static_cast<double>(x[v]) - highest);
  loss = static_cast<LossOf<T>>(
      std::isnan(scale) ? scale : std::log(sum) - (static_cast<double>(x[target]) - highest));
  for (int64_t v = 0; grad && v < classes; ++v) {
    const double p = std::exp(static_cast<double>(x[v]) - highest) / sum;
    grad[v] = static_cast<T>((p - (v == target ? 1 : 0)) * scale);
  }
}

}  // namespace

void cross_entropy_ref(const Context&, const CrossEntropyArgs& a) {
  const int64_t rows = covered_rows(a.logits, a.row_count), classes = a.logits.dim(1);
  visit_floating(a.logits.dtype, [&]<class T>(T) {
    using Loss = LossOf<T>;
    for (int64_t r = 0; r < rows; ++r) {
      const double scale = a.grad_scale ? static_cast<double>(a.grad_scale.as<Loss>()[r]) : 1;
      cross_entropy_row(a.logits.as<T>() + r * classes, classes, a.targets[r], scale,
                        a.loss.as<Loss>()[r], a.grad ? a.grad.as<T>() + r * classes : nullptr);
    }
  });
}

void mse_ref(const Context&, const MseArgs& a) {
  const int64_t rows = covered_rows(a.pred, a.row_count), cols = a.pred.dim(1);
  const double share = a.reduction == MseReduction::mean ? 1.0 / static_cast<double>(cols) : 1;
  visit_floating(a.pred.dtype, [&]<class T>(T) {
    using Loss = LossOf<T>;
    for (int64_t r = 0; r < rows; ++r) {
      const double scale = a.grad_scale ? static_cast<double>(a.grad_scale.as<Loss>()[r]) : 1;
      double sum = 0;
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
        const double difference =
            static_cast<double>(a.pred.as<T>()[i]) - static_cast<double>(a.target.as<T>()[i]);
        sum += difference * difference;
        if (a.grad) a.grad.as<T>()[i] = static_cast<T>(2 * difference * share * scale);
      }
      a.loss.as<Loss>()[r] = static_cast<Loss>(cols ? sum * share : 0);
    }
  });
}

}  // namespace rondo
