#include "engine/rank_grid.h"

#include <utility>

#include "kernels/base/error.h"

namespace rondo {

std::string describe(const WorldSplit& s) {
  std::string text = str(s.data, " x ", s.pipeline);
  if (s.sequence > 1) text += str(" x ", s.sequence);
  return text + " ranks";
}

WorldSplit split_world(int world, int pipeline, int data, int sequence) {
  RONDO_CHECK(world >= 1 && pipeline >= 1 && data >= 0 && sequence >= 1, world, " ranks as ", data,
              " x ", pipeline, " x ", sequence);
  const int64_t column = int64_t{pipeline} * sequence;
  if (data == 0 && world % column == 0) {
    return {static_cast<int>(world / column), pipeline, sequence};
  }
  if (data * column == world) return {data, pipeline, sequence};
  const std::string shards = sequence > 1 ? str(" x --shards ", sequence) : "";
  if (data == 0) {
    fail_input(world, world == 1 ? " rank" : " ranks", " cannot be shared out to pipelines of ",
               column, " ranks: the number of ranks must be a multiple of --stages",
               sequence > 1 ? str(" ", pipeline, shards) : "");
  }
  fail_input("--replicas ", data, " x --stages ", pipeline, shards, " is ", data * column,
             " ranks, not the ", world, " there are");
}

RankGrid::RankGrid(const Ranks& ranks)
    : split_{ranks.size(), 1, 1},
      replica_(ranks.rank()),
      given_devices_(ranks.sums()),
      same_stage_(ranks.size() > 1 ? ranks.group() : nullptr) {}

RankGrid::RankGrid(Transport& transport, WorldSplit split, CommClock::duration timeout,
                   DeviceGroupMaker devices)
    : split_(split),
      replica_(transport.rank() / split.sequence / split.pipeline),
      stage_rank_(transport.rank() / split.sequence % split.pipeline),
      shard_(transport.rank() % split.sequence),
      devices_(std::move(devices)) {
  RONDO_CHECK(split.ranks() == transport.world_size(), describe(split), " of ",
              transport.world_size());
  for (int s = 0; s < split.pipeline; ++s) pipeline_ranks_.push_back(rank_of(replica_, s, shard_));
  for (int r = 0; r < split.data; ++r) {
    for (int s = 0; s < split.sequence; ++s) {
      same_stage_ranks_.push_back(rank_of(r, stage_rank_, s));
    }
  }
  std::vector<int> shards;
  for (int s = 0; s < split.sequence; ++s) shards.push_back(rank_of(replica_, stage_rank_, s));
  pipeline_ = make_group(transport, timeout, first_group, pipeline_ranks_);
  same_stage_ = make_group(transport, timeout, first_group + 1, same_stage_ranks_);
  sequence_ = make_group(transport, timeout, first_group + 2, shards);
}

ProcessGroup* RankGrid::make_group(Transport& transport, CommClock::duration timeout, uint16_t id,
                                   std::vector<int> members) {
  if (members.size() == 1) return nullptr;
  GroupOptions g;
  g.timeout = timeout;
  g.id = id;
  g.members = std::move(members);
  return made_.emplace_back(make_ring_group(transport, g)).get();
}

}  // namespace rondo
