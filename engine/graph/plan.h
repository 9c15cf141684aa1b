// A graph bound to memory for one capacity, ready to run.
//
// Owns the arena and the batch's device memory; borrows the graph, the parameters and the context
// (device, stream, pool), which must outlive it. Everything is allocated in the constructor;
// load() and run() allocate nothing, and wait for nothing but memory to stage a batch in. One
// thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/graph/batch_memory.h"
#include "engine/graph/parameters.h"
#include "engine/graph/planner.h"
#include "engine/graph/recording.h"
#include "engine/graph/rules.h"

namespace rondo {

class Plan final : public Binder {
 public:
  Plan(const Graph& graph, const Context& context, const BatchCapacity& capacity,
       Parameters& parameters, Reuse reuse = Reuse::by_liveness, int stage = all_stages);

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
  // From now on run() is a Recording.
  void record_runs() { records_ = true; }

  // Copies a value (its extent's rows only, all planes) to host memory and waits.
  void read(ValueId id, void* to, size_t bytes) const;
  // Copies into a value; for stage boundaries and tests.
  void write(ValueId id, const void* from, size_t bytes);
  // Rows of the loaded batch on a value's axis.
  int64_t live_rows(const Shape& shape) const;

  size_t arena_bytes() const { return memory_.arena_bytes; }
  size_t batch_bytes() const;
  const MemoryPlan& memory() const { return memory_; }
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

 private:
  std::string activations_purpose() const;
  void run_nodes();
  const Graph& graph_;
  Context context_;
  BatchCapacity capacity_;
  Parameters& parameters_;
  int stage_;
  MemoryPlan memory_;
  Buffer arena_;
  BatchMemory batch_;
  std::vector<Thunk> thunks_;
  std::vector<bool> reads_;  // values that nodes of this plan read
  size_t binding_ = 0;       // the node being bound
  bool records_ = false;
  Recording recording_;
};

}  // namespace rondo
