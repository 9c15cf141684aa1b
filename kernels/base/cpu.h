// What the CPU can do, asked once at run time.
#pragma once

#include "kernels/base/op.h"

namespace rondo {

struct CpuFeatures {
  bool avx2 = false;         // with FMA
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // vpdpbusd
  bool avx512_bf16 = false;  // vdpbf16ps
  // Tiles of bf16, which the system lets this process use. CPUs with them run vdpbf16ps at a lower
  // rate than multiply-adds of f32.
  bool amx = false;
};

// Features of this machine, lowered by the environment variable RONDO_ISA=generic|avx2|avx512|
// avx512bf16 (for tests of the slower paths).
const CpuFeatures& cpu_features();

// Of one core's second-level cache; 1 MiB where the system does not say.
int64_t l2_cache_bytes();

// These are Variant::accepts of kernels compiled for one instruction set.
inline bool has_avx2(const Context&, const void*) { return cpu_features().avx2; }
inline bool has_avx512(const Context&, const void*) { return cpu_features().avx512; }
inline bool has_avx512_vnni(const Context&, const void*) { return cpu_features().avx512_vnni; }
inline bool has_avx512_bf16(const Context&, const void*) { return cpu_features().avx512_bf16; }
inline bool has_amx(const Context&, const void*) { return cpu_features().amx; }

}  // namespace rondo
