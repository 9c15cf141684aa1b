// What the cpu drivers of ctc and ctc_chunk share: pieces of the workspace, tables of a sequence.
#pragma once

#include <algorithm>

#include "kernels/ctc/ctc_impl.h"

namespace rondo {

inline constexpr int64_t ctc_lanes = 16;  // the widest vector of any instruction set, in elements

inline int64_t ctc_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Hands out 64-byte aligned pieces of a slot; with a null base it only measures.
class CtcCarver {
 public:
  explicit CtcCarver(std::byte* base) : base_(base) {}
  template <class T>
  void take(T*& p, int64_t count) {
    take_bytes(reinterpret_cast<void*&>(p), count * static_cast<int64_t>(sizeof(T)));
  }
  void take_bytes(void*& p, int64_t bytes) {
    p = base_ ? base_ + used_ : nullptr;
    used_ += static_cast<size_t>(ctc_round_up(bytes, 64));
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

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
