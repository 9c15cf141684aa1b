// The inner product of two arrays of n floats. For resample.cc alone.
#pragma once

#include <cstdint>

namespace rondo::data {
using DotKernel = float (*)(const float* a, const float* b, int64_t n);
}

namespace rondo::isa_generic {
data::DotKernel dot_kernel();
}
namespace rondo::isa_avx2 {
data::DotKernel dot_kernel();
}
namespace rondo::isa_avx512 {
data::DotKernel dot_kernel();
}
