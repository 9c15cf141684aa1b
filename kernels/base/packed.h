// Packed, time-major ragged batches, under the "capacity + extent" contract.
//
// Sequences are sorted by length, longest first. The rows of frame 0 of all N sequences come
// first, then those of frame 1 of the sequences still active, and so on: padded frames do not
// exist. Row r of frame t belongs to sequence r - row_offsets[t].
//
//   lengths      5 3 2          row_offsets  0 3 6 8 9 10
//   batch_sizes  3 3 2 1 1      (frame 0: rows 0-2, frame 1: rows 3-5, frame 2: rows 6-7, ...)
//
// Capacity is what the host knows when it lays out memory and captures graphs: upper bounds. Extent
// is what this batch really holds; it lives in device memory next to the data, so that one graph
// (or one captured graph) serves every batch of a bucket. Kernels size their launches by capacity
// and stop at the extent: rows at or past extent->rows may hold anything (NaN too), are never read
// for a result, and may be written.
//
// A batch may be a shard or a chunk of longer sequences: first_frame[n] is the absolute index of
// this batch's frame 0 of sequence n. keys[n] names the utterance for counter-based dropout, so
// the random numbers depend neither on batching nor on sharding.
#pragma once

#include <cstdint>

namespace rondo {

struct PackedCapacity {
  int64_t rows = 0;       // sum of lengths, upper bound
  int32_t frames = 0;     // T, upper bound
  int32_t sequences = 0;  // N, upper bound

  bool operator==(const PackedCapacity&) const = default;
};

struct PackedExtent {
  int32_t rows = 0;
  int32_t frames = 0;
  int32_t sequences = 0;  // sequences of length >= 1 come first; empty ones (length 0) may follow
};

// All pointers are to memory of the device that runs the kernel.
struct PackedView {
  PackedCapacity capacity;
  const PackedExtent* extent = nullptr;  // [1]
  const int32_t* lengths = nullptr;      // [sequences], non-increasing, each >= 0
  const int32_t* batch_sizes = nullptr;  // [frames], non-increasing, each >= 1 within the extent
  const int32_t* row_offsets = nullptr;  // [frames + 1], row_offsets[extent.frames] == extent.rows
  const int32_t* row_frame = nullptr;    // [rows], the frame of each row
  const uint64_t* keys = nullptr;        // [sequences]
  const int32_t* first_frame = nullptr;  // [sequences]
};

}  // namespace rondo
