// What the ctc_chunk ops keep at a border, on every backend; for kernels/ctc alone.
#pragma once

#include <cstdint>

namespace rondo {

// A border's first numbers; the column of the lattice follows.
struct CtcBorderHeader {
  enum Kind : int64_t { unknown, finite, impossible, not_a_number };
  Kind kind = unknown;
  double shifts = 0;                     // alpha: logs of the rows' normalisers so far
  double loss = 0;                       // beta
  double total = 0, total_exponent = 0;  // beta: sum over all alignments
  double unused[3] = {};
};
inline constexpr int64_t ctc_border_header = sizeof(CtcBorderHeader) / sizeof(double);

}  // namespace rondo
