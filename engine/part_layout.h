// How flat arrays of weights, gradients and an optimiser's state are dealt to ranks in parts:
// blocks of 256 elements, block b to rank (b - 1) mod N, which is the order in which a ring sums
// them.
//
// Pure functions but for copy_blocks(), which is enqueued on the context's stream.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/graph/graph.h"
#include "kernels/base/op.h"

namespace rondo {

// Where the blocks of flat arrays lie in the parts of N ranks. Parts are of equal size; what a rank
// has too few blocks for stays unused.
class PartLayout {
 public:
  static constexpr int64_t block_elements = 256;
  PartLayout(int64_t flat_size, int ranks) : flat_size_(flat_size), ranks_(ranks) {}
  int ranks() const { return ranks_; }
  // Elements of a part.
  int64_t part() const {
    const int64_t blocks = (flat_size_ + block_elements - 1) / block_elements;
    return (blocks + ranks_ - 1) / ranks_ * block_elements;
  }
  // copy(place in the flat array, place in the part, elements) for the blocks of a rank.
  template <class Copy>
  void for_blocks(int rank, Copy copy) const {
    int64_t place = 0;
    for (int64_t b = (rank + 1) % ranks_; b * block_elements < flat_size_; b += ranks_) {
      const int64_t begin = b * block_elements;
      copy(begin, place, std::min(block_elements, flat_size_ - begin));
      place += block_elements;
    }
  }
  // How many of the first elements of a rank's part are among the first `flat` of the flat array.
  int64_t first_of(int rank, int64_t flat) const {
    int64_t count = 0;
    for_blocks(rank, [&](int64_t at, int64_t, int64_t n) {
      count += std::clamp(flat - at, int64_t{0}, n);
    });
    return count;
  }
  // The blocks of a rank, from a flat array in host memory to its part, and back.
  void pack(int rank, const float* flat, float* part) const {
    for_blocks(rank, [&](int64_t at, int64_t place, int64_t n) {
      std::copy_n(flat + at, n, part + place);
    });
  }
  void unpack(int rank, const float* part, float* flat) const {
    for_blocks(rank, [&](int64_t at, int64_t place, int64_t n) {
      std::copy_n(part + place, n, flat + at);
    });
  }
  // A graph of one parameter, which is a part.
  Graph graph() const {
    Graph g;
    g.add_parameter("part", 1, part(), {Init::constant, 0});
    return g;
  }

 private:
  const int64_t flat_size_;
  const int ranks_;
};

// The blocks of a rank, from a flat f32 array of the context's device to its part, or back, in
// stream order.
enum class BlockCopy : uint8_t { pack, unpack };
void copy_blocks(const PartLayout& layout, const Context& context, int rank, void* flat, void* part,
                 BlockCopy direction);

}  // namespace rondo
