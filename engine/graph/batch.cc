#include "engine/graph/batch.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

bool BatchCapacity::holds(const BatchCapacity& o) const {
  return packed.rows >= o.packed.rows && packed.frames >= o.packed.frames &&
         packed.sequences >= o.packed.sequences && max_label_length >= o.max_label_length &&
         labels >= o.labels;
}

BatchCapacity BatchCapacity::merge(const BatchCapacity& a, const BatchCapacity& b) {
  return {{std::max(a.packed.rows, b.packed.rows), std::max(a.packed.frames, b.packed.frames),
           std::max(a.packed.sequences, b.packed.sequences)},
          std::max(a.max_label_length, b.max_label_length),
          std::max(a.labels, b.labels)};
}

BatchCapacity BatchView::extent() const {
  RONDO_CHECK(layout != nullptr, "a batch needs a layout");
  BatchCapacity c;
  c.packed = {layout->extent.rows, layout->extent.frames, layout->extent.sequences};
  c.labels = static_cast<int64_t>(labels.size());
  for (size_t n = 0; n + 1 < label_offsets.size(); ++n) {
    c.max_label_length = std::max(c.max_label_length, label_offsets[n + 1] - label_offsets[n]);
  }
  return c;
}

}  // namespace rondo
