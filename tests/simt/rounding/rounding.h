// The simulated kernels with another rounding than the host's: compiled to fuse products and sums,
// and with a C library that errs (other_libm.h). CUDA's own functions err by up to 2 units in the
// last place ("Mathematical Functions" in the CUDA C++ Programming Guide), tanhf and __fdividef
// most.
#pragma once

namespace rondo::test {

constexpr int gpu_libm_ulps = 2;

// From now on: by how many units in the last place simulated kernels' functions are off at most.
void set_libm_error(int ulps);

// a * b + c and exp(x), compiled as the kernels are.
float product_and_sum(float a, float b, float c);
float kernels_exp(float x);

}  // namespace rondo::test
