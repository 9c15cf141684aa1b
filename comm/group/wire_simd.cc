// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "comm/group/wire_arithmetic.h"
#include "kernels/base/cpu/simd_rows.h"

namespace rondo::RONDO_ISA {
namespace {

uint16_t* bits(bf16* p) { return reinterpret_cast<uint16_t*>(p); }
const uint16_t* bits(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }

void narrow(const float* from, bf16* to, int64_t n) {
  for_vectors(n, [&](int64_t i, auto part) { part.put(bits(to) + i, part.get(from + i)); });
}

void widen(const bf16* from, float* to, int64_t n) {
  for_vectors(n, [&](int64_t i, auto part) { part.put(to + i, part.get(bits(from) + i)); });
}

void add(float* sums, const bf16* more, int64_t n) {
  for_vectors(n, [&](int64_t i, auto part) {
    part.put(sums + i, part.get(sums + i) + part.get(bits(more) + i));
  });
}

void add_and_round(float* sums, const bf16* more, int64_t n) {
  for_vectors(n, [&](int64_t i, auto part) {
    uint16_t rounded[W];
    store_bf16(rounded, part.get(sums + i) + part.get(bits(more) + i));
    part.put(sums + i, load_bf16(rounded));
  });
}

}  // namespace

const WireArithmetic wire_arithmetic = {narrow, widen, add, add_and_round};

}  // namespace rondo::RONDO_ISA
