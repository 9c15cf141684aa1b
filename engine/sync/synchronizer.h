// How the ranks of a training run work on one model: a strategy that the trainer drives.
//
// The trainer (engine/train/trainer.cc) draws this rank's share of the data, and calls for each
// update
//   begin_batch()  with this rank's shards of a batch
//   accumulate()   for each of them: forward and backward pass
//   apply()        the gradients become an update
//   meet()         once its result is there: what ranks that never wait tell each other
// and collect() for the results, in the order of accumulate() and apply(),
// and finish() at the end of training. Everything that needs all ranks (validation, checkpoints,
// stopping) happens between updates.
//
// How a new kind of parallelism plugs in: an implementation of this class, and a line in
// engine/train/make_synchronizer.cc that makes it.
//   * Ranks that divide batches say in share() which part is theirs.
//   * Ranks that divide the layers or the frames have no session, but parts of a model
//     (engine/sync/pipeline_synchronizer.h). Those of one replica have the same share().
//   * Ranks that need each other within a batch say so in interlocked().
//   * Ranks on devices reduce in apply(); lag() says how far the device may run behind.
//   * What is worth a look goes into log_values().
//
// One thread at a time. Every rank makes the same calls, but for accumulate() and apply() where
// ranks draw batches of their own. Throws CommError when a rank is gone or late.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "comm/schedule_timing.h"
#include "engine/reduce/ranks.h"
#include "engine/reduce/sums.h"
#include "engine/reduce/tree_sums.h"
#include "engine/session.h"

namespace rondo {

// The data of one rank: the shards `own` of every batch, cut into `shards` parts of equal cost; or,
// with a stride above 1, of so many consecutive batches the one of this index, whole.
struct DataShare {
  ShardRange own{0, 1};
  int shards = 1;
  int stride = 1, index = 0;
};

// Something for the log of steps.
struct LogValue {
  const char* name;
  double value;
};

class Synchronizer {
 public:
  Synchronizer() = default;
  virtual ~Synchronizer() = default;
  Synchronizer(const Synchronizer&) = delete;
  Synchronizer& operator=(const Synchronizer&) = delete;

  virtual DataShare share() const { return {}; }
  // So many results may not have been collected when an update begins.
  virtual size_t lag() const { return 0; }

  // Memory for the largest batch of this rank, before the first one.
  virtual void reserve(const BatchCapacity& capacity) = 0;
  // Bytes of activations planned for batches up to `capacity`, which was reserve()d.
  virtual size_t activation_bytes(const BatchCapacity& capacity) const = 0;

  // Within a batch ranks wait for each other: one that fails there cannot take part in the update
  // as `failed`, but must end.
  virtual bool interlocked() const { return false; }
  // All of this rank's shards of a batch, before accumulate() gets them one by one; they live until
  // it has got the last one. `ready`: whether this rank has them. Interlocked ranks all throw
  // UpdateWithdrawn when one has not.
  virtual void begin_batch(std::span<const BatchView> shards, bool ready) {
    static_cast<void>(shards), static_cast<void>(ready);
  }
  // A batch of this rank, or its shard of one; `last`: of the update. Leaves one result for
  // collect().
  virtual void accumulate(const BatchView& batch, int shard, bool last) = 0;

  struct Votes {
    bool failed = false;  // this rank cannot go on: no rank may take the update for done
    // Numbers of this rank, which apply() replaces by their sums over the ranks. The first
    // `lasting` of them stay above 0 once they are.
    std::span<double> ballot = {};
    size_t lasting = 0;
  };
  // Enqueues the update; false when this rank has nothing to apply. Then weights and optimiser are
  // the same on all ranks, or will be once they are asked for. Throws UpdateWithdrawn on all ranks
  // that share the update when one of them failed.
  virtual bool apply(const Votes& votes) = 0;
  // After the result of apply() was collected, for independent ranks. Throws as apply().
  virtual void meet(const Votes&) {}
  // The oldest result, as Session::collect().
  virtual const StepResult& collect() = 0;
  // Ranks do not wait for each other: only the lasting votes of other ranks are heard, in meet(),
  // some time later, and nothing is the same on all ranks before finish().
  virtual bool independent() const { return false; }
  // The updates since the start of the slowest of independent ranks, as far as they are known.
  virtual int64_t slowest_updates() const { return 0; }
  // Independent ranks wait for all others here, after the last update; then they have met. Throws
  // UpdateWithdrawn on all ranks when one of them failed.
  virtual void finish(const Votes&) {}

  // Since the start.
  virtual Sums::Times times() const { return {}; }
  virtual std::vector<LogValue> log_values() const { return {}; }
  // What this rank did in the last update, from the update's start; empty where nobody records it.
  virtual std::vector<TimedAction> timeline() const { return {}; }
};

// The synchronizer of ranks that hold the whole model, in a session.
class SessionSynchronizer : public Synchronizer {
 public:
  // Borrows the session.
  explicit SessionSynchronizer(Session& session) : session_(session) {}

  void reserve(const BatchCapacity& capacity) override { session_.reserve(capacity); }
  size_t activation_bytes(const BatchCapacity& capacity) const override {
    return session_.predict_memory(capacity).activations;
  }
  void accumulate(const BatchView& batch, int shard, bool last) override;
  const StepResult& collect() override { return session_.collect(); }

 protected:
  Session& session() const { return session_; }
  // The session's update by `sums`, which the session has; or, where the update has
  // failed on this rank, no update on any. The ballot travels with the sums, and is filled in.
  void update_by(Sums& sums, const Votes& votes);

 private:
  Session& session_;
};

}  // namespace rondo
