#include "comm/schedule_timing.h"

#include <algorithm>
#include <map>

#include "kernels/base/error.h"

namespace rondo {
namespace {

using Kind = ActionKind;

bool computes(Kind k) {
  return k == Kind::forward || k == Kind::backward || k == Kind::input_backward ||
         k == Kind::weight_backward;
}
bool is_send(Kind k) { return k == Kind::send_activation || k == Kind::send_gradient; }

class Timing {
 public:
  Timing(const PipelineSchedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule), costs_(costs), free_(schedule.actions.size()) {
    const auto pairs =
        static_cast<size_t>(schedule.stages) * static_cast<size_t>(schedule.micro_batches);
    input_at_.assign(pairs, unknown);
    gradient_at_.assign(pairs, unknown);
    timeline_.ranks.resize(schedule.actions.size());
  }

  PipelineTimeline run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < schedule_.ranks(); ++r) {
        while (step(r)) moved = true;
      }
    }
    for (int r = 0; r < schedule_.ranks(); ++r) {
      RONDO_CHECK(list(r).size() == done(r).size(), "rank ", r, " waits for ever in ",
                  describe(list(r)[done(r).size()]));
    }
    return std::move(timeline_);
  }

 private:
  static constexpr double unknown = -1;

  const std::vector<Action>& list(int rank) const {
    return schedule_.actions[static_cast<size_t>(rank)];
  }
  std::vector<TimedAction>& done(int rank) { return timeline_.ranks[static_cast<size_t>(rank)]; }
  size_t at(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(schedule_.micro_batches) +
           static_cast<size_t>(micro_batch);
  }
  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }

  // When the inputs of an action are on its rank, or unknown.
  double inputs(const Action& a) const {
    const bool first = a.stage == 0, last = a.stage == schedule_.stages - 1;
    switch (a.kind) {
      case Kind::forward:
      case Kind::recv_activation:
        return first ? 0 : input_at_[at(a.stage, a.micro_batch)];
      case Kind::backward:
      case Kind::input_backward:
      case Kind::recv_gradient:
        return last ? 0 : gradient_at_[at(a.stage, a.micro_batch)];
      default:
        return 0;
    }
  }

  bool step(int rank) {
    const size_t next = done(rank).size();
    if (next == list(rank).size()) return false;
    const Action& a = list(rank)[next];
    const double ready = inputs(a);
    if (ready == unknown) return false;
    double& free = free_[static_cast<size_t>(rank)];
    TimedAction t{a, free, free};
    if (computes(a.kind)) {
      t.start = std::max(free, ready);
      t.end = free = t.start + costs_.compute(rank, a);
      hand_over(rank, a, t.end);
    } else if (is_send(a.kind)) {
      double& link = link_free_[{rank, a.peer}];
      t.start = std::max(free, link);
      t.end = link = t.start + costs_.transfer(rank, a);
      arrive(a, t.end + (costs_.latency ? costs_.latency(rank, a) : 0));
    } else if (a.kind == Kind::reduce) {
      t.end = t.start + costs_.compute(rank, a);
    } else {
      t.end = std::max(free, ready);
    }
    done(rank).push_back(t);
    return true;
  }

  // To a stage of the same rank, without a message.
  void hand_over(int rank, const Action& a, double when) {
    const bool backward = a.kind == Kind::backward || a.kind == Kind::input_backward;
    if (a.kind == Kind::forward && a.stage + 1 < schedule_.stages && rank_of(a.stage + 1) == rank) {
      input_at_[at(a.stage + 1, a.micro_batch)] = when;
    }
    if (backward && a.stage > 0 && rank_of(a.stage - 1) == rank) {
      gradient_at_[at(a.stage - 1, a.micro_batch)] = when;
    }
  }

  void arrive(const Action& send, double when) {
    if (send.kind == Kind::send_activation) {
      input_at_[at(send.stage + 1, send.micro_batch)] = when;
    } else {
      gradient_at_[at(send.stage - 1, send.micro_batch)] = when;
    }
  }

  const PipelineSchedule& schedule_;
  const PipelineCosts& costs_;
  std::vector<double> free_;                         // by rank: when it has nothing to do
  std::map<std::pair<int, int>, double> link_free_;  // from, to
  std::vector<double> input_at_, gradient_at_;       // by stage and micro-batch
  PipelineTimeline timeline_;
};

}  // namespace

double PipelineTimeline::duration() const {
  double last = 0;
  for (const auto& actions : ranks) {
    for (const TimedAction& t : actions) last = std::max(last, t.end);
  }
  return last;
}

double PipelineTimeline::busy(int rank) const {
  double sum = 0;
  for (const TimedAction& t : ranks.at(static_cast<size_t>(rank))) {
    if (computes(t.action.kind)) sum += t.end - t.start;
  }
  return sum;
}

double PipelineTimeline::bubble(int rank) const {
  const double all = duration();
  return all > 0 ? 1 - busy(rank) / all : 0;
}

PipelineTimeline pipeline_timing(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  return Timing(schedule, costs).run();
}

}  // namespace rondo
