// Buckets: the few capacities that batches are rounded up to, where work is recorded once per
// capacity (a CUDA graph) and launched for every batch that it holds.
#pragma once

#include <memory>
#include <vector>

#include "engine/graph/bound_graph.h"

namespace rondo {

// The capacity of the bucket of a batch of this extent. Frames are rounded up to 2^k or 3 *
// 2^(k-1), so that at most a third of a time loop's steps finds nothing to do, sequences to 2^k,
// and small numbers to 16 frames and 4 sequences; none beyond `most`, the largest batch's. Labels
// are those of `most`: no loop goes by them. A function of the two extents alone, so that a run
// that was resumed computes a batch as it would have.
BatchCapacity bucket_of(const BatchCapacity& extent, const BatchCapacity& most);

// A graph, or a stage of it, bound several times: one for the largest batches, which has the
// memory, and within it, where the device records work, one per bucket. A recorded launch has as
// many steps as its capacity has frames, so short batches need graphs of their own, with recordings
// of their own (BoundGraph::run_recorded()). They share memory: a batch that one of them loads
// takes the place of what another one loaded and computed.
//
// Borrows what BoundGraph borrows. One thread at a time.
class BucketedGraphs {
 public:
  // BoundGraph's arguments, for batches within `most`. All device memory is allocated here.
  BucketedGraphs(const Graph& graph, const Context& context, const BatchCapacity& most,
                 Parameters& parameters, int stage = all_stages);

  // The graph of the bucket of a batch of this extent, which largest() holds. It is made when the
  // bucket is met for the first time, and stays where it is. Where the bucket's arena would not fit
  // into the largest one, which placement by size allows, that is the largest one.
  BoundGraph& bound_for(const BatchCapacity& extent);
  // What bound_for() returned last.
  BoundGraph& latest() const { return *latest_; }
  BoundGraph& largest() const { return *all_.front(); }

 private:
  std::vector<std::unique_ptr<BoundGraph>> all_;  // the largest first
  std::vector<PackedCapacity> too_large_;         // buckets whose arenas do not fit, found out once
  BoundGraph* latest_;
};

}  // namespace rondo
