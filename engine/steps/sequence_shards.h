// Sequence parallelism: every sequence is cut in time over the ranks, which hold all layers. This
// is one rank's shard: its slice of every batch, and what the nodes that need a neighbour's state,
// or its frames, get from it and pass on. A StepRunner runs whole models and stages this way.
//
// Shard s of p computes its frames of every sequence. From the left it gets the state of each
// recurrent layer and, last, CTC's alpha; from the right beta, log p and the gradients of the
// states; what it makes of them it passes on. The second direction of a bidirectional layer walks
// the other way, so that both ends begin at once; in the middle each shard first computes the
// direction whose end is nearer. Weight gradients need no neighbour and come last, one product per
// weight and batch. Micro-batches fill the wave: a shard works at one while others have the next.
// (The wave through time and layers is that of any pipeline; activations per rank are those of its
// frames, which is what sharding is for.)
//
// A pooling over frames is a sum of the shards' parts, which all of them get; what comes behind it
// they all compute, and the first one accounts for it.
//
// The result is that of one rank but for the order of summation in the weight gradients, and CTC's
// arithmetic, which is that of its "wide" variants bit for bit (kernels/ctc/ctc_chunk.h). Dropout
// is keyed by absolute frames. Subsampling never looks across a cut, because cuts are at multiples
// of it. Convolutions do: in front of each, neighbours give one another the frames it reads, and
// behind its gradient those of these frames (HaloLayer in engine/cut/sequence_graph.h).
//
// On any device; what crosses a cut goes by way of the host (engine/steps/shard_borders.h).
// Where the device records work, a slice runs with the bound graph of its bucket
// (engine/graph/bucket.h), and what it computes between two messages, the time loop of a layer say,
// is one recording; weight gradients, few launches each, are not recorded. One thread at a time.
// Throws InputError for models that cannot be cut (engine/cut/sequence_graph.h), CommError when a
// rank fails.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/group/process_group.h"
#include "comm/schedule_steps.h"
#include "comm/schedule_timing.h"
#include "engine/cut/sequence_cut.h"
#include "engine/cut/sequence_graph.h"
#include "engine/graph/bound_graph.h"
#include "engine/steps/shard_borders.h"
#include "kernels/totals/totals.h"

namespace rondo {

class SequenceShards {
 public:
  // `training` is a whole training graph with its backward nodes; `max_label_length`: capacity, the
  // same on all shards. Those are `count` neighbours of the group, of which rank `first` has the
  // first shard. Borrows the group and what the context points to.
  SequenceShards(const Graph& training, ValueId loss, const Context& context, ProcessGroup& group,
                 int first, int count, int32_t max_label_length);
  SequenceShards(const SequenceShards&) = delete;
  SequenceShards& operator=(const SequenceShards&) = delete;

  const ChunkGraph& chunk() const { return chunk_; }
  int rank() const { return rank_; }  // which shard is computed here
  int ranks() const { return ranks_; }

  // This shard's of a batch.
  BatchCapacity capacity(const BatchCapacity& whole) const;
  BatchSlice cut(const BatchView& whole) const;

  // A node that needs what a neighbour has. Every value is [directions, N, width].
  struct Exchange {
    size_t node = no_node;
    int directions = 1;
    bool backward = false;  // direction 0 comes from the right
    std::vector<ValueId> in, out;
    const PooledLayer* pool = nullptr;  // instead: a sum over all shards, or a share of a gradient
    int stage = 0;                      // in the timeline: which recurrent layer; CTC, pooling last
    const HaloLayer* halo = nullptr;    // instead: frames of both neighbours, or their gradients

    // Shards meet there, instead of handing a state on.
    bool meets() const { return pool || halo; }
    ShardExchange order() const { return {directions, backward, meets(), halo != nullptr}; }
    // Which direction is computed first.
    int early(int rank, int ranks) const { return early_direction(order(), rank, ranks); }
  };
  // In the order of their nodes.
  const std::vector<Exchange>& exchanges() const { return exchanges_; }

  // A micro-batch on its way through a bound graph.
  struct Pass {
    BoundGraph* bound = nullptr;
    const BatchSlice* slice = nullptr;
    std::vector<int32_t> lengths = {};         // of whole sequences, in their order here
    size_t number = 0;                         // of the micro-batch: for messages
    std::vector<Thunk> early = {}, late = {};  // by exchange, where there are two directions
    std::vector<std::byte> partial = {};       // of a pooling, as it was sent
  };
  // The pass of a stage of chunk().graph, bound.
  Pass bind(BoundGraph& bound, int stage) const;
  // `slice` of `whole` has been loaded into it, and lives until the pass is over.
  void begin(Pass& pass, const BatchSlice& slice, const BatchView& whole, size_t number) const;

  // Messages until finish() may take so long; finish() waits for those that were sent.
  void start(CommClock::duration timeout);
  void finish();
  // On devices that queue work: states that have been computed are sent when the host comes by.
  // `all`: it waits for them, as it must before it waits for anything else that needs other ranks.
  using Leaving = ShardBorders::Leaving;
  void post_leaving(Leaving which) { borders_.post_leaving(which); }

  // Behind a pooling all shards compute the same; its weight gradients count once.
  bool is_duplicate(const Node& node) const;
  // Runs one direction of a node that exchanges: its state comes, it is computed, the state goes
  // on.
  void run_direction(Pass& pass, size_t exchange, int direction);
  // Posts the receives of a run_direction() that will come, of the micro-batch whose slice this
  // is.
  void expect(const BatchSlice& slice, size_t micro_batch, size_t exchange, int direction);
  // run_direction() records what it computes as parts of the pass's graph below this number
  // (BoundGraph::run_recorded()).
  size_t recorded_parts() const { return 2 * exchanges_.size(); }
  // Where shards meet: what others need of this one is sent, and then what it needs of them waited
  // for. A pooling's parts and their sum; a convolution's halos.
  void begin_meeting(Pass& pass, size_t exchange);
  void end_meeting(Pass& pass, size_t exchange);

  // Adds the sums of a pass whose losses are there, to be summed over the ranks: a sequence and its
  // loss count on the first shard. `losses`: in the order of the batch's sequences, on the first
  // shard, for losses of sequences (ctc).
  void add_losses(const Pass& pass, LossTotals& totals, std::vector<double>& losses);

  // Since start(), in seconds from then: what run_direction() computed, sent, and waited for, and
  // what was noted. Peers are shards. A message is received by the stage that a pipeline would
  // receive it in: the one after (states) or before (gradients) its sender's.
  const std::vector<TimedAction>& timeline() const { return timeline_; }
  // On devices that queue work the timeline tells when the host enqueued it, unless it waits for
  // each computation, which only a run that is to be looked at should do.
  void wait_for_timeline(bool waits) { timed_ = waits; }
  void note(ActionKind kind, int stage, int micro_batch, int peer, double began);
  double seconds() const;

 private:
  void find_exchanges();
  uint32_t number(size_t micro_batch, size_t exchange, int direction) const;
  void compute(Pass& pass, size_t exchange, int direction);
  std::vector<ShardBorders::Rows> planes(const Pass& pass, const std::vector<ValueId>& values,
                                         int direction) const;
  ShardBorders::Rows frames_of(const Pass& pass, ValueId id) const;
  TensorView fetched(const Pass& pass, ValueId id);
  void begin_halo(Pass& pass, size_t exchange);
  void end_halo(Pass& pass, size_t exchange);
  void send_frames(const Pass& pass, ValueId id, int to, uint32_t number);
  void receive_frames(const Pass& pass, ValueId id, int from, uint32_t number);
  void take_share(const Pass& pass, const PooledLayer& pool);
  void send_partial(Pass& pass, size_t exchange);
  void add_partials(Pass& pass, size_t exchange);

  const Context context_;
  const int rank_, ranks_;
  ChunkGraph chunk_;
  std::vector<Exchange> exchanges_;

  ShardBorders borders_;
  CommClock::time_point started_{};
  std::vector<TimedAction> timeline_;
  bool timed_ = false;
};

}  // namespace rondo
