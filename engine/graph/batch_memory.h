// Device memory for everything that changes from batch to batch: layouts, labels, inputs, dropout's
// key. Belongs to a BoundGraph.
//
// Nodes are bound to one place, so a batch can replace the one before only when that has been
// computed. On a GPU its bytes go to page-locked memory, from there on a stream of their own to a
// second place on the device, while the device still computes, and then, in the order of the
// graph's stream, to where the nodes read. Two batches may be on their way. The cpu device writes
// where the nodes read.
#pragma once

#include <array>
#include <vector>

#include "engine/graph/batch.h"
#include "engine/graph/rules.h"
#include "kernels/base/device.h"
#include "kernels/base/packed_host.h"

namespace rondo {

// Throws InputError when lengths, label offsets or labels are not what they can be: kernels go by
// them unasked. A label must be a class of the graph's CTC, and not its blank.
void check_batch(const Graph& graph, const BatchView& batch);

// Where the pieces of a batch of some capacity lie, in bytes from one start.
struct BatchPlaces {
  struct Piece {
    size_t offset = 0, bytes = 0;
  };
  struct Level {
    PackedCapacity capacity;
    Piece extent, lengths, batch_sizes, row_offsets, row_frame, keys, first_frame;
  };
  struct Input {
    ValueId id = no_value;
    Piece piece;
  };
  std::vector<Level> levels;
  Piece labels, label_offsets, step_seed;
  size_t fixed_bytes = 0;     // all of these,
  std::vector<Input> inputs;  // then the inputs
  size_t bytes = 0;

  BatchPlaces(const Graph& graph, const BatchCapacity& capacity);
};

// Device memory that holds a batch of a capacity, without its activations.
size_t predict_batch_bytes(const Graph& graph, const BatchCapacity& capacity, DeviceKind device);

class BatchMemory {
 public:
  BatchMemory(const Graph& graph, const BatchCapacity& capacity, Device& device);

  // The batch is copied out of host memory before this returns, and is on the device before what
  // is enqueued on `stream` afterwards. Throws Error when an input that `reads` names is missing,
  // or one is unknown or of the wrong size, InputError as check_batch() does; the batch fits the
  // capacity.
  void load(const BatchView& batch, Stream& stream, const std::vector<bool>& reads);

  template <class T>
  T* at(const BatchPlaces::Piece& piece) const {
    return reinterpret_cast<T*>(memory_.as<unsigned char>() + piece.offset);
  }
  const BatchPlaces& places() const { return places_; }
  // Rows of the loaded batch on a value's axis.
  int64_t live_rows(const Shape& shape) const;
  size_t bytes() const;

 private:
  struct Slot {
    StagingBuffer host;
    Buffer landing;
    Event copied;    // to landing
    Event consumed;  // from landing
  };
  void write(std::byte* to, const BatchView& batch, const std::vector<bool>& reads);
  void write_layout(std::byte* to, const BatchView& batch);
  void write_inputs(std::byte* to, const BatchView& batch, const std::vector<bool>& reads);
  void upload(Slot& slot, Stream& stream);

  const Graph& graph_;
  BatchCapacity capacity_;
  Device& device_;
  BatchPlaces places_;
  std::vector<PackedHost> layouts_;  // of the loaded batch, by level
  std::vector<int32_t> level_lengths_, level_first_;
  std::vector<size_t> input_bytes_;  // of the loaded batch
  Buffer memory_;
  std::array<Slot, 2> slots_;
  size_t next_slot_ = 0;
  Stream copies_;  // ends before what it reads and writes
};

}  // namespace rondo
