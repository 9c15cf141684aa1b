#include "comm/group/wire_arithmetic.h"

#include "kernels/base/cpu.h"

namespace rondo {

const WireArithmetic& wire_arithmetic() {
  const CpuFeatures& cpu = cpu_features();
  if (cpu.avx512) return isa_avx512::wire_arithmetic;
  if (cpu.avx2) return isa_avx2::wire_arithmetic;
  return isa_generic::wire_arithmetic;
}

}  // namespace rondo
