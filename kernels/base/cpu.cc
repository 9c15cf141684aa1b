#include "kernels/base/cpu.h"

#include <cstdlib>
#include <string_view>

#include "kernels/base/error.h"

namespace rondo {
namespace {

CpuFeatures detect() {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  f.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  f.avx512_bf16 = f.avx512 && __builtin_cpu_supports("avx512bf16");
#endif
  const char* limit = std::getenv("RONDO_ISA");
  if (limit == nullptr || *limit == '\0') return f;
  const std::string_view isa = limit;
  if (isa == "generic") {
    f = {};
  } else if (isa == "avx2") {
    f.avx512 = f.avx512_bf16 = false;
  } else if (isa == "avx512") {
    f.avx512_bf16 = false;
  } else {
    fail_input("RONDO_ISA is '", isa, "', expected generic, avx2 or avx512");
  }
  return f;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace rondo
