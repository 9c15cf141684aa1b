// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/base/variants.h"
#include "kernels/loss/loss.h"

namespace rondo::RONDO_ISA {
namespace {

float value_of(float x) { return x; }
float value_of(uint16_t x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16); }

template <class T>
void fill_row(T* grad, int64_t n, float value) {
  for_vectors(n, [&](int64_t i, auto part) { part.put(grad + i, broadcast(value)); });
}

template <class T>
float cross_entropy_row(const T* x, int64_t classes, int32_t target, float scale, T* grad) {
  if (target == ignored_target) {
    if (grad) fill_row(grad, classes, 0);
    return 0;
  }
  if (target < 0 || target >= classes) {
    if (grad) fill_row(grad, classes, __builtin_nanf(""));
    return __builtin_nanf("");
  }
  const float lowest = -__builtin_inff();
  vf highest = broadcast(lowest);
  for_vectors(classes,
              [&](int64_t i, auto part) { highest = max(highest, part.get(x + i, lowest)); });
  const vf shift = broadcast(largest(highest));
  vf sums{};
  for_vectors(classes,
              [&](int64_t i, auto part) { sums += part.keep(exp(part.get(x + i) - shift)); });
  const float total = sum(sums);
  const float loss = log(broadcast(total))[0] - (value_of(x[target]) - shift[0]);
  if (grad) {
    const vf factor = broadcast(scale / total);
    const float at_target = exp(broadcast(value_of(x[target])) - shift)[0];
    for_vectors(classes, [&](int64_t i, auto part) {
      part.put(grad + i, exp(part.get(x + i) - shift) * factor);
    });
    const vf own = broadcast((at_target - total) / total * scale);
    PartVector{1}.put(grad + target, own);
  }
  return loss;
}

template <class T>
void cross_entropy(const Context& context, const CrossEntropyArgs& a) {
  const int64_t rows = covered_rows(a.logits, a.row_count), classes = a.logits.dim(1);
  const T* x = static_cast<const T*>(a.logits.data);
  T* grad = static_cast<T*>(a.grad.data);
  const float* scale = a.grad_scale.as<float>();
  float* loss = a.loss.as<float>();
  context.pool->for_range(rows, row_grain(classes), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      loss[r] = cross_entropy_row(x + r * classes, classes, a.targets[r], scale ? scale[r] : 1.0f,
                                  grad ? grad + r * classes : nullptr);
    }
  });
}

template <class T>
void mse(const Context& context, const MseArgs& a) {
  const int64_t rows = covered_rows(a.pred, a.row_count), cols = a.pred.dim(1);
  const float share =
      a.reduction == MseReduction::mean && cols ? 1.0f / static_cast<float>(cols) : 1.0f;
  const T* pred = static_cast<const T*>(a.pred.data);
  const T* target = static_cast<const T*>(a.target.data);
  T* grad = static_cast<T*>(a.grad.data);
  const float* scale = a.grad_scale.as<float>();
  float* loss = a.loss.as<float>();
  context.pool->for_range(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const vf factor = broadcast(2.0f * share * (scale ? scale[r] : 1.0f));
      vf sums{};
      for_vectors(cols, [&](int64_t i, auto part) {
        const vf difference = part.get(pred + r * cols + i) - part.get(target + r * cols + i);
        sums += difference * difference;
        if (grad) part.put(grad + r * cols + i, difference * factor);
      });
      loss[r] = sum(sums) * share;
    }
  });
}

}  // namespace

void cross_entropy_cpu(const Context& context, const CrossEntropyArgs& a) {
  if (a.logits.dtype == DType::f32) return cross_entropy<float>(context, a);
  RONDO_CHECK(a.logits.dtype == DType::bf16);
  cross_entropy<uint16_t>(context, a);
}

void mse_cpu(const Context& context, const MseArgs& a) {
  if (a.pred.dtype == DType::f32) return mse<float>(context, a);
  RONDO_CHECK(a.pred.dtype == DType::bf16);
  mse<uint16_t>(context, a);
}

}  // namespace rondo::RONDO_ISA
