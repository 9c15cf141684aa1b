#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ctc/ctc_impl.h"
#include "kernels/linear_ctc/linear_ctc_impl.h"

namespace rondo {
namespace {

// All logits, in double.
template <class T>
std::vector<double> logits_of(const LinearCtc& a) {
  const int64_t rows = a.layout.extent->rows, hidden = a.x.dim(1), classes = a.w.dim(0);
  std::vector<double> logits(static_cast<size_t>(a.layout.capacity.rows * classes));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < classes; ++v) {
      double sum = 0;
      for (int64_t h = 0; h < hidden; ++h) {
        sum += static_cast<double>(a.x.as<T>()[r * hidden + h]) *
               static_cast<double>(a.w.as<T>()[v * hidden + h]);
      }
      if (a.bias) {
        sum += a.bias.dtype == DType::f64 ? a.bias.as<double>()[v]
                                          : static_cast<double>(a.bias.as<float>()[v]);
      }
      logits[static_cast<size_t>(r * classes + v)] = sum;
    }
  }
  return logits;
}

std::vector<double> logits_of(const LinearCtc& a) {
  std::vector<double> logits;
  visit_floating(a.x.dtype, [&]<class T>(T) { logits = logits_of<T>(a); });
  return logits;
}

double log_sum(const double* logits, int64_t classes) {
  double highest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t v = 0; v < classes; ++v) highest = std::fmax(highest, logits[v]);
  for (int64_t v = 0; v < classes; ++v) sum += std::exp(logits[v] - highest);
  return highest + std::log(sum);
}

int64_t sequence_of(const PackedView& layout, int64_t r) {
  return r - layout.row_offsets[layout.row_frame[r]];
}

// The column of the first label that is of class v; -1: the sequence has none.
int64_t column_of(const LinearCtc& a, int64_t n, int32_t v) {
  if (v == a.blank) return 0;
  for (int32_t i = a.label_offsets[n]; i < a.label_offsets[n + 1]; ++i) {
    if (a.labels[i] == v) return 1 + i - a.label_offsets[n];
  }
  return -1;
}

// From the gradient of the logits, softmax - posterior.
template <class W>
void label_grads(const LinearCtcArgs& a, const std::vector<double>& logits,
                 const std::vector<double>& grad) {
  const int64_t classes = a.w.dim(0), columns = int64_t{a.max_label_length} + 1;
  for (int64_t r = 0; r < a.layout.extent->rows; ++r) {
    const double* z = logits.data() + r * classes;
    const double* dz = grad.data() + r * classes;
    const double normalizer = log_sum(z, classes);
    W* out = a.label_grad.as<W>() + r * columns;
    double largest = 0;
    for (int64_t v = 0; v < classes; ++v) largest = std::fmax(largest, std::fabs(dz[v]));
    const bool wrong = std::isnan(dz[0]), none = largest == 0;
    for (int64_t k = 0; k < columns; ++k) out[k] = static_cast<W>(wrong ? dz[0] : 0);
    for (int32_t v = 0; v < classes && !wrong && !none; ++v) {
      const int64_t k = column_of(a, sequence_of(a.layout, r), v);
      if (k >= 0) out[k] = static_cast<W>(dz[v] - std::exp(z[v] - normalizer));
    }
    a.normalizer.as<W>()[r] = static_cast<W>(wrong  ? dz[0]
                                             : none ? std::numeric_limits<double>::infinity()
                                                    : normalizer);
  }
}

// Adds the product of each element of the logits' gradient to what depends on it.
template <class T, class W>
void gradients(const LinearCtcGradArgs& a, const std::vector<double>& logits) {
  const int64_t rows = a.layout.extent->rows, hidden = a.x.dim(1), classes = a.w.dim(0);
  const int64_t columns = int64_t{a.max_label_length} + 1;
  std::vector<double> dx(static_cast<size_t>(hidden));
  std::vector<double> dw(static_cast<size_t>(classes * hidden));
  std::vector<double> dbias(static_cast<size_t>(classes));
  for (int64_t r = 0; r < rows; ++r) {
    std::fill(dx.begin(), dx.end(), 0.0);
    for (int32_t v = 0; v < classes; ++v) {
      double dz = std::exp(logits[static_cast<size_t>(r * classes + v)] -
                           static_cast<double>(a.normalizer.as<W>()[r]));
      const int64_t k = column_of(a, sequence_of(a.layout, r), v);
      if (k >= 0) dz += static_cast<double>(a.label_grad.as<W>()[r * columns + k]);
      dbias[static_cast<size_t>(v)] += dz;
      for (int64_t h = 0; h < hidden; ++h) {
        dx[static_cast<size_t>(h)] += dz * static_cast<double>(a.w.as<T>()[v * hidden + h]);
        dw[static_cast<size_t>(v * hidden + h)] +=
            dz * static_cast<double>(a.x.as<T>()[r * hidden + h]);
      }
    }
    for (int64_t h = 0; a.dx && h < hidden; ++h) {
      a.dx.as<T>()[r * hidden + h] = static_cast<T>(dx[static_cast<size_t>(h)]);
    }
  }
  const auto add = [](const TensorView& to, const std::vector<double>& sums) {
    for (size_t i = 0; to && i < sums.size(); ++i) {
      to.as<W>()[i] = static_cast<W>(static_cast<double>(to.as<W>()[i]) + sums[i]);
    }
  };
  add(a.dw, dw);
  add(a.dbias, dbias);
}

}  // namespace

void linear_ctc_ref(const Context& context, const LinearCtcArgs& a) {
  check_linear_ctc(a);
  std::vector<double> logits = logits_of(a);
  std::vector<double> grad(logits.size());
  std::vector<double> loss(static_cast<size_t>(a.layout.capacity.sequences));
  CtcArgs c;
  c.layout = a.layout;
  c.logits = {logits.data(), DType::f64, {a.layout.capacity.rows, a.w.dim(0)}};
  c.grad = {grad.data(), DType::f64, {a.layout.capacity.rows, a.w.dim(0)}};
  c.loss = {loss.data(), DType::f64, {a.layout.capacity.sequences}};
  c.labels = a.labels;
  c.label_offsets = a.label_offsets;
  c.max_label_length = a.max_label_length;
  c.blank = a.blank;
  c.zero_infinity = a.zero_infinity;
  ctc_ref(context, c);
  const auto wide = [&]<class W>(W) {
    for (size_t n = 0; n < loss.size(); ++n) a.loss.as<W>()[n] = static_cast<W>(loss[n]);
    label_grads<W>(a, logits, grad);
  };
  a.loss.dtype == DType::f64 ? wide(double{}) : wide(float{});
}

void linear_ctc_grad_ref(const Context&, const LinearCtcGradArgs& a) {
  check_linear_ctc(a);
  const std::vector<double> logits = logits_of(a);
  visit_floating(a.x.dtype, [&]<class T>(T) {
    gradients<T, std::conditional_t<std::is_same_v<T, double>, double, float>>(a, logits);
  });
}

}  // namespace rondo
