// Fused multiply-adds on the host, many at a time: as single calls of the C library they are most
// of what products of matrices cost on the simulator.
#pragma once

namespace rondo::simt {

// sums[i][j] = fma(a[i], b[j], sums[i][j]) for i, j < 4, rounded once each on every machine.
void add_outer_product(float (*sums)[4], const float (&a)[4], const float (&b)[4]);

}  // namespace rondo::simt
