// Sums gradients over ranks while the backward pass still runs.
//
// The gradients are one flat array. It is cut into buckets in the order in which the backward pass
// finishes them, a small one first, so that communication begins early; a bucket's all-reduce
// starts as soon as its last gradient is written. With accumulation, only the last batch of an
// update communicates. (After S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data
// Parallel Training", VLDB 2020; the bucket size is derived from the link instead of fixed.)
//
// The bits do not depend on the buckets: an element belongs to block index / block_elements of the
// flat array, and block b is summed in the ring's order for chunk b modulo the number of ranks,
// whatever bucket it travels in. To that end buckets are copied, blocks of equal chunk together
// and chunks padded to equal size. (Two ranks' sums do not depend on the order: on CPUs these are
// added where they lie.)
#pragma once

#include <vector>

#include "comm/group/device_group.h"
#include "engine/graph/graph.h"
#include "engine/graph/parameters.h"
#include "engine/reduce/sums.h"
#include "kernels/base/device.h"

namespace rondo {

// Elements [begin, end) of the flat array, complete when node `after_node` has run.
struct GradientBucket {
  int64_t begin = 0, end = 0;
  size_t after_node = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const GradientBucket&) const = default;
};

// Covers the flat array. A bucket is closed when it has reached its size: `first` elements for the
// first, `size` for the others; a parameter is never divided.
std::vector<GradientBucket> gradient_buckets(const Graph& graph, const Parameters& parameters,
                                             int64_t first, int64_t size);

// Rows of a bucket's elements as they lie in the flat array and in the memory in which they travel:
// row i begins at flat + i * flat_stride there, and at packed + i * packed_stride here.
struct BlockRows {
  int64_t flat = 0, flat_stride = 0, packed = 0, packed_stride = 0;
  int64_t elements = 0, rows = 0;
};

// How a bucket travels: blocks that the ring sums in the same order lie together, in chunks of
// equal size. What is no element of the bucket is padding.
struct BucketLayout {
  static constexpr int64_t block_elements = 256;
  std::vector<BlockRows> rows;
  int64_t chunk = 0;  // elements, times the number of ranks
};
// Where the sums of block b come back: everywhere (all-reduce), or on rank (b - 1) mod ranks alone
// (reduce-scatter), with the same bits; elsewhere that block is then left as it is.
enum class SumsAt : uint8_t { everywhere, own_blocks };
BucketLayout lay_out(const GradientBucket& bucket, int ranks, SumsAt sums = SumsAt::everywhere);

// Whether these rows' sums come back on `rank`.
bool comes_back(const BlockRows& rows, const BucketLayout& layout, SumsAt sums, int rank);

// What an all-reduce costs: latency + bytes / bandwidth. Measured with a few all-reduces, the same
// figures (rank 0's) on all ranks.
struct LinkSpeed {
  double latency = 0;    // seconds of an all-reduce of next to nothing
  double bandwidth = 0;  // bytes of an array reduced per second
};
LinkSpeed measure_link(ProcessGroup& group);
// Measures sums of a device's memory over `sums`; `control` has the same ranks.
LinkSpeed measure_link(DeviceGroup& sums, ProcessGroup& control);

// Large enough that latency is an eighth of a bucket's time, within 64 KiB and 64 MiB.
int64_t bucket_bytes_for(const LinkSpeed& link);

// Sums gradients in the memory of a cpu, over a group whose sums are exact (Wire::exact).
class BucketSums final : public Sums {
 public:
  BucketSums(ProcessGroup& group, const Graph& graph, const Parameters& parameters,
             int64_t bucket_bytes, size_t votes = 0, SumsAt at = SumsAt::everywhere);

  const std::vector<GradientBucket>& buckets() const { return buckets_; }

  void last_batch() override { active_ = true; }
  bool marks() const override { return active_; }
  void mark(size_t node) override;  // what is complete is on its way at once

 protected:
  void sum_gradients() override;

 private:
  // Layout and memory: of a bucket that is copied in order to travel.
  struct Flight {
    BucketLayout layout;
    Buffer memory;
    Work work;
  };
  void launch();
  enum class Copy : uint8_t { pack, unpack };
  void copy(const Flight& flight, Copy direction) const;

  const int64_t width_;
  const SumsAt at_;
  const int rank_;
  const bool in_place_;
  std::vector<GradientBucket> buckets_;
  std::vector<Flight> flights_;
  size_t launched_ = 0;
  bool active_ = false;
};

}  // namespace rondo
