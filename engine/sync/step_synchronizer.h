// Every update is shared: gradients are summed over the ranks, so all of them hold the same weights
// all the time. With no sums, a rank that works alone.
#pragma once

#include <memory>

#include "comm/in_process/in_process.h"
#include "engine/sync/synchronizer.h"

namespace rondo {

class StepSynchronizer final : public SessionSynchronizer {
 public:
  // A single rank.
  explicit StepSynchronizer(Session& session) : SessionSynchronizer(session) {}
  // Rank `rank` of `ranks` takes its shard of every batch. Sums are left everywhere, or,
  // of an update that is divided, the own blocks' (UpdateRanks::own_sums).
  StepSynchronizer(Session& session, std::unique_ptr<Sums> sums, int rank, int ranks);
  // Whatever the number of ranks, the same sums, along the tree over so many shards. `group`
  // (borrowed; nullptr: a single rank) has no more ranks than that.
  StepSynchronizer(Session& session, ProcessGroup* group, int shards, size_t votes);
  ~StepSynchronizer() override { session().set_sums(nullptr); }

  DataShare share() const override { return share_; }
  // One step, so that a GPU has work while results are read. On the cpu they are there at once.
  size_t lag() const override;
  void accumulate(const BatchView& batch, int shard, bool last) override;
  bool apply(const Votes& votes) override;
  Sums::Times times() const override;

 private:
  InProcessWorld world_of_one_{1};
  std::unique_ptr<ProcessGroup> alone_;
  std::unique_ptr<Sums> sums_;
  TreeSums* tree_ = nullptr;  // the same, if it is one
  DataShare share_;
};

}  // namespace rondo
