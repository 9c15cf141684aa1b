// What the cpu drivers of ctc and ctc_chunk share: tables of a sequence.
#pragma once

#include <algorithm>

#include "kernels/base/carver.h"
#include "kernels/ctc/ctc_impl.h"

namespace rondo {

inline constexpr int64_t ctc_lanes = 16;  // the widest vector of any instruction set, in elements

// How many bins posteriors are summed into.
inline int64_t ctc_bins(int64_t classes, int64_t labels) {
  return classes <= ctc_dense_classes ? classes : std::min(labels, classes - 1) + 1;
}

// For s.padded label positions, s.bin_stride bins, and elements of `real` bytes.
void ctc_carve_gather(Carver& c, CtcGather& gather, const CtcSequence& s, int64_t real);

// label_class, and where a label may follow another directly.
void ctc_make_label_tables(CtcSequence& s);
// Which posteriors are summed for which class.
void ctc_make_bins(CtcSequence& s);

}  // namespace rondo
