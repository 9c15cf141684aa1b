// Sums of gradients that do not depend on the number of ranks, bit for bit.
//
// A batch is divided into a fixed number of parts, whoever computes them; each part's gradient is
// kept apart, and the parts' gradients are added along one binary tree: [begin, end) is the sum of
// its halves, the first being the smaller one where they differ. A rank owns consecutive parts,
// adds up those nodes of the tree that lie within them, and sends these nodes, cut into as many
// chunks as there are ranks, to the ranks that finish the sums of their chunk.
//
// Sums are made on the host, also those of devices' gradients, which go there part by part.
// Memory there: a gradient per own part, one chunk per node received, and with a device one
// gradient more.
#pragma once

#include <vector>

#include "engine/reduce/sums.h"
#include "kernels/base/device.h"

namespace rondo {

struct PartRange {
  int begin = 0, end = 0;
  int size() const { return end - begin; }
  bool operator==(const PartRange&) const = default;
};

// The parts of a rank: as many as those of any other, or one more.
PartRange parts_of_rank(int parts, int rank, int world_size);

// The largest nodes of the tree over `parts` that lie within `range`, in order.
std::vector<PartRange> tree_nodes_within(int parts, PartRange range);

class TreeSums final : public Sums {
 public:
  // `parts` is at least the size of the group. `compute`, borrowed, is the stream that writes the
  // gradients and reads their sums.
  TreeSums(ProcessGroup& group, int parts, const Parameters& parameters, Stream& compute,
           size_t votes = 0);

  PartRange own() const { return own_; }
  // Moves what was accumulated into the gradients (they are zero afterwards) to a part of this
  // update; several batches of one part are summed in their order. Parts that get nothing are
  // zero.
  void take(int part);

 protected:
  void sum_gradients() override;

 private:
  std::byte* gradient_of(int index) {
    return parts_[static_cast<size_t>(index - own_.begin)].as<std::byte>();
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
  const PartRange own_;
  Stream& compute_;
  StagingBuffer staging_;                      // of a device's gradients
  std::vector<PartRange> nodes_;               // of all ranks, in order
  std::vector<std::pair<size_t, size_t>> of_;  // by rank: its part of nodes_
  std::vector<Buffer> parts_;                  // gradients
  std::vector<char> filled_;
  Buffer received_;  // this rank's chunk of every node
};

}  // namespace rondo
