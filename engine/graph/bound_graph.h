// A graph bound to memory for one capacity, ready to run.
//
// Owns the arena and the batch's device memory, alone or together with those made within() it;
// borrows the graph, the parameters and the context (device, stream, pool), which must outlive it.
// Everything is allocated in the constructor; load() and run() allocate nothing, and wait for
// nothing but memory to stage a batch in. One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/graph/batch_memory.h"
#include "engine/graph/memory_layout.h"
#include "engine/graph/parameters.h"
#include "engine/graph/recording.h"
#include "engine/graph/rules.h"

namespace rondo {

// Appends values of a floating dtype as f32.
void append_floats(std::span<const std::byte> values, DType dtype, std::vector<float>& to);

class BoundGraph final : public Binder {
 public:
  BoundGraph(const Graph& graph, const Context& context, const BatchCapacity& capacity,
             Parameters& parameters, Reuse reuse = Reuse::by_liveness, int stage = all_stages);
  // The same for a smaller capacity, in the memory of `whole`: a batch that one of them loads takes
  // the place of what the other loaded and computed, in the order of the stream. No device memory
  // is allocated. Null where the smaller arena would not fit, which placement by size allows.
  static std::unique_ptr<BoundGraph> within(const BoundGraph& whole, const BatchCapacity& capacity);

  // Copies the batch out of host memory, and to the device in stream order. Throws Error when it
  // exceeds the capacity, or an input is missing, unknown or of the wrong size.
  void load(const BatchView& batch);

  void run();  // all nodes of the stage
  // The same; tells of each node that has run. On devices that queue work, it is only enqueued.
  void run(const std::function<void(size_t node)>& after);
  void run(Phase phase);  // those of one phase
  void run_backward();    // backward and weight_gradient, in order
  void run_node(size_t node);
  // What runs node `index` with the attributes and outputs of `as`, which has the same inputs: a
  // part of its work.
  Thunk bind_part(size_t index, const Node& as);
  size_t node_count() const;
  // A part of what is run, as a Recording of its own: `work()` enqueues the same
  // every time that it is called for `part`, a small number of the caller's choice.
  template <class Work>
  void run_recorded(size_t part, const Work& work) {
    if (part >= recordings_.size()) recordings_.resize(part + 1);
    recordings_[part].run(context_, work);
  }

  // Copies a value (its extent's rows only, all planes) to host memory and waits.
  void read(ValueId id, void* to, size_t bytes) const;
  // Appends what read() copies as f32.
  void append_floats(ValueId id, std::vector<float>& to) const;
  // Copies into a value; for stage boundaries and tests.
  void write(ValueId id, const void* from, size_t bytes);
  // Rows of the loaded batch on a value's axis.
  int64_t live_rows(const Shape& shape) const;

  size_t arena_bytes() const { return memory_.arena_bytes; }
  size_t batch_bytes() const { return held_->batch.bytes(); }
  const MemoryLayout& memory() const { return memory_; }
  const Node& node(size_t i) const { return graph_.nodes[i]; }

  // Binder
  const Context& context() const override { return context_; }
  const Graph& graph() const override { return graph_; }
  const BatchCapacity& capacity() const override { return capacity_; }
  TensorView view(ValueId id) const override;
  PackedView layout(int level) const override;
  const int32_t* labels() const override;
  const int32_t* label_offsets() const override;
  const uint64_t* step_seed() const override;
  TensorView workspace() const override;
  PackedWeights* packed(ValueId id) const override;

 private:
  struct Held {
    Buffer arena;
    BatchMemory batch;
  };
  BoundGraph(const Graph& graph, const Context& context, const BatchCapacity& capacity,
             Parameters& parameters, Reuse reuse, int stage, MemoryLayout memory,
             std::shared_ptr<Held> held);  // null: memory of its own
  const Graph& graph_;
  Context context_;
  BatchCapacity capacity_;
  Parameters& parameters_;
  Reuse reuse_;
  int stage_;
  MemoryLayout memory_;
  std::shared_ptr<Held> held_;
  std::vector<Thunk> thunks_;
  std::vector<bool> reads_;            // values that nodes of the stage read
  std::string_view reads_labels_;      // the first op of the stage that does; empty: none
  size_t binding_ = 0;                 // the node being bound
  std::vector<Recording> recordings_;  // by part
};

}  // namespace rondo
