// Data parallelism: ranks that hold the same weights compute shares of each batch; gradients,
// counts and votes are summed over them before the update, and the gradients divided once by the
// global count, so the result does not depend on how utterances were spread over ranks.
//
// In every update a rank calls, in this order:
//   last_batch()  before its last batch
//   mark(), flush()  where marks(), for the nodes of that batch: sums may begin meanwhile
//   finish()      when its gradients and totals are complete, or enqueued
//   applied()     where queued(), when the update has been carried out
//
// One thread at a time. Throws CommError when a rank fails.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/group/process_group.h"
#include "engine/graph/parameters.h"

namespace rondo {

class HostArray;    // engine/reduce/host_array.h
struct LossTotals;  // kernels/totals/totals.h

// Some rank could not compute its share of an update: on all ranks the update does not take place,
// and the weights are those before it.
class UpdateWithdrawn : public Error {
 public:
  UpdateWithdrawn() : Error("a rank has withdrawn from this update") {}
};

class Sums {
 public:
  // Of the gradients of these parameters, over the ranks of the group. Both are borrowed.
  Sums(ProcessGroup& group, const Parameters& parameters, size_t votes);
  virtual ~Sums() = default;
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;

  // Numbers of this rank, which finish() replaces by their sums.
  std::span<double> votes() { return votes_; }

  // The batch that runs next is the last one of the update.
  virtual void last_batch() {}
  // Whether mark() is to be called in the next batch.
  virtual bool marks() const { return false; }
  // A node of a training batch has run, or, on devices that queue work, has been enqueued. Where
  // queued(), this does nothing but mark events on the compute stream, which each launch of a
  // recording does by itself.
  virtual void mark(size_t node) { static_cast<void>(node); }
  // Where queued(): what the nodes up to this one have marked is sent on its way.
  static constexpr size_t all_nodes = static_cast<size_t>(-1);
  virtual void flush(size_t node = all_nodes) { static_cast<void>(node); }

  // Whether finish() only enqueues: the sums are there at the latest when the compute stream comes
  // to what is enqueued next, and up to `most_in_flight` updates may be under way. Otherwise the
  // host has waited for the gradients before finish(), which returns when they are summed.
  virtual bool queued() const { return false; }
  static constexpr size_t most_in_flight = 8;
  // Gradients, totals (device memory) and votes become their sums over the ranks, and
  // `inverse_count` (device memory; nullptr: none), what gradients are to be multiplied by. Throws
  // UpdateWithdrawn where a rank has withdrawn.
  virtual void finish(LossTotals* totals, double* inverse_count);
  // Instead of finish(): takes part without contributing, and ends the update on every rank.
  [[noreturn]] void withdraw();
  // Called for each update, in their order. Throws when what it was made of turns out to be wrong.
  virtual void applied() {}

  // Seconds in which gradients were on their way, and the part of them during which this rank had
  // nothing else to do; since the start. Of devices that the host does not wait for also those that
  // were neither spent on communication nor on waiting for it, up to the last applied().
  struct Times {
    double communication = 0, exposed = 0;
    double computed = 0;
    // From 0 to 1: a rank may see the end of its wait a moment after the communication's.
    double hidden_share() const {
      return communication > 0 ? std::clamp(1 - exposed / communication, 0.0, 1.0) : 0;
    }
  };
  const Times& times() const { return times_; }

 protected:
  virtual void sum_gradients() = 0;
  // A withdrawing rank's part in what finish() sums besides on devices.
  virtual void sum_nothing() {}
  // Sums the totals, where there are some, and the votes; throws UpdateWithdrawn where a rank has
  // withdrawn.
  void sum_numbers(LossTotals* totals, bool withdrawn);
  ProcessGroup& group() { return group_; }
  const TensorView& gradients() const { return gradients_; }
  Device& device() const { return device_; }
  Stream& stream() { return stream_; }
  Times times_;

 private:
  ProcessGroup& group_;
  Device& device_;
  const TensorView gradients_;
  Stream stream_;  // for what the host waits for
  std::vector<double> votes_, message_;
};

// Ring all-reduce over a process group, in one piece, after the backward pass; gradients of devices
// go by way of the host.
class GroupSums final : public Sums {
 public:
  GroupSums(ProcessGroup& group, const Parameters& parameters, size_t votes = 0);
  ~GroupSums() override;

 protected:
  void sum_gradients() override;

 private:
  const std::unique_ptr<HostArray> array_;
};

}  // namespace rondo
