// The functions of one operand and their gradients, as the fast kernels compute them: one
// specialisation each, for the CPU and for GPUs. V is a vector of floats in pointwise_simd.cc and a
// float in pointwise.cu; both have comparisons, select, exp, tanh and sigmoid. The reference has
// formulas of its own.
#pragma once

#include "kernels/pointwise/pointwise.h"

#if defined(RONDO_ISA)
#include "kernels/base/cpu/simd.h"
#define RONDO_POINTWISE_TARGET RONDO_ISA
#define RONDO_POINTWISE_CALL static inline
#else
#include "kernels/simt/simt.h"
#define RONDO_POINTWISE_TARGET RONDO_GPU
#define RONDO_POINTWISE_CALL __device__ static inline
#endif

namespace rondo::RONDO_POINTWISE_TARGET {
namespace {

#if defined(RONDO_ISA)
using V = vf;
#else
using V = float;
RONDO_POINTWISE_CALL V select(bool mask, V a, V b) { return mask ? a : b; }
RONDO_POINTWISE_CALL V exp(V x) { return expf(x); }
RONDO_POINTWISE_CALL V tanh(V x) { return tanhf(x); }
RONDO_POINTWISE_CALL V sigmoid(V x) { return 1.0f / (1.0f + expf(-x)); }
#endif

// value(x) is y. gradient(saved, dy) is dx; its row in pointwise.h says what `saved` is. NaN stays.
template <PointwiseFunction f>
struct Function;

template <>
struct Function<PointwiseFunction::copy> {
  RONDO_POINTWISE_CALL V value(V x) { return x; }
  RONDO_POINTWISE_CALL V gradient(V, V dy) { return dy; }
};

template <>
struct Function<PointwiseFunction::relu> {
  RONDO_POINTWISE_CALL V value(V x) { return select(x <= 0.0f, V{}, x); }
  RONDO_POINTWISE_CALL V gradient(V y, V dy) { return select(y > 0.0f, dy, V{}); }
};

template <>
struct Function<PointwiseFunction::tanh> {
  RONDO_POINTWISE_CALL V value(V x) { return tanh(x); }
  RONDO_POINTWISE_CALL V gradient(V y, V dy) { return dy * (1.0f - y * y); }
};

template <>
struct Function<PointwiseFunction::sigmoid> {
  RONDO_POINTWISE_CALL V value(V x) { return sigmoid(x); }
  RONDO_POINTWISE_CALL V gradient(V y, V dy) { return dy * (y * (1.0f - y)); }
};

// x P(x), where P(x) is the share of the normal distribution below x. What lies beyond u = |x| is
// bell(x) t p(t), where t = 1 / (1 + 0.34 u) and p is fitted on [0, 14.5]; no float is small enough
// for what lies further out. Relative to x P(x) the result is accurate to 4 ulp.
template <>
struct Function<PointwiseFunction::gelu> {
  RONDO_POINTWISE_CALL V value(V x) { return x * below(x, bell(x)); }
  RONDO_POINTWISE_CALL V gradient(V x, V dy) {
    const V b = bell(x);
    return dy * (below(x, b) + x * (b * 0.398942280f));
  }
  // |x|, no more than 16: nothing is left there.
  RONDO_POINTWISE_CALL V size(V x) {
    const V u = select(x < 0.0f, -x, x);
    return select(u < 16.0f, u, V{} + 16.0f);
  }
  // exp(-u*u/2). u*u would round by more the larger it is, so u = h + low, where h is a multiple of
  // 1/128 and h*h is exact; the rest, at most 1/16, is a short series.
  RONDO_POINTWISE_CALL V bell(V x) {
    const V u = size(x), h = (u + 98304.0f) - 98304.0f, d = (h - u) * (h + u) * 0.5f;
    return exp(h * h * -0.5f) * (1.0f + d * (1.0f + d * (0.5f + d * (1 / 6.0f + d * (1 / 24.0f)))));
  }
  RONDO_POINTWISE_CALL V below(V x, V bell) {
    const V t = 1.0f / (1.0f + 0.34f * size(x));
    V p = V{} - 2.587636746e-02f;
    p = p * t + 1.383567601e-01f;
    p = p * t - 2.708704472e-01f;
    p = p * t + 1.997169852e-01f;
    p = p * t - 4.310591146e-02f;
    p = p * t + 1.147134602e-01f;
    p = p * t + 1.153517365e-01f;
    p = p * t + 1.360922307e-01f;
    p = p * t + 1.356215775e-01f;
    const V beyond = bell * t * p;
    return select(x > 0.0f, 1.0f - beyond, beyond);
  }
};

// visit(Function<f>{}) for the function the arguments name.
template <class F>
void visit_function(PointwiseFunction function, F visit) {
  using enum PointwiseFunction;
  switch (function) {
    case copy:
      return visit(Function<copy>{});
    case relu:
      return visit(Function<relu>{});
    case tanh:
      return visit(Function<tanh>{});
    case sigmoid:
      return visit(Function<sigmoid>{});
    case gelu:
      return visit(Function<gelu>{});
    case add:
    case bias:
      break;
  }
  RONDO_CHECK(false, "pointwise function ", static_cast<int>(function), " has two operands");
}

}  // namespace
}  // namespace rondo::RONDO_POINTWISE_TARGET
