// mma.sync.aligned on the host: a whole warp's product at once. Two shapes:
//   m16n8k16.row.col.f32.bf16.bf16.f32
//   m16n8k8.row.col.f32.tf32.tf32.f32
//
// Fragment layouts, from the PTX ISA manual ("Matrix Fragments for mma.m16n8k16", "... m16n8k8"),
// for lane l with group g = l / 4 and member q = l % 4. bf16: each 32-bit register holds two, the
// lower index below:
//   a0: A[g][2q..]   a1: A[g+8][2q..]   a2: A[g][2q+8..]   a3: A[g+8][2q+8..]
//   b0: B[2q..][g]   b1: B[2q+8..][g]
// TF32 (an f32 whose lower 13 bits are zeros; the caller sees to that):
//   a0: A[g][q]      a1: A[g+8][q]      a2: A[g][q+4]      a3: A[g+8][q+4]
//   b0: B[q][g]      b1: B[q+4][g]
// Both:
//   c0 c1: C[g][2q], C[g][2q+1]         c2 c3: C[g+8][2q], C[g+8][2q+1]
#pragma once

#include "kernels/simt/sim/scheduler.h"

namespace rondo::simt {

struct MmaOperands {
  uint32_t a[4], b[2];
};
struct MmaProduct {
  float c[4];
};

// Replaces each lane's MmaOperands by its MmaProduct. The sums run over k in increasing order; the
// hardware's order is not documented.
void mma_tile(Exchange::Slots& slots);
void mma_tile_tf32(Exchange::Slots& slots);

}  // namespace rondo::simt
