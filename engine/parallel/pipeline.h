// Pipeline parallelism: runs one rank's actions of a schedule (comm/schedule.h).
//
// The graph's nodes carry their stage; a value that one stage produces and another reads crosses by
// Transport::send and recv, its live rows only, so every micro-batch may have its own shape. Each
// micro-batch in flight has its own plan (activations); all share the stage's parameters, into
// whose gradients they accumulate.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/schedule.h"
#include "comm/transport.h"
#include "engine/graph/plan.h"

namespace rondo {

class PipelineRank {
 public:
  // `graph` is the whole training graph with its backward nodes; stage s runs on rank s. Borrows
  // all arguments. Throws Error when a value crosses between stages that are not neighbours, or a
  // parameter is used by two stages.
  PipelineRank(const Graph& graph, const Context& context, Transport& transport,
               const PipelineSchedule& schedule, const BatchCapacity& capacity,
               Parameters& parameters);

  // Forward and backward of all micro-batches; the gradients of this stage's parameters are added
  // to. Every rank gets all batches (it uses what its stage needs). Throws CommError.
  void run(std::span<const BatchView> micro_batches, CommClock::duration timeout);

  // The plan of a micro-batch, to read what its stage kept.
  const Plan& plan(int micro_batch) const { return *plans_.at(static_cast<size_t>(micro_batch)); }

 private:
  // Values that `from` produces and `to` reads.
  std::vector<ValueId> find_crossing(int from, int to, const std::vector<int>& produced) const;
  void exchange(const Action& action, Deadline deadline);

  const Graph& graph_;
  Transport& transport_;
  const PipelineSchedule& schedule_;
  std::vector<std::unique_ptr<Plan>> plans_;
  // Between this rank's stage and its neighbours, found once.
  std::vector<ValueId> from_lower_, to_lower_, from_upper_, to_upper_;
};

}  // namespace rondo
