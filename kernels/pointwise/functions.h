// The functions of one operand and their gradients, as the fast kernels compute them: one
// specialisation each, for the CPU and for GPUs. V is a vector of floats in pointwise_simd.cc and a
// float in pointwise.cu; both have comparisons, select, exp, tanh and sigmoid. The reference has
// formulas of its own.
#pragma once

#include "kernels/pointwise/pointwise.h"

#if defined(RONDO_ISA)
#include "kernels/base/simd.h"
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
    case add:
    case bias:
      break;
  }
  RONDO_CHECK(false, "pointwise function ", static_cast<int>(function), " has two operands");
}

}  // namespace
}  // namespace rondo::RONDO_POINTWISE_TARGET
