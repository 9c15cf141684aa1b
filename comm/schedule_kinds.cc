// The order of computations of each schedule, and the messages between them.
#include <algorithm>
#include <utility>

#include "comm/schedule.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using Kind = ActionKind;
using Order = std::vector<Action>;  // the computations of one rank

// Forwards that a stage runs before it takes turns.
int warm_up(int stage, int stages, int micro_batches) {
  return std::min(stages - stage - 1, micro_batches);
}

// A backward for each forward from the warm-up on: whole, or in halves.
Order order_of(ScheduleKind kind, int stage, int stages, int micro_batches) {
  const bool halves = kind == ScheduleKind::zero_bubble;
  int forwards = 0, weights = 0;
  Order order;
  const auto forward = [&] {
    if (forwards < micro_batches) order.push_back({Kind::forward, stage, forwards++});
  };
  for (int k = warm_up(stage, stages, micro_batches); k > 0; --k) forward();
  for (int m = 0; m < micro_batches; ++m) {
    forward();
    order.push_back({halves ? Kind::input_backward : Kind::backward, stage, m});
    if (halves && m >= stage) order.push_back({Kind::weight_backward, stage, weights++});
  }
  while (halves && weights < micro_batches)
    order.push_back({Kind::weight_backward, stage, weights++});
  return order;
}

// Puts the messages between the computations.
//
// Everything is placed in one order of the whole world: computations by the time they would start
// if every forward took 1 and every backward 2 (1 for each half), messages by the time the
// computation they come from would end, before what starts then. Each rank's list is its part of
// this order, so the world's first unfinished action can always be carried out: what it depends on
// is earlier, and for a message both ranks have nothing else left to do before it. Hence no
// deadlock, even when sends wait for their recvs.
class MessagePlacer {
 public:
  MessagePlacer(std::vector<Order> orders, int micro_batches) : orders_(std::move(orders)) {
    s_.micro_batches = micro_batches;
    s_.actions.resize(orders_.size());
    const auto pairs = orders_.size() * static_cast<size_t>(micro_batches);
    forward_end_.assign(pairs, -1);
    gradient_end_.assign(pairs, -1);
  }

  PipelineSchedule run() {
    place_all();
    std::stable_sort(all_.begin(), all_.end(), [](const Event& a, const Event& b) {
      return std::pair(a.time, a.computes) < std::pair(b.time, b.computes);
    });
    for (const Event& e : all_) s_.actions[static_cast<size_t>(e.action.stage)].push_back(e.action);
    // Behind the last gradients, when they have been sent.
    for (int stage = 0; stage < s_.stages(); ++stage) {
      s_.actions[static_cast<size_t>(stage)].push_back({Kind::reduce, stage});
    }
    return std::move(s_);
  }

 private:
  struct Event {
    int time;
    bool computes;
    Action action;
  };

  static int duration(Kind kind) { return kind == Kind::backward ? 2 : 1; }
  size_t at(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(s_.micro_batches) +
           static_cast<size_t>(micro_batch);
  }

  // When everything that an action of a computation needs is there; -1: not known yet.
  int ready(const Action& a) const {
    switch (a.kind) {
      case Kind::forward:
        return a.stage == 0 ? 0 : forward_end_[at(a.stage - 1, a.micro_batch)];
      case Kind::backward:
      case Kind::input_backward:
        return a.stage == s_.stages() - 1 ? forward_end_[at(a.stage, a.micro_batch)]
                                          : gradient_end_[at(a.stage + 1, a.micro_batch)];
      default:
        return 0;
    }
  }

  void place_all() {
    std::vector<size_t> next(orders_.size());
    std::vector<int> free(orders_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < orders_.size(); ++r) {
        for (; next[r] < orders_[r].size(); ++next[r], moved = true) {
          const Action& a = orders_[r][next[r]];
          const int inputs = ready(a);
          if (inputs < 0) break;
          const int start = std::max(free[r], inputs);
          free[r] = start + duration(a.kind);
          if (a.kind == Kind::forward) forward_end_[at(a.stage, a.micro_batch)] = free[r];
          if (gives_gradient(a.kind)) gradient_end_[at(a.stage, a.micro_batch)] = free[r];
          all_.push_back({start, true, a});
          add_messages(a, free[r]);
        }
      }
    }
    for (size_t r = 0; r < orders_.size(); ++r) {
      RONDO_CHECK(next[r] == orders_[r].size(), "rank ", r, " waits for ever in its schedule");
    }
  }

  // What a computation gives away at its end.
  void add_messages(const Action& a, int end) {
    const bool up = a.kind == Kind::forward;
    if (!up && !gives_gradient(a.kind)) return;
    const int stage = a.stage, other = up ? stage + 1 : stage - 1;
    if (other < 0 || other >= s_.stages()) return;
    const Action send{up ? Kind::send_activation : Kind::send_gradient, stage, a.micro_batch,
                      other};
    all_.push_back({end, false, send});
    all_.push_back({end, false, recv_of(send, stage)});
  }

  const std::vector<Order> orders_;
  PipelineSchedule s_;
  std::vector<Event> all_;
  std::vector<int> forward_end_, gradient_end_;  // by stage and micro-batch; -1: not known yet
};

}  // namespace

const char* name_of(ScheduleKind kind) {
  return kind == ScheduleKind::one_f_one_b ? "1f1b" : "zero_bubble";
}

ScheduleKind schedule_kind(const std::string& name) {
  for (ScheduleKind k : {ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble}) {
    if (name == name_of(k)) return k;
  }
  fail_input("'", name, "' is no pipeline schedule: 1f1b, zero_bubble");
}

PipelineSchedule with_messages(std::vector<std::vector<Action>> computations, int micro_batches) {
  return MessagePlacer(std::move(computations), micro_batches).run();
}

PipelineSchedule make_schedule(ScheduleKind kind, int stages, int micro_batches) {
  RONDO_CHECK(stages >= 1 && micro_batches >= 1, stages, " stages, ", micro_batches,
              " micro-batches");
  std::vector<Order> orders;
  for (int s = 0; s < stages; ++s) orders.push_back(order_of(kind, s, stages, micro_batches));
  return with_messages(std::move(orders), micro_batches);
}

int stored_activations(ScheduleKind kind, int stage, int stages, int micro_batches) {
  return kind == ScheduleKind::zero_bubble
             ? std::min(stages, micro_batches)
             : std::min(warm_up(stage, stages, micro_batches) + 1, micro_batches);
}

}  // namespace rondo
