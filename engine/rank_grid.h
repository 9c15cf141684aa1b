// The ranks of a job as a grid: world = data x pipeline x sequence.
//
// Rank r is shard r % sequence of stage rank r / sequence % pipeline of replica
// r / (sequence * pipeline): the shards of a stage are neighbours, then the stages of a replica.
// The groups are made once.
#pragma once

#include <memory>
#include <vector>

#include "engine/reduce/ranks.h"

namespace rondo {

struct WorldSplit {
  int data = 1, pipeline = 1, sequence = 1;
  int ranks() const { return data * pipeline * sequence; }
  // Every rank has all layers, and whole sequences.
  bool whole() const { return pipeline == 1 && sequence == 1; }
};
// "2 x 3 ranks", data x pipeline; "2 x 3 x 2 ranks" where sequences are shared.
std::string describe(const WorldSplit& split);

// `data` 0: whatever is left. InputError when the world does not factor.
WorldSplit split_world(int world, int pipeline, int data, int sequence = 1);

class RankGrid {
 public:
  // One rank.
  RankGrid() = default;
  // Replicas of whole models; of one rank, or of the group of `ranks` and its sums on devices.
  explicit RankGrid(const Ranks& ranks);
  // Called by all ranks. The transport must outlive it. Group ids: first_group and the next two;
  // those of groups of devices begin at first_device_group. `devices` makes these, where ranks are
  // on devices that can exchange their memory; empty: they go by way of the host.
  static constexpr uint16_t first_group = 101, first_device_group = 201;
  RankGrid(Transport& transport, WorldSplit split, CommClock::duration timeout,
           DeviceGroupMaker devices = {});

  const WorldSplit& split() const { return split_; }
  int replica() const { return replica_; }        // which of split().data
  int stage_rank() const { return stage_rank_; }  // which of split().pipeline
  int shard() const { return shard_; }            // which of split().sequence
  // The ranks with the same stage, by replica, then shard: they sum their gradients. Like the next
  // two nullptr where this rank is alone there.
  ProcessGroup* same_stage() const { return same_stage_; }
  // The ranks with the same replica and shard, by stage.
  ProcessGroup* pipeline() const { return pipeline_; }
  // The ranks with the same replica and stage, by shard.
  ProcessGroup* sequence() const { return sequence_; }
  // The group of devices of same_stage() that the grid was given with `ranks`; nullptr: none.
  DeviceGroup* given_devices() const { return given_devices_; }
  const DeviceGroupMaker& devices() const { return devices_; }
  // The ranks of the world that are in pipeline() and in same_stage(), in the groups' order.
  const std::vector<int>& pipeline_ranks() const { return pipeline_ranks_; }
  const std::vector<int>& same_stage_ranks() const { return same_stage_ranks_; }

 private:
  ProcessGroup* make_group(Transport& transport, CommClock::duration timeout, uint16_t id,
                           std::vector<int> members);
  int rank_of(int replica, int stage_rank, int shard) const {
    return (replica * split_.pipeline + stage_rank) * split_.sequence + shard;
  }
  WorldSplit split_;
  int replica_ = 0, stage_rank_ = 0, shard_ = 0;
  DeviceGroupMaker devices_;
  DeviceGroup* given_devices_ = nullptr;
  std::vector<int> pipeline_ranks_, same_stage_ranks_;
  std::vector<std::unique_ptr<ProcessGroup>> made_;
  ProcessGroup *same_stage_ = nullptr, *pipeline_ = nullptr, *sequence_ = nullptr;
};

}  // namespace rondo
