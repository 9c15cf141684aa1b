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

// row_max and row_sum of all frames; y, y_blank and drop, of which nothing is kept, have
// ctc_ring_frames rows.
void ctc_row_sums(const CtcSequence& s, DType dtype,
                  void (*rows)(const CtcSequence&, DType, int32_t, int32_t, int32_t));

// label_class, and where a label may follow another directly.
void ctc_make_label_tables(CtcSequence& s);
// Which posteriors are summed for which class.
void ctc_make_bins(CtcSequence& s);

}  // namespace rondo
