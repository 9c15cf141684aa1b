// Sums of gradients that do not depend on the number of ranks, bit for bit.
//
// A batch is divided into a fixed number of shards, whoever computes them; each shard's gradient is
// kept apart, and the shards' gradients are added along one binary tree: [begin, end) is the sum of
// its halves, the first being the smaller one where they differ. A rank owns consecutive shards,
// adds up those nodes of the tree that lie within them, and sends these nodes, cut into as many
// chunks as there are ranks, to the ranks that finish the sums of their chunk.
//
// Sums are made on the host, also those of devices' gradients, which go there shard by shard.
// Memory there: a gradient per own shard, one chunk per node received, and with a device one
// gradient more.
#pragma once

#include <vector>

#include "engine/reduce/sums.h"
#include "kernels/base/device.h"

namespace rondo {

struct ShardRange {
  int begin = 0, end = 0;
  int size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

// The shards of a rank: as many as those of any other, or one more.
ShardRange shards_of_rank(int shards, int rank, int world_size);

// The largest nodes of the tree over `shards` that lie within `range`, in order.
std::vector<ShardRange> tree_nodes_within(int shards, ShardRange range);

class TreeSums final : public Sums {
 public:
  // `shards` is at least the size of the group. `compute`, borrowed, is the stream that writes the
  // gradients and reads their sums.
  TreeSums(ProcessGroup& group, int shards, const Parameters& parameters, Stream& compute,
           size_t votes = 0);

  ShardRange own() const { return own_; }
  // Moves what was accumulated into the gradients (they are zero afterwards) to a shard of this
  // update; several batches of one shard are summed in their order. Shards that get nothing are
  // zero.
  void take(int shard);

 protected:
  void sum_gradients() override;

 private:
  std::byte* shard(int index) {
    return shards_[static_cast<size_t>(index - own_.begin)].as<std::byte>();
  }
  void allocate();
  TensorView on_host() const;
  template <class T>
  void add_nodes(int64_t n);
  template <class T>
  void finish_chunk(TensorView gradients, int64_t begin, int64_t end);
  void exchange_nodes(const TensorView& gradients);
  void exchange_sums(const TensorView& gradients);

  const int count_;
  const ShardRange own_;
  Stream& compute_;
  StagingBuffer staging_;                      // of a device's gradients
  std::vector<ShardRange> nodes_;              // of all ranks, in order
  std::vector<std::pair<size_t, size_t>> of_;  // by rank: its part of nodes_
  std::vector<Buffer> shards_;
  std::vector<char> filled_;
  Buffer received_;  // this rank's chunk of every node
};

}  // namespace rondo
