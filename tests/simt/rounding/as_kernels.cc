#include <cmath>

#include "tests/simt/rounding/rounding.h"

namespace rondo::test {

float product_and_sum(float a, float b, float c) { return a * b + c; }
float kernels_exp(float x) { return std::exp(x); }

}  // namespace rondo::test
