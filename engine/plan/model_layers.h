// A training graph seen as a row of blocks: what a pipeline or a cut in time may pass between, and
// how much work each is.
#pragma once

#include <vector>

#include "engine/placement.h"
#include "engine/plan/machine.h"
#include "engine/session.h"
#include "engine/update.h"

namespace rondo::plan {

// Seconds of a block for one batch.
struct PassSeconds {
  double forward = 0, input_backward = 0, weight_backward = 0;
  double total() const { return forward + input_backward + weight_backward; }
  void add(Phase phase, double seconds);
};

// A block's time in parts: one direction of its time loop, everything else, the loss at its end.
// And the bytes that a loop's direction and the loss hand over where sequences are cut.
struct BlockCost {
  int directions = 0;  // 0: no time loop
  PassSeconds direction, rest;
  double loss = 0;
  double state_bytes = 0, loss_bytes = 0;
  PassSeconds whole() const;
};

struct Block {
  int directions = 0;  // of its time loop; 0: there is none
  double state = 0;    // values per sequence and direction that pass from a frame to the next
  int64_t weights = 0;
  double output_row = 0;  // bytes per row that the next block reads
  int output_level = 0;
};

// The layers are those that the engine cuts pipelines between (find_layers()); a layer with several
// time loops is as many blocks. The batch that is loaded belongs to the first.
class ModelLayers {
 public:
  // Throws InputError that names an op whose rule does not say what it does to time, or how much
  // work it is.
  ModelLayers(const ModelFunction& model, DType compute);

  // With its backward pass; nodes carry their block's number as stage.
  const Graph& graph() const { return graph_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  int layers() const { return static_cast<int>(layers_.size()); }
  int64_t weights() const;

  // By block. Where directions are computed apart, as shards do, each has as many launches and
  // steps as both together.
  std::vector<BlockCost> costs(const DeviceModel& device, const BatchShape& batch,
                               bool directions_apart) const;
  // How many layers each of so many stages gets, as the engine chooses; `costs`: of blocks.
  std::vector<int> cut(const std::vector<BlockCost>& costs, int stages) const;
  // The first block of each stage, and the number of blocks.
  std::vector<int> first_blocks(const std::vector<int>& counts) const;
  // The graph that the engine makes for these stages.
  Graph staged(const std::vector<int>& counts) const;

 private:
  void number_blocks();
  void describe_blocks();
  Graph forward_, graph_;
  ValueId loss_ = no_value;
  std::vector<ModelLayer> layers_;
  std::vector<int> first_block_;  // by layer, and the number of blocks
  std::vector<Block> blocks_;
};

// The work of the batch itself: it is read from where it was prepared and written to where the
// graph reads it.
NodeWork load_work(const Graph& graph, const BatchShape& batch);
// The arrays as large as the weights that a step of the optimiser reads and writes, and those of a
// whole update: before it gradients are cleared, and squared for their norm.
int step_arrays(const OptimizerOptions& options);
int update_arrays(const OptimizerOptions& options);

}  // namespace rondo::plan
