#include "kernels/base/cpu.h"

#include <cstdlib>
#include <initializer_list>
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

// Asked of the processor itself: not every compiler's library answers __builtin_cpu_supports().
struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Registers cpuid(unsigned leaf, unsigned part) {
  Registers r;
  __get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d);  // zeros where it has no such leaf
  return r;
}

// Which registers Linux saves for its processes (XCR0).
unsigned saved_registers() {
  unsigned low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool all_of(unsigned bits, std::initializer_list<int> wanted) {
  for (const int bit : wanted) {
    if ((bits >> bit & 1u) == 0) return false;
  }
  return true;
}

// Intel's manual, volume 2A, CPUID: leaves 1, and 7 with its parts 0 and 1.
CpuFeatures of_processor() {
  CpuFeatures f;
  const Registers basic = cpuid(1, 0), more = cpuid(7, 0), last = cpuid(7, 1);
  constexpr int fma = 12, xsave = 27, avx = 28, f16c = 29;
  if (!all_of(basic.c, {fma, xsave, avx, f16c})) return f;
  const unsigned saved = saved_registers();
  constexpr int avx2 = 5, avx512f = 16, avx512dq = 17, avx512bw = 30, avx512vl = 31;
  f.avx2 = all_of(saved, {1, 2}) && all_of(more.b, {avx2});
  f.avx512 =
      f.avx2 && all_of(saved, {5, 6, 7}) && all_of(more.b, {avx512f, avx512dq, avx512bw, avx512vl});
  constexpr int vnni = 11, bf16 = 5, amx_bf16 = 22, amx_tile = 24;
  f.avx512_vnni = f.avx512 && all_of(more.c, {vnni});
  f.avx512_bf16 = f.avx512 && all_of(last.a, {bf16});
  f.amx = f.avx512_bf16 && all_of(more.d, {amx_bf16, amx_tile}) && may_use_tiles();
  return f;
}
#endif

CpuFeatures detect() {
  CpuFeatures f;
#if defined(__x86_64__)
  f = of_processor();
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
