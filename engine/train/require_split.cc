#include "engine/train/require_split.h"

#include <algorithm>

#include "engine/cut/sequence_cut.h"
#include "engine/rank_grid.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

void require_frames(const Config& config, const Dataset& data, const ModelFunction& model) {
  const int shards = config.parallel.sequence;
  Graph graph;
  model(graph);
  const int64_t block = uncut_frames(graph);
  int32_t longest = 0;
  for (int64_t i = 0; i < data.size(); ++i) longest = std::max(longest, data.frames(i, 0));
  const int64_t blocks = (longest + block - 1) / block, least = halo_blocks(graph);
  if (blocks >= shards * least) return;
  const std::string parts = block == 1 ? "" : str(", ", blocks, " after subsampling by ", block);
  if (least > 1) {
    fail_input("parallel.sequence=", shards, ": the longest utterance of ", config.data.train,
               " has ", longest, " frames", parts, ": each shard needs ", least * block,
               " at least, for the model's convolutions read so many of its neighbours'");
  }
  fail_input("parallel.sequence=", shards, ": the longest utterance of ", config.data.train,
             " has ", longest, " frames", parts, ": each shard needs one at least");
}

}  // namespace

void require_split(const Config& config, int world, const Dataset& data,
                   const ModelFunction& model) {
  const ParallelConfig& p = config.parallel;
  if (p.pipeline > 1 || p.data > 0) {
    split_world(world, p.pipeline, p.data, p.sequence);
  } else if (world % p.sequence != 0) {
    fail_input("parallel.sequence is ", p.sequence, ", which does not divide the ", world,
               world == 1 ? " rank" : " ranks");
  }
  if (p.sequence > 1) require_frames(config, data, model);
}

}  // namespace rondo
