// Ranks that share each sequence: of every `shards` neighbours each computes a part of all frames
// of the same batches, and such groups of neighbours divide the batches. Gradients are summed over
// all ranks.
#pragma once

#include <memory>

#include "engine/parallel/sequence.h"
#include "engine/parallel/synchronizer.h"

namespace rondo {

class SequenceSynchronizer final : public Synchronizer {
 public:
  // `shards` divides the size of the group, which is borrowed. `timeout`: of each exchange of a
  // batch. Throws InputError for models that cannot be cut in time.
  SequenceSynchronizer(Session& session, ProcessGroup& group, int shards,
                       CommClock::duration timeout, size_t ballot);
  ~SequenceSynchronizer() override { session().set_reducer(nullptr); }

  DataShare share() const override { return share_; }
  void reserve(const BatchCapacity& capacity) override { sequence_.reserve(capacity, 1); }
  void accumulate(const BatchView& batch, int shard, bool last) override;
  bool apply(const Update& update) override;
  bool meet(const Update&) override { return true; }
  RankReducer::Times times() const override { return reducer_.times(); }

 private:
  GroupReducer reducer_;
  SequenceRank sequence_;
  const CommClock::duration timeout_;
  DataShare share_;
};

}  // namespace rondo
