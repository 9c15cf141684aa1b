#include "kernels/simt/sim/outer_product_sim.h"

#include <cmath>

#include "kernels/base/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rondo::simt {
namespace {

#if defined(__x86_64__)
[[gnu::target("fma")]] void add_rows(float (*sums)[4], const float* a, const float* b) {
  const __m128 row = _mm_loadu_ps(b);
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_ps(sums[i], _mm_fmadd_ps(_mm_set1_ps(a[i]), row, _mm_loadu_ps(sums[i])));
  }
}
#endif

}  // namespace

void add_outer_product(float (*sums)[4], const float (&a)[4], const float (&b)[4]) {
#if defined(__x86_64__)
  static const bool has_instruction = cpu_features().avx2;
  if (has_instruction) return add_rows(sums, a, b);
#endif
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) sums[i][j] = std::fma(a[i], b[j], sums[i][j]);
  }
}

}  // namespace rondo::simt
