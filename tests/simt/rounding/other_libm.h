// Read ahead of every simulated kernel in the build of tests/simt/rounding: the functions of the C
// library that kernels call go by other names there, and are off by some units in the last place
// (other_libm.cc), as those of a GPU are from those of the host.
#pragma once

// For divide_fast(), which divides exactly on the host otherwise.
#define RONDO_OTHER_QUOTIENT ::other_quotient

// Ahead of the C library's own declarations, which agree with these and so keep the names.
extern "C" {
#define RONDO_OTHER(function)                                   \
  double function(double) noexcept __asm__("other_" #function); \
  float function##f(float) noexcept __asm__("other_" #function "f");
RONDO_OTHER(exp)
RONDO_OTHER(exp2)
RONDO_OTHER(expm1)
RONDO_OTHER(log)
RONDO_OTHER(log1p)
RONDO_OTHER(log2)
RONDO_OTHER(tanh)
#undef RONDO_OTHER
double pow(double, double) noexcept __asm__("other_pow");
float powf(float, float) noexcept __asm__("other_powf");
float other_quotient(float a, float b);
}
