// The ranks of a job as a grid: world = data x pipeline.
//
// Rank r is stage rank r % pipeline of replica r / pipeline, so the stages of a replica are
// neighbours. The groups are made once.
#pragma once

#include <memory>

#include "comm/process_group.h"

namespace rondo {

struct WorldSplit {
  int data = 1, pipeline = 1;
};

// `data` 0: whatever is left. InputError when the world does not factor.
WorldSplit split_world(int world, int pipeline, int data);

class RankGrid {
 public:
  // Called by all ranks. The transport must outlive it. Group ids: first_group and the next one.
  static constexpr uint16_t first_group = 101;
  RankGrid(Transport& transport, WorldSplit split, CommClock::duration timeout);

  const WorldSplit& split() const { return split_; }
  int replica() const { return replica_; }        // which of split().data
  int stage_rank() const { return stage_rank_; }  // which of split().pipeline
  // The ranks with the same stages, by replica.
  ProcessGroup& data() { return *data_; }
  // The ranks of this replica, by stage.
  ProcessGroup& pipeline() { return *pipeline_; }

 private:
  WorldSplit split_;
  int replica_, stage_rank_;
  std::unique_ptr<ProcessGroup> data_, pipeline_;
};

}  // namespace rondo
