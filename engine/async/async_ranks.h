// Ranks that never wait: each updates weights of its own, on batches of its own, and every so many
// updates sends its weights to its neighbours on a ring, if they have taken what it sent before.
// What arrives is averaged in between two updates.
//
// After X. Lian et al., "Asynchronous Decentralized Parallel Stochastic Gradient Descent", ICML
// 2018, where a rank also averages with a neighbour; here each side does so with what it has
// received, so sums of weights are kept only on the average. Staleness is bounded in the spirit of
// Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server",
// NIPS 2013, but nobody is held back for it: weights have an age, the number of updates that went
// into them (a mean has the mean age); those that lag more than `max_staleness` behind are dropped,
// and a rank whose own lag so much behind those it receives replaces them.
//
// Optimiser states stay apart until the end. Then ranks that are done wait for the others, and
// weights and optimiser states are averaged, all ranks counting the same.
//
// What must reach all ranks (who is done; that one failed or was asked to stop) travels along with
// the weights, from neighbour to neighbour. `timeout` is how long a neighbour may be silent.
//
// Averages are made in host memory. Memory there: two arrays of the size of the weights per
// neighbour, one more copy of weights and optimiser state, and with devices another one.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/rank_model.h"
#include "engine/reduce/host_array.h"

namespace rondo {

struct AsyncOptions {
  int every = 16;
  int max_staleness = 64;
  CommClock::duration timeout = std::chrono::minutes(5);
};

// One thread at a time. Throws CommError when a rank is gone or late.
class AsyncRanks {
 public:
  // Of this rank's model, a whole one without sums. The first `lasting` of its votes stay above 0
  // once they are. Borrows the model and what `ranks` borrows.
  AsyncRanks(RankModel& model, const Ranks& ranks, size_t lasting, const AsyncOptions& options);
  ~AsyncRanks();

  DataShare share() const;
  // RankModel::enqueue(), and its enqueue_update(), unless there is nothing to apply: then false.
  void enqueue(std::span<const BatchView> parts);
  bool enqueue_update(const Votes& votes);
  // After the result of an update was collected: hears and tells what is new, without waiting. Of
  // the votes only the lasting ones are heard, some time later. Throws UpdateWithdrawn when a rank
  // has failed.
  void meet(const Votes& votes);
  // After the last update: waits for all others, and then they have met. Throws UpdateWithdrawn on
  // all ranks when one of them failed.
  void finish(const Votes& votes);
  // The updates since the start of the slowest rank, as far as they are known.
  int64_t slowest_updates() const;
  // For the log. These tell of the weights last averaged or taken over: "staleness", the age of
  // this rank's weights less theirs; "divergence", the distance between them divided by the norm of
  // this rank's. So far: "averaged", "taken_over", "dropped".
  std::vector<std::pair<const char*, double>> log_values() const;

 private:
  struct Neighbour;
  // Progress of a rank, as far as it is known here.
  struct Progress {
    int64_t updates = 0;
    int32_t done = 0, failed = 0;
  };
  enum class Message : uint8_t { weights, last };

  Progress& own() { return known_[static_cast<size_t>(ranks_.rank())]; }
  void note(const Votes& votes);
  void tell_all();
  size_t message_bytes() const;
  void exchange(bool weights_are_due);
  void receive(Neighbour& from);
  bool is_free(Neighbour& to);
  void send(Neighbour& to, Message kind);
  void merge(Neighbour& from);
  std::span<float> weights();
  void average(double age, const float* theirs);
  bool all_done() const;
  bool failed() const;
  void close();

  RankModel& model_;
  const Ranks ranks_;
  const size_t lasting_votes_;
  const AsyncOptions options_;
  HostArray weights_;
  bool fetched_ = false;         // weights_ are those of now
  std::vector<Progress> known_;  // by rank
  std::vector<double> lasting_;  // votes that stay
  std::vector<std::unique_ptr<Neighbour>> neighbours_;
  int64_t pending_ = 0;
  bool applied_ = false;
  double age_ = 0;
  int since_sent_ = 0;
  double staleness_ = 0, divergence_ = 0;
  int64_t averaged_ = 0, taken_over_ = 0, dropped_ = 0;
};

}  // namespace rondo
