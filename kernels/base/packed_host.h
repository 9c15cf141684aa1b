// The host side of a packed batch: builds the layout of kernels/base/packed.h from lengths.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/packed.h"

namespace rondo {

// The most frames of a sequence: kernels round frames up to pieces of theirs in 32 bits.
inline constexpr int32_t most_sequence_frames = (1 << 30) - 1;

// Owns the arrays of a PackedView in host memory, holding exactly the extent. Plain data; copying
// copies the arrays.
struct PackedHost {
  PackedExtent extent;
  std::vector<int32_t> lengths;      // non-increasing
  std::vector<int32_t> batch_sizes;  // [frames]
  std::vector<int32_t> row_offsets;  // [frames + 1]
  std::vector<int32_t> row_frame;    // [rows]
  std::vector<uint64_t> keys;        // [sequences]
  std::vector<int32_t> first_frame;  // [sequences]

  // A view of this object's memory; valid until it changes. The capacity equals the extent.
  PackedView view() const;

  // Row of frame t of sequence n; the frame must exist.
  int64_t row(int32_t t, int32_t n) const { return row_offsets[static_cast<size_t>(t)] + n; }

  // Refills the object (its vectors keep their memory). `lengths` must be non-increasing and
  // non-negative; `keys` and `first_frame` may be empty (0, 1, 2, ... and zeros). Throws Error, and
  // InputError where a sequence or the batch has more frames than 32 bits may count.
  void assign(std::span<const int32_t> lengths, std::span<const uint64_t> keys = {},
              std::span<const int32_t> first_frame = {});
};

PackedHost build_packed(std::span<const int32_t> lengths, std::span<const uint64_t> keys = {},
                        std::span<const int32_t> first_frame = {});

// The order that sorts `lengths` longest first; equal lengths keep their order.
std::vector<int32_t> longest_first(std::span<const int32_t> lengths);

}  // namespace rondo
