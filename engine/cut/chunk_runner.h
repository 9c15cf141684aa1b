// Runs a ChunkGraph of unidirectional layers over consecutive chunks of a batch on one device: what
// one chunk hands over at its border is what the next one begins with.
//
// Owns the bound graphs, borrows the rest. On a device the host waits for it once before a chunk,
// when what it begins with has been copied there, and once behind it; a forward pass is a recording
// between the two, and so is a backward pass, of the bound graph of the chunk's bucket
// (engine/graph/bucket.h): last chunks are shorter, and so are short sequences. Sequences keep
// their places: every chunk lists all of them, in the same order, so each chunk must be no longer
// for a later sequence than for an earlier one. One thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/cut/sequence_graph.h"
#include "engine/graph/bucket.h"

namespace rondo {

// What crosses a cut, in host memory whatever the device: h and c of each layer, the last frames
// that each convolution reads and CTC's alpha; or, backwards, their gradients and CTC's beta.
// Empty: nothing yet, zeros.
using Border = std::vector<std::vector<std::byte>>;

// What a backward pass does with the gradients of the layers' states at the chunk's right border.
enum class StateGradients : uint8_t {
  carried,  // exact
  cut,      // taken as zero: truncated backpropagation through time
};

class ChunkRunner {
 public:
  // Lays out memory for chunks of up to `capacity`. The graph must outlive this. Throws InputError
  // for bidirectional layers and convolutions that look ahead.
  ChunkRunner(const ChunkGraph& chunk, const Context& context, const BatchCapacity& capacity,
              Parameters& parameters);

  // Forward from `border`, at the chunk's left, which becomes the one at its right.
  void forward(const BatchView& batch, Border& border);
  // The same of sequences that each have a border of their own.
  void forward(const BatchView& batch, std::span<Border* const> borders);
  // After forward() of the same batch: gradients of the weights are added to those of the
  // parameters. `border`, at the chunk's right, becomes the one at its left.
  void backward(Border& border, StateGradients states);

  // What the last forward() ran.
  const BoundGraph& bound() const { return graphs_.latest(); }
  size_t arena_bytes() const { return graphs_.largest().arena_bytes(); }

 private:
  // The first `zeros` of the values become zero, or all of them without a border; the others what
  // the border has.
  void write(const std::vector<ValueId>& values, const Border& border, size_t zeros);
  void read(const std::vector<ValueId>& values, Border& border) const;
  size_t bytes_of(ValueId id) const;
  // Of a value that crosses a cut, a sequence's: so many bytes in each plane.
  struct Piece {
    size_t planes, bytes;
  };
  Piece piece_of(ValueId id) const;

  const ChunkGraph& chunk_;
  BucketedGraphs graphs_;
  // The values that cross the cuts of the layers, then of CTC where there is one.
  std::vector<ValueId> forward_in_, forward_out_, backward_in_, backward_out_;
  size_t of_layers_ = 0;  // of those backward
};

}  // namespace rondo
