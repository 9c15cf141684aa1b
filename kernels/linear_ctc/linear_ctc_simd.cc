// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/linear_ctc/linear_ctc_impl.h"

namespace rondo::RONDO_ISA {
namespace {

constexpr float infinity = __builtin_inff();

// One exponential or logarithm, by the vectors' function.
float exp_of(float x) { return exp(broadcast(x))[0]; }
float log_of(float x) { return log(broadcast(x))[0]; }

void columns(const Context& context, const LinearCtcRows& a) {
  context.pool->for_range(a.layout.extent->sequences, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t first = a.label_offsets[n], count = a.label_offsets[n + 1] - first;
      const int32_t* labels = a.labels + first;
      int32_t* classes = a.classes + n * a.columns;
      classes[0] = a.blank;
      for (int64_t i = 0; i < count; ++i) {
        int64_t j = 0;
        while (labels[j] != labels[i]) ++j;
        classes[1 + i] = j == i ? labels[i] : -1;
        a.places[first + i] = static_cast<int32_t>(1 + j);
      }
    }
  });
}

void statistics_of_row(const LinearCtcRows& a, const LinearCtcTile& t, int64_t i) {
  const int64_t r = t.first_row + i;
  const float* z = t.logits + i * t.classes;
  vf highest = broadcast(-infinity);
  for_vectors(t.classes,
              [&](int64_t k, auto part) { highest = max(highest, part.get(z + k, -infinity)); });
  // A NaN may slip through the maximum, but not through the sum.
  const bool begins = t.first_class == 0;
  const float before = begins ? -infinity : a.highest[r];
  float most = largest(highest);
  most = before > most ? before : most;
  const float shift = finite_shift(most);
  vf sums{};
  for_vectors(t.classes, [&](int64_t k, auto part) {
    sums += part.keep(exp(part.get(z + k) - broadcast(shift)));
  });
  a.total[r] = (begins ? 0 : a.total[r] * exp_of(before - shift)) + sum(sums);
  a.highest[r] = most;
  const LinearCtcColumns c = columns_of_row(a, r);
  for_columns_in(c, t, 0, 1, [&](int64_t k, int64_t v) { c.label_grad[k] = z[v]; });
}

void statistics(const Context& context, const LinearCtcRows& a, const LinearCtcTile& t) {
  context.pool->for_range(t.rows, row_grain(t.classes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) statistics_of_row(a, t, i);
  });
}

void normalize(const Context& context, const LinearCtcRows& a) {
  context.pool->for_range(a.layout.extent->rows, row_grain(a.columns),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t r = begin; r < end; ++r) {
                              const float log_sum = finite_shift(a.highest[r]) + log_of(a.total[r]);
                              // Of no finite logit, or an infinite one, there is no softmax.
                              const bool finite = log_sum > -infinity && log_sum < infinity;
                              const float normalizer = finite ? log_sum : __builtin_nanf("");
                              a.normalizer[r] = normalizer;
                              const LinearCtcColumns c = columns_of_row(a, r);
                              for (int64_t k = 0; k < c.count; ++k) {
                                if (c.classes[k] >= 0) c.label_grad[k] -= normalizer;
                              }
                            }
                          });
}

void settle(const Context& context, const LinearCtcRows& a) {
  context.pool->for_range(a.layout.extent->rows, row_grain(a.columns),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t r = begin; r < end; ++r) {
                              const LinearCtcColumns c = columns_of_row(a, r);
                              float posterior = 0;
                              for (int64_t k = 0; k < c.count; ++k) posterior -= c.label_grad[k];
                              if (posterior == 0) a.normalizer[r] = infinity;
                              if (posterior != posterior) a.normalizer[r] = posterior;
                            }
                          });
}

void gradient_of_row(const LinearCtcRows& a, const LinearCtcTile& t, int64_t i) {
  const int64_t r = t.first_row + i;
  float* z = t.logits + i * t.classes;
  const float normalizer = a.normalizer[r];
  const auto softmax = [&](auto* out) {
    for_vectors(t.classes, [&](int64_t k, auto part) {
      part.put(out + k, exp(part.get(z + k) - broadcast(normalizer)));
    });
  };
  const LinearCtcColumns c = columns_of_row(a, r);
  if (t.dtype == DType::f32) {
    softmax(z);
    for_columns_in(c, t, 0, 1, [&](int64_t k, int64_t v) { z[v] += c.label_grad[k]; });
    return;
  }
  auto* out = static_cast<uint16_t*>(t.gradient) + i * t.classes;
  softmax(out);
  for_columns_in(c, t, 0, 1, [&](int64_t k, int64_t v) {
    PartVector{1}.put(out + v, broadcast(exp_of(z[v] - normalizer) + c.label_grad[k]));
  });
}

void gradient(const Context& context, const LinearCtcRows& a, const LinearCtcTile& t) {
  context.pool->for_range(t.rows, row_grain(t.classes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) gradient_of_row(a, t, i);
  });
}

constexpr LinearCtcDevice device{columns, statistics, normalize, settle, gradient};

}  // namespace

void linear_ctc_cpu(const Context& context, const LinearCtcArgs& a) {
  linear_ctc_with(device, context, a);
}

void linear_ctc_grad_cpu(const Context& context, const LinearCtcGradArgs& a) {
  linear_ctc_with(device, context, a);
}

}  // namespace rondo::RONDO_ISA
