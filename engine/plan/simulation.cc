#include "engine/plan/simulation.h"

#include <algorithm>
#include <utility>

#include "kernels/base/error.h"

namespace rondo::plan {

StageCosts costs_of_stage(const std::vector<BlockCost>& blocks, int begin, int end, bool cut) {
  StageCosts row;
  const auto count = static_cast<int>(blocks.size());
  const auto block = [&](int b) -> const BlockCost& { return blocks[static_cast<size_t>(b)]; };
  if (!cut) {
    for (int b = begin; b < end; ++b) {
      const PassSeconds whole = block(b).whole();
      row.after_forward += whole.forward;
      row.after_backward += whole.input_backward;
      row.weights += whole.weight_backward;
    }
    return row;
  }
  double between = 0;
  const auto loop = [&](int b, bool backward) {
    const BlockCost& c = block(b);
    if (c.directions == 0) return;
    row.exchanges.push_back({{c.directions, backward},
                             b,
                             backward ? c.direction.input_backward : c.direction.forward,
                             c.state_bytes,
                             std::exchange(between, 0)});
  };
  const auto loss = [&](bool backward) {
    if (end < count || block(count - 1).loss == 0) return;
    row.exchanges.push_back({{1, backward},
                             count,
                             block(count - 1).loss / 2,
                             block(count - 1).loss_bytes,
                             std::exchange(between, 0)});
  };
  for (int b = begin; b < end; ++b) {
    loop(b, false);
    between += block(b).rest.forward;
  }
  loss(false);
  row.after_forward = std::exchange(between, 0);
  loss(true);
  for (int b = end - 1; b >= begin; --b) {
    between += block(b).rest.input_backward;
    loop(b, true);
    row.weights += block(b).whole().weight_backward;
  }
  row.after_backward = between;
  return row;
}

ShardedSchedule StepCosts::listed() const {
  ShardedSchedule s = schedule;
  s.exchanges.clear();
  for (const StageCosts& stage : stages) {
    StageExchanges& of_stage = s.exchanges.emplace_back();
    for (const StageCosts::Exchange& e : stage.exchanges) of_stage.push_back(e.order);
  }
  return s;
}

namespace {

class Simulation {
 public:
  explicit Simulation(const StepCosts& costs)
      : c_(costs),
        schedule_(costs.listed()),
        stride_(schedule_.woven ? 1 : schedule_.shards),
        ranks_(static_cast<size_t>(schedule_.ranks())),
        micro_batches_(static_cast<size_t>(schedule_.schedule.micro_batches)) {
    for (const StageCosts& s : c_.stages) exchanges_ = std::max(exchanges_, s.exchanges.size());
    messages_.assign(ranks_.size() * micro_batches_ * 2, -1);
    states_.assign(messages_.size() * exchanges_, -1);
    times_.timeline.ranks.resize(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].number = static_cast<int>(r);
      ranks_[r].stage = ranks_[r].number / schedule_.shards;
      ranks_[r].shard = ranks_[r].number % schedule_.shards;
      ranks_[r].steps = rank_steps(schedule_, ranks_[r].stage, ranks_[r].shard);
    }
  }

  StepTimes run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& r : ranks_) {
        for (; r.next < r.steps.size() && carried_out(r, r.steps[r.next]); ++r.next) moved = true;
      }
    }
    for (const Rank& r : ranks_) {
      RONDO_CHECK(r.next == r.steps.size(), "rank ", r.number,
                  " waits for ever: ", describe(r.steps[r.next]));
      times_.computed = std::max(times_.computed, r.clock);
    }
    times_.end = std::max(times_.end, times_.computed);
    for (double* mean : {&times_.busy, &times_.messages})
      *mean /= static_cast<double>(ranks_.size());
    for (auto& drawn : times_.timeline.ranks) {
      std::stable_sort(drawn.begin(), drawn.end(), [](const TimedAction& a, const TimedAction& b) {
        return a.start < b.start;
      });
    }
    return std::move(times_);
  }

 private:
  enum Link : int { to_next_shard, to_shard_before, to_upper, to_lower, links };
  struct Rank {
    int number = 0, stage = 0, shard = 0;
    std::vector<Step> steps;
    size_t next = 0;                // of these
    double clock = 0;               // when it has computed all before that one
    double free[links] = {};        // when each of its links is
    const Action* began = nullptr;  // the computation whose parts it carries out
    size_t drawn = 0;               // its last computation among what is drawn
  };
  // When what a rank waits for is there, -1 where it was not sent yet: the state of an exchange's
  // direction, and what comes up or down from a stage.
  double& state_at(int rank, int exchange, int micro_batch, int direction) {
    return states_[((at(rank) * exchanges_ + at(exchange)) * micro_batches_ + at(micro_batch)) * 2 +
                   at(direction)];
  }
  double& message_at(int rank, int micro_batch, bool up) {
    return messages_[(at(rank) * micro_batches_ + at(micro_batch)) * 2 + (up ? 1 : 0)];
  }
  static size_t at(int i) { return static_cast<size_t>(i); }

  std::vector<TimedAction>& drawn(int rank) {
    return times_.timeline.ranks.at(static_cast<size_t>(rank));
  }

  // Whether a step was carried out, or has to wait for what another rank has not sent yet.
  bool carried_out(Rank& r, const Step& s) {
    const Action& a = s.action;
    const StageCosts& costs = c_.stages[static_cast<size_t>(a.stage)];
    switch (s.kind) {
      case Step::Kind::expect:
      case Step::Kind::offer:  // planned models do not meet
        return true;
      case Step::Kind::action:
        if (a.kind == ActionKind::reduce) reduce(r, a);
        if (is_send(a.kind)) send_to_stage(r, a);
        return true;
      case Step::Kind::weights:
        for (int m = 0; m < schedule_.schedule.micro_batches; ++m) {
          compute(r, shown({a.kind, a.stage, m}, 0), costs.weights);
        }
        return true;
      case Step::Kind::nodes:
        if (!has_input(r, a)) return false;
        if (s.exchange == Step::no_exchange) {
          compute(r, shown(a, 0), seconds_at_end(costs, a.kind));
        } else {
          const auto& next = costs.exchanges[static_cast<size_t>(s.exchange)];
          compute(r, shown(a, next.block), next.before);
        }
        break;
      case Step::Kind::exchange:
        if (!exchanged(r, s, costs.exchanges[static_cast<size_t>(s.exchange)])) return false;
        break;
    }
    r.began = &a;
    return true;
  }

  // Behind the last exchange.
  static double seconds_at_end(const StageCosts& costs, ActionKind kind) {
    if (kind == ActionKind::forward) return costs.after_forward;
    return (kind == ActionKind::weight_backward ? 0 : costs.after_backward) +
           (kind == ActionKind::input_backward ? 0 : costs.weights);
  }

  // Whether a computation that begins has what the stage before or behind it gives.
  bool has_input(Rank& r, const Action& a) {
    if ((r.began && *r.began == a) || a.kind == ActionKind::weight_backward) return true;
    const bool up = a.kind == ActionKind::forward;
    const int from = up ? a.stage - 1 : a.stage + 1;
    if (from < 0 || from == schedule_.schedule.stages()) return true;
    return waited(r, message_at(r.number, a.micro_batch, up));
  }

  static bool waited(Rank& r, double arrival) {
    r.clock = std::max(r.clock, arrival);
    return arrival >= 0;
  }

  // As it is drawn.
  Action shown(const Action& a, int block) const {
    return schedule_.woven ? Action{a.kind, block, a.micro_batch} : a;
  }

  void compute(Rank& r, const Action& a, double seconds) {
    if (seconds == 0) return;
    const double start = std::exchange(r.clock, r.clock + seconds);
    times_.busy += seconds;
    std::vector<TimedAction>& all = drawn(r.number);
    if (r.drawn < all.size() && all[r.drawn].action == a && all[r.drawn].end == start) {
      all[r.drawn].end = r.clock;
      return;
    }
    r.drawn = all.size();
    all.push_back({a, start, r.clock});
  }

  bool exchanged(Rank& r, const Step& s, const StageCosts::Exchange& e) {
    const int m = s.action.micro_batch, shards = schedule_.shards;
    if (!has_input(r, s.action)) return false;
    if (shard_before(e.order, s.direction, r.shard, shards) >= 0 &&
        !waited(r, state_at(r.number, s.exchange, m, s.direction))) {
      return false;
    }
    compute(r, shown(s.action, e.block), e.seconds);
    const int to = shard_after(e.order, s.direction, r.shard, shards);
    if (to < 0) return true;
    const double seconds = c_.beside[static_cast<size_t>(std::min(r.shard, to))].seconds(e.bytes);
    const ActionKind kind =
        e.order.backward ? ActionKind::send_gradient : ActionKind::send_activation;
    state_at(r.number - r.shard + to, s.exchange, m, s.direction) =
        send(r, to > r.shard ? to_next_shard : to_shard_before, {kind, e.block, m, to}, seconds, 0,
             schedule_.woven);
    return true;
  }

  void send_to_stage(Rank& r, const Action& a) {
    const bool up = goes_up(a.kind);
    const int to = other_stage(a);
    const auto lower = static_cast<size_t>(std::min(to, a.stage));
    const LinkModel& link = (up ? c_.up : c_.down)[lower];
    message_at(to * schedule_.shards + r.shard, a.micro_batch, up) =
        send(r, up ? to_upper : to_lower, a, link.busy(c_.output_bytes[lower]), link.latency, true);
  }

  // When a message is there, that keeps its link for `seconds`.
  double send(Rank& r, Link link, const Action& a, double seconds, double latency, bool is_drawn) {
    const double start = std::max(r.clock, r.free[link]), end = start + seconds;
    r.free[link] = end;
    times_.messages += seconds;
    times_.end = std::max(times_.end, end + latency);
    if (!is_drawn) return end + latency;
    drawn(r.number).push_back({a, start, end});
    // At the other end, by the stage that a pipeline would receive it in.
    const bool up = goes_up(a.kind);
    drawn(r.number % stride_ + a.peer * stride_)
        .push_back({{up ? ActionKind::recv_activation : ActionKind::recv_gradient,
                     up ? a.stage + 1 : a.stage - 1, a.micro_batch, r.number / stride_},
                    start,
                    end + latency});
    return end + latency;
  }

  void reduce(Rank& r, const Action& a) {
    const double end = r.clock + c_.reduce[static_cast<size_t>(a.stage)];
    times_.end = std::max(times_.end, end);
    drawn(r.number).push_back({a, r.clock, end});
  }

  const StepCosts& c_;
  const ShardedSchedule schedule_;
  const int stride_;  // from a rank to its peer's next
  std::vector<Rank> ranks_;
  size_t exchanges_ = 0, micro_batches_;
  std::vector<double> states_, messages_;
  StepTimes times_;
};

}  // namespace

StepTimes simulate(const StepCosts& c) {
  const size_t stages = c.schedule.schedule.actions.size();
  RONDO_CHECK(c.stages.size() == stages && c.reduce.size() == stages &&
                  std::min({c.output_bytes.size(), c.up.size(), c.down.size()}) + 1 >= stages &&
                  c.beside.size() + 1 >= static_cast<size_t>(c.schedule.shards),
              "costs of ", c.stages.size(), " stages and ", c.beside.size(),
              " links between shards for a schedule of ", stages, " x ", c.schedule.shards);
  return Simulation(c).run();
}

}  // namespace rondo::plan
