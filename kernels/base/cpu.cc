#include "kernels/base/cpu.h"

#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/base/error.h"

namespace rondo {
namespace {

#if defined(__x86_64__)
// Tiles are used only by processes that have asked Linux for the space to save them in
// (Documentation/arch/x86/xstate.rst); 5.16 and later know the question. It refuses where the CPU
// has none, or where a thread's alternate signal stack is too small for them.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr int request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

bool has_bf16_tiles() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  return (d & amx_bf16) && (d & amx_tile) && may_use_tiles();
}
#endif

CpuFeatures detect() {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  f.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  f.avx512_vnni = f.avx512 && __builtin_cpu_supports("avx512vnni");
  f.avx512_bf16 = f.avx512 && __builtin_cpu_supports("avx512bf16");
  f.amx = f.avx512_bf16 && has_bf16_tiles();
#endif
  const char* limit = std::getenv("RONDO_ISA");
  if (limit == nullptr || *limit == '\0') return f;
  const std::string_view isa = limit;
  if (isa == "generic") {
    f = {};
  } else if (isa == "avx2") {
    f.avx512 = f.avx512_vnni = f.avx512_bf16 = f.amx = false;
  } else if (isa == "avx512") {
    f.avx512_bf16 = f.amx = false;
  } else if (isa == "avx512bf16") {
    f.amx = false;
  } else {
    fail_input("RONDO_ISA is '", isa, "', expected generic, avx2, avx512 or avx512bf16");
  }
  return f;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

int64_t l2_cache_bytes() {
  constexpr int64_t usual = 1 << 20;
#if defined(_SC_LEVEL2_CACHE_SIZE)
  static const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? bytes : usual;
#else
  return usual;
#endif
}

}  // namespace rondo
