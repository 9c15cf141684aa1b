// What Wire::bf16 does to numbers on a host, many at a time. Internal to comm.
//
// The bits are those of rondo::bf16 (kernels/base/dtype.h) whatever the instruction set: rounded to
// nearest even, NaN stays a quiet NaN. Arrays need no alignment beyond their elements' and do not
// overlap; one thread, no allocation, no error.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"

namespace rondo {

struct WireArithmetic {
  void (*narrow)(const float* from, bf16* to, int64_t n);
  void (*widen)(const bf16* from, float* to, int64_t n);
  // sums[i] += more[i], in f32.
  void (*add)(float* sums, const bf16* more, int64_t n);
  // The same, and what is stored is the sum rounded to bf16.
  void (*add_and_round)(float* sums, const bf16* more, int64_t n);
};

namespace isa_generic {
extern const WireArithmetic wire_arithmetic;
}
namespace isa_avx2 {
extern const WireArithmetic wire_arithmetic;
}
namespace isa_avx512 {
extern const WireArithmetic wire_arithmetic;
}

// For the widest instruction set of this machine (cpu_features()).
const WireArithmetic& wire_arithmetic();

}  // namespace rondo
