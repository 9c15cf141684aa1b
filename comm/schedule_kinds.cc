// The order of computations of each schedule, and the messages between them.
#include <algorithm>
#include <utility>

#include "comm/schedule.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using Kind = ActionKind;
using Order = std::vector<Action>;  // the computations of one rank

struct Size {
  int ranks, micro_batches, chunks;
};

Order gpipe_order(const Size& n, int rank) {
  Order order;
  for (int m = 0; m < n.micro_batches; ++m) order.push_back({Kind::forward, rank, m});
  for (int m = 0; m < n.micro_batches; ++m) order.push_back({Kind::backward, rank, m});
  return order;
}

// The k-th forward of a rank that has several stages: `ranks` micro-batches on the first of them,
// the same on the second, ..., then the next micro-batches. One stage: the k-th micro-batch.
Action forward_number(const Size& n, int rank, int k) {
  if (n.chunks == 1) return {Kind::forward, rank, k};
  const int chunk = k / n.ranks % n.chunks;
  return {Kind::forward, rank + chunk * n.ranks, k / (n.ranks * n.chunks) * n.ranks + k % n.ranks};
}
Action backward_number(const Size& n, int rank, int k) {
  Action a = forward_number(n, rank, k);
  a.kind = Kind::backward;
  a.stage = rank + (n.chunks - 1) * n.ranks - (a.stage - rank);
  return a;
}

// Forwards that a rank runs before it takes turns.
int warm_up(const Size& n, int rank) {
  const int forwards =
      n.chunks == 1 ? n.ranks - rank - 1 : 2 * (n.ranks - rank - 1) + (n.chunks - 1) * n.ranks;
  return std::min(forwards, n.micro_batches * n.chunks);
}

Order alternating_order(const Size& n, int rank) {
  const int all = n.micro_batches * n.chunks;
  int forwards = 0;
  Order order;
  const auto forward = [&] {
    if (forwards < all) order.push_back(forward_number(n, rank, forwards++));
  };
  for (int k = warm_up(n, rank); k > 0; --k) forward();
  for (int k = 0; k < all; ++k) {
    forward();
    order.push_back(backward_number(n, rank, k));
  }
  return order;
}

Order zero_bubble_order(const Size& n, int rank) {
  int forwards = 0, weights = 0;
  Order order;
  const auto forward = [&] {
    if (forwards < n.micro_batches) order.push_back({Kind::forward, rank, forwards++});
  };
  for (int k = warm_up(n, rank); k > 0; --k) forward();
  for (int m = 0; m < n.micro_batches; ++m) {
    forward();
    order.push_back({Kind::input_backward, rank, m});
    if (m >= rank) order.push_back({Kind::weight_backward, rank, weights++});
  }
  while (weights < n.micro_batches) order.push_back({Kind::weight_backward, rank, weights++});
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
  MessagePlacer(const Size& n, std::vector<Order> orders) : orders_(std::move(orders)) {
    s_.stages = n.ranks * n.chunks;
    s_.micro_batches = n.micro_batches;
    for (int s = 0; s < s_.stages; ++s) s_.rank_of_stage.push_back(s % n.ranks);
    const auto pairs = static_cast<size_t>(s_.stages) * static_cast<size_t>(s_.micro_batches);
    forward_end_.assign(pairs, -1);
    gradient_end_.assign(pairs, -1);
  }

  PipelineSchedule run() {
    std::vector<Event> all = computations();
    for (size_t i = 0, n = all.size(); i < n; ++i) add_messages(all[i], all);
    std::stable_sort(all.begin(), all.end(), [](const Event& a, const Event& b) {
      return std::pair(a.time, a.computes) < std::pair(b.time, b.computes);
    });
    s_.actions.resize(orders_.size());
    for (const Event& e : all) s_.actions[static_cast<size_t>(e.rank)].push_back(e.action);
    add_reductions();
    return std::move(s_);
  }

 private:
  struct Event {
    int time;
    bool computes;
    int rank;
    Action action;
    int end = 0;  // of a computation
  };

  static int duration(Kind kind) { return kind == Kind::backward ? 2 : 1; }
  size_t at(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(s_.micro_batches) +
           static_cast<size_t>(micro_batch);
  }
  int rank_of(int stage) const { return s_.rank_of_stage[static_cast<size_t>(stage)]; }

  // When everything that an action of a computation needs is there; -1: not known yet.
  int ready(const Action& a) const {
    switch (a.kind) {
      case Kind::forward:
        return a.stage == 0 ? 0 : forward_end_[at(a.stage - 1, a.micro_batch)];
      case Kind::backward:
      case Kind::input_backward:
        return a.stage == s_.stages - 1 ? forward_end_[at(a.stage, a.micro_batch)]
                                        : gradient_end_[at(a.stage + 1, a.micro_batch)];
      default:
        return 0;
    }
  }

  std::vector<Event> computations() {
    std::vector<Event> all;
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
          if (a.kind == Kind::backward || a.kind == Kind::input_backward) {
            gradient_end_[at(a.stage, a.micro_batch)] = free[r];
          }
          all.push_back({start, true, static_cast<int>(r), a, free[r]});
        }
      }
    }
    for (size_t r = 0; r < orders_.size(); ++r) {
      RONDO_CHECK(next[r] == orders_[r].size(), "rank ", r, " waits for ever in its schedule");
    }
    return all;
  }

  void add_messages(const Event& e, std::vector<Event>& all) const {
    const bool up = e.action.kind == Kind::forward;
    if (!up && e.action.kind != Kind::backward && e.action.kind != Kind::input_backward) return;
    const int stage = e.action.stage, other = up ? stage + 1 : stage - 1;
    if (other < 0 || other >= s_.stages || rank_of(other) == e.rank) return;
    const int m = e.action.micro_batch, from = e.rank, to = rank_of(other), end = e.end;
    all.push_back(
        {end, false, from, {up ? Kind::send_activation : Kind::send_gradient, stage, m, to}});
    all.push_back(
        {end, false, to, {up ? Kind::recv_activation : Kind::recv_gradient, other, m, from}});
  }

  // After the last gradients of each stage have been computed, and sent.
  void add_reductions() {
    for (auto& list : s_.actions) {
      std::vector<size_t> last(static_cast<size_t>(s_.stages), list.size());
      for (size_t i = 0; i < list.size(); ++i) {
        const Action& a = list[i];
        if (a.kind == Kind::backward || a.kind == Kind::weight_backward) {
          last[static_cast<size_t>(a.stage)] = i;
        }
      }
      Order with, due;
      for (size_t i = 0; i < list.size(); ++i) {
        const bool message = list[i].peer >= 0;
        if (!message) with.insert(with.end(), due.begin(), due.end());
        if (!message) due.clear();
        with.push_back(list[i]);
        const int stage = list[i].stage;
        if (last[static_cast<size_t>(stage)] == i) due.push_back({Kind::reduce, stage});
      }
      with.insert(with.end(), due.begin(), due.end());
      list = std::move(with);
    }
  }

  const std::vector<Order> orders_;
  PipelineSchedule s_;
  std::vector<int> forward_end_, gradient_end_;  // by stage and micro-batch; -1: not known yet
};

}  // namespace

const char* name_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::gpipe:
      return "gpipe";
    case ScheduleKind::one_f_one_b:
      return "1f1b";
    case ScheduleKind::interleaved:
      return "interleaved";
    case ScheduleKind::zero_bubble:
      return "zero_bubble";
  }
  return "?";
}

ScheduleKind schedule_kind(const std::string& name) {
  for (ScheduleKind k : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                         ScheduleKind::zero_bubble}) {
    if (name == name_of(k)) return k;
  }
  fail_input("'", name, "' is no pipeline schedule: gpipe, 1f1b, interleaved, zero_bubble");
}

PipelineSchedule make_schedule(ScheduleKind kind, int ranks, int micro_batches, int chunks) {
  RONDO_CHECK(ranks >= 1 && micro_batches >= 1 && chunks >= 1, ranks, " ranks, ", micro_batches,
              " micro-batches, ", chunks, " stages per rank");
  RONDO_CHECK(chunks == 1 || kind == ScheduleKind::interleaved, "the ", name_of(kind),
              " schedule has one stage per rank, not ", chunks);
  RONDO_CHECK(kind != ScheduleKind::interleaved || micro_batches % ranks == 0, micro_batches,
              " interleaved micro-batches on ", ranks, " ranks");
  const Size n{ranks, micro_batches, chunks};
  std::vector<Order> orders;
  for (int r = 0; r < ranks; ++r) {
    orders.push_back(kind == ScheduleKind::gpipe         ? gpipe_order(n, r)
                     : kind == ScheduleKind::zero_bubble ? zero_bubble_order(n, r)
                                                         : alternating_order(n, r));
  }
  return MessagePlacer(n, std::move(orders)).run();
}

std::string schedule_objection(ScheduleKind kind, int ranks, int micro_batches, int chunks) {
  if (kind == ScheduleKind::interleaved && (micro_batches < 1 || micro_batches % ranks != 0)) {
    return str("the interleaved schedule of ", ranks, " ranks needs a multiple of ", ranks,
               " micro-batches, not ", micro_batches);
  }
  if (kind != ScheduleKind::interleaved && chunks != 1) {
    return str("the ", name_of(kind), " schedule has one stage per rank, not ", chunks);
  }
  const int least = kind == ScheduleKind::gpipe ? 1 : ranks;
  if (micro_batches >= least) return "";
  return str("the ", name_of(kind), " schedule of ", ranks, " ranks needs at least ", least,
             " micro-batches, not ", micro_batches);
}

int stored_activations(ScheduleKind kind, int rank, int ranks, int micro_batches, int chunks) {
  switch (kind) {
    case ScheduleKind::gpipe:
      return micro_batches;
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::interleaved:
      return std::min(warm_up({ranks, micro_batches, chunks}, rank) + 1, micro_batches * chunks);
    case ScheduleKind::zero_bubble:
      return std::min(ranks, micro_batches);
  }
  return 0;
}

}  // namespace rondo
