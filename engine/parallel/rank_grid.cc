#include "engine/parallel/rank_grid.h"

#include "kernels/base/error.h"

namespace rondo {

WorldSplit split_world(int world, int pipeline, int data) {
  RONDO_CHECK(world >= 1 && pipeline >= 1 && data >= 0, world, " ranks as ", data, " x ", pipeline);
  if (data == 0 && world % pipeline == 0) return {world / pipeline, pipeline};
  if (data * pipeline == world) return {data, pipeline};
  if (data == 0) {
    fail_input(world, world == 1 ? " rank" : " ranks", " cannot be shared out to pipelines of ",
               pipeline, " ranks: the number of ranks must be a multiple of --pipeline");
  }
  fail_input("--data ", data, " x --pipeline ", pipeline, " is ", data * pipeline,
             " ranks, not the ", world, " there are");
}

RankGrid::RankGrid(Transport& transport, WorldSplit split, CommClock::duration timeout)
    : split_(split),
      replica_(transport.rank() / split.pipeline),
      stage_rank_(transport.rank() % split.pipeline) {
  RONDO_CHECK(split.data * split.pipeline == transport.world_size(), split.data, " x ",
              split.pipeline, " ranks of ", transport.world_size());
  GroupOptions g;
  g.timeout = timeout;
  g.id = first_group;
  for (int s = 0; s < split.pipeline; ++s) g.members.push_back(replica_ * split.pipeline + s);
  pipeline_ = make_ring_group(transport, g);
  g.id = first_group + 1;
  g.members.clear();
  for (int r = 0; r < split.data; ++r) g.members.push_back(r * split.pipeline + stage_rank_);
  data_ = make_ring_group(transport, g);
}

}  // namespace rondo
