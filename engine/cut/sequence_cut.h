// A batch cut in time: every sequence in as many parts as there are shards, as even as its blocks
// allow.
//
// Where a sequence has b blocks (of ChunkGraph::block frames, the last maybe shorter), shard s of p
// owns blocks [b*s/p, b*(s+1)/p). Of a sequence with fewer blocks than shards some own nothing.
// Where layers need frames of a neighbour, whoever owns anything owns `least` blocks
// (halo_blocks()), but for the last frames of a sequence: one of fewer than p * least blocks is cut
// into as many parts as it has times that, one at least, which the first shards own. Within a shard
// sequences are sorted anew by what is left of them; `order` tells which is which.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/graph/batch_memory.h"

namespace rondo {

struct FrameRange {
  int32_t begin = 0, end = 0;
  int32_t size() const { return end - begin; }
  bool operator==(const FrameRange&) const = default;
};

// So many frames of the input are not divided, for subsampling makes them into one.
int32_t uncut_frames(const Graph& graph);

// So many blocks of uncut_frames() hold the frames that a neighbour's convolution reads: 1 without
// any.
int32_t halo_blocks(const Graph& graph);

// The most that a shard gets of batches within `whole`.
BatchCapacity shard_capacity(const BatchCapacity& whole, int32_t block, int shards,
                             int32_t least = 1);

// Frames of shard `shard` of a sequence of `length` frames.
FrameRange shard_frames(int32_t length, int32_t block, int shard, int shards, int32_t least = 1);

// Some frames of each sequence of a batch, with memory of their own. Its view() may be loaded into
// graphs bound of a ChunkGraph.
class BatchSlice {
 public:
  // Frames ranges[n] of each sequence n of `whole`. Ranges begin at multiples of the graph's blocks
  // and end there or at the sequence's end. `graph` tells the shapes of the inputs.
  // `logits_factor`: frames of the input per frame of the logits.
  BatchSlice(const BatchView& whole, const Graph& graph, const std::vector<FrameRange>& ranges,
             int64_t logits_factor);

  BatchSlice(BatchSlice&&) = default;
  BatchSlice(const BatchSlice&) = delete;

  BatchView view() const;
  const PackedHost& layout() const { return layout_; }
  // order()[i]: which sequence of the whole batch is sequence i here.
  const std::vector<int32_t>& order() const { return order_; }

 private:
  void add_input(const BatchView& whole, const Graph& graph, const BatchView::Input& input,
                 const std::vector<FrameRange>& ranges);

  PackedHost layout_;
  std::vector<int32_t> order_, labels_, label_offsets_;
  struct Stored {
    std::string name;
    std::vector<std::byte> bytes;
  };
  std::vector<Stored> stored_;
  std::vector<BatchView::Input> inputs_;
  uint64_t step_seed_ = 0;
};

}  // namespace rondo
