// Ranks that share each sequence: of every `shards` neighbours each computes a part of all frames
// of the same batches, and such groups of neighbours divide the batches. Gradients are summed over
// all ranks in buckets, while later ones are still computed; those of devices by groups of devices.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/steps/sequence.h"
#include "engine/sync/synchronizer.h"

namespace rondo {

class SequenceSynchronizer final : public SessionSynchronizer {
 public:
  // Makes what sums the gradients of a graph of the session's parameters over all ranks.
  using MakeReducer = std::function<std::unique_ptr<RankReducer>(const Graph& graph)>;
  // `shards` divides the size of the group, which is borrowed. `timeout`: of each exchange of a
  // batch. A batch is cut into so many micro-batches, which fill the wave. Throws InputError for
  // models that cannot be cut in time.
  SequenceSynchronizer(Session& session, ProcessGroup& group, int shards, int micro_batches,
                       CommClock::duration timeout, const MakeReducer& reducer);
  ~SequenceSynchronizer() override { session().set_reducer(nullptr); }

  DataShare share() const override { return share_; }
  void reserve(const BatchCapacity& capacity) override;
  size_t activation_bytes(const BatchCapacity&) const override { return sequence_.arena_bytes(); }
  bool interlocked() const override { return true; }
  void begin_batch(std::span<const BatchView> shards, bool ready) override;
  void accumulate(const BatchView& batch, int shard, bool last) override;
  bool apply(const Votes& votes) override;
  RankReducer::Times times() const override { return reducer_->times(); }
  // The timeline of the update's last batch.
  std::vector<TimedAction> timeline() const override { return sequence_.timeline(); }
  void record_timeline() override { sequence_.wait_for_timeline(true); }

 private:
  ProcessGroup& group_;
  SequenceRank sequence_;
  const std::unique_ptr<RankReducer> reducer_;
  const CommClock::duration timeout_;
  DataShare share_;
  std::vector<BatchView> wave_;  // the batch's micro-batches
  size_t passed_ = 0;            // of them, those whose result has been given
};

}  // namespace rondo
