// A batch as a graph is given it, and the bounds that memory is laid out by. Plain data.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/base/packed.h"
#include "kernels/base/packed_host.h"

namespace rondo {

// Upper bounds of a batch: what bound and captured graphs are keyed by.
struct BatchCapacity {
  PackedCapacity packed;  // of level 0
  int32_t max_label_length = 0;
  int64_t labels = 0;  // sum of label lengths

  bool operator==(const BatchCapacity&) const = default;
  bool holds(const BatchCapacity& other) const;
  // Enough for both.
  static BatchCapacity merge(const BatchCapacity& a, const BatchCapacity& b);
};

// One batch in host memory, borrowed. Sequences are in packed order (longest first). What takes one
// throws Error for a null `layout`, and for null `data` where there are bytes of it.
struct BatchView {
  struct Input {
    std::string_view name;  // of a graph input
    const void* data = nullptr;
    size_t bytes = 0;
  };
  const PackedHost* layout = nullptr;
  std::span<const int32_t> labels;  // concatenated, in packed order
  // [N + 1]. Empty only where nothing that runs reads labels: for ctc_loss that is an InputError,
  // and an empty text is said by two equal offsets.
  std::span<const int32_t> label_offsets;
  std::span<const Input> inputs;
  uint64_t step_seed = 0;  // keys this step's dropout

  BatchCapacity extent() const;
};

}  // namespace rondo
