#include "engine/plan/step_tasks.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

class Builder {
 public:
  explicit Builder(const StepCosts& costs) : c_(costs), schedule_(costs.schedule) {
    schedule_.exchanges.clear();
    for (const StageCosts& s : c_.stages) schedule_.exchanges.push_back(s.order());
    tasks_.ranks = schedule_.ranks();
    tasks_.stride = schedule_.woven ? 1 : schedule_.shards;
    const int links = reductions + pipeline().stages();
    for (int r = 0; r < tasks_.ranks; ++r) tasks_.work.add_resource(Order::listed);
    for (int r = 0; r < links * tasks_.ranks; ++r) tasks_.work.add_resource(Order::priority);
  }

  StepTasks build() {
    for (int rank = 0; rank < tasks_.ranks; ++rank) add_rank(rank);
    for (const auto& [task, key] : waiting_) tasks_.work.wait_for(task, states_.at(key));
    for (const auto& [task, key] : inputs_) tasks_.work.wait_for(task, messages_.at(key));
    return std::move(tasks_);
  }

 private:
  // A rank's links; from the last on one per stage.
  enum Link : int { to_next_shard, to_shard_before, to_upper, to_lower, reductions };
  // Exchange of a stage, micro-batch, direction, and the rank that its result goes to.
  using StateKey = std::tuple<int, int, int, int, int>;
  // Upwards, the stage that reads, micro-batch, shard.
  using MessageKey = std::tuple<bool, int, int, int>;

  const PipelineSchedule& pipeline() const { return schedule_.schedule; }
  int shard_of(int rank) const { return rank % schedule_.shards; }
  int stage_of(int rank) const { return rank / schedule_.shards; }
  const StageCosts& costs_of(const Action& a) const {
    return c_.stages[static_cast<size_t>(a.stage)];
  }

  int add(Task task, std::optional<Action> action) {
    tasks_.actions.push_back(action);
    return tasks_.work.add(std::move(task));
  }
  // What `task` made, after its way over one of its rank's links.
  int message(int task, int rank, int link, double seconds, std::optional<Action> action,
              double latency = 0) {
    Task way{tasks_.ranks * (1 + link) + rank, seconds, {task}};
    way.latency = latency;
    return add(std::move(way), action);
  }

  void add_rank(int rank) {
    const Action* computing = nullptr;
    int last = -1;  // task
    const auto steps = rank_steps(schedule_, stage_of(rank), shard_of(rank));
    for (const Step& s : steps) {
      switch (s.kind) {
        case Step::Kind::expect:
        case Step::Kind::offer:  // planned models do not meet
          continue;
        case Step::Kind::action:
          if (last >= 0) add_action(s.action, rank, last);
          continue;
        case Step::Kind::weights:
          for (int m = 0; m < pipeline().micro_batches; ++m) {
            last = add_nodes({s.kind, {s.action.kind, s.action.stage, m}}, rank);
          }
          continue;
        case Step::Kind::nodes:
          last = add_nodes(s, rank);
          break;
        case Step::Kind::exchange:
          last = add_exchange(s, rank);
          break;
      }
      if (!computing || *computing != s.action) await_input(s.action, rank, last);
      computing = &s.action;
    }
  }

  // As it is drawn.
  Action shown(const Action& a, int layer) const {
    return schedule_.woven ? Action{a.kind, layer, a.micro_batch} : a;
  }

  int add_nodes(const Step& s, int rank) {
    const StageCosts& costs = costs_of(s.action);
    const Action& a = s.action;
    if (s.exchange != Step::no_exchange) {
      const auto& next = costs.exchanges[static_cast<size_t>(s.exchange)];
      return nodes(rank, next.before, shown(a, next.layer));
    }
    double seconds = costs.after_forward;
    if (a.kind == ActionKind::weight_backward) seconds = costs.weights;
    if (a.kind == ActionKind::input_backward) seconds = costs.after_backward;
    if (a.kind == ActionKind::backward) seconds = costs.after_backward + costs.weights;
    return nodes(rank, seconds, shown(a, 0));
  }

  int nodes(int rank, double seconds, const Action& a) {
    const Phase phase = a.kind == ActionKind::forward           ? Phase::forward
                        : a.kind == ActionKind::weight_backward ? Phase::weight_gradient
                                                                : Phase::backward;
    return add({rank, seconds, {}, 0, static_cast<int>(phase), -1, a.micro_batch}, a);
  }

  int add_exchange(const Step& s, int rank) {
    const StageCosts::Exchange& e = costs_of(s.action).exchanges[static_cast<size_t>(s.exchange)];
    const int shard = shard_of(rank), stage = s.action.stage, m = s.action.micro_batch;
    const Phase phase = e.order.backward ? Phase::backward : Phase::forward;
    const Action action = shown(s.action, e.layer);
    const int task = add({rank, e.seconds, {}, 0, static_cast<int>(phase), e.layer, m}, action);
    if (shard_before(e.order, s.direction, shard, schedule_.shards) >= 0) {
      waiting_.push_back({task, {stage, s.exchange, m, s.direction, rank}});
    }
    const int to = shard_after(e.order, s.direction, shard, schedule_.shards);
    if (to < 0) return task;
    std::optional<Action> send;
    if (schedule_.woven) {
      send = {e.order.backward ? ActionKind::send_gradient : ActionKind::send_activation, e.layer,
              m, to};
    }
    const LinkModel& link = c_.beside[static_cast<size_t>(std::min(shard, to))];
    states_[{stage, s.exchange, m, s.direction, rank - shard + to}] = message(
        task, rank, to > shard ? to_next_shard : to_shard_before, link.seconds(e.bytes), send);
    return task;
  }

  // A computation's first task waits for what the stage before or behind it gives.
  void await_input(const Action& a, int rank, int task) {
    const bool up = a.kind == ActionKind::forward;
    if (a.kind == ActionKind::weight_backward) return;
    const int from = up ? a.stage - 1 : a.stage + 1;
    if (from < 0 || from == pipeline().stages()) return;
    inputs_.push_back({task, {up, a.stage, a.micro_batch, shard_of(rank)}});
  }

  void add_action(const Action& a, int rank, int last) {
    if (a.kind == ActionKind::reduce) {
      message(last, rank, reductions + a.stage, c_.reduce[static_cast<size_t>(a.stage)], a);
    }
    if (!is_send(a.kind)) return;
    const bool up = goes_up(a.kind);
    const int to = other_stage(a);
    const auto lower = static_cast<size_t>(std::min(to, a.stage));
    const LinkModel& link = (up ? c_.up : c_.down)[lower];
    messages_[{up, to, a.micro_batch, shard_of(rank)}] = message(
        last, rank, up ? to_upper : to_lower, link.busy(c_.output_bytes[lower]), a, link.latency);
  }

  const StepCosts& c_;
  ShardedSchedule schedule_;
  StepTasks tasks_;
  std::map<StateKey, int> states_;
  std::map<MessageKey, int> messages_;
  std::vector<std::pair<int, StateKey>> waiting_;
  std::vector<std::pair<int, MessageKey>> inputs_;
};

// At the other end, by the stage that a pipeline would receive it in.
TimedAction received(const TimedAction& sent, int from, double latency) {
  const Action& a = sent.action;
  const bool up = goes_up(a.kind);
  return {{up ? ActionKind::recv_activation : ActionKind::recv_gradient,
           up ? a.stage + 1 : a.stage - 1, a.micro_batch, from},
          sent.start,
          sent.end + latency};
}

}  // namespace

StepTasks tasks_of(const StepCosts& costs) {
  const PipelineSchedule& s = costs.schedule.schedule;
  const size_t stages = s.actions.size();
  RONDO_CHECK(s.micro_batches >= 1 && costs.stages.size() == stages &&
                  costs.reduce.size() == stages && costs.output_bytes.size() + 1 >= stages,
              "costs of ", costs.stages.size(), " stages for a schedule of ", stages);
  RONDO_CHECK(static_cast<int>(costs.beside.size()) >= costs.schedule.shards - 1, "links for ",
              costs.beside.size(), " shards of ", costs.schedule.shards);
  RONDO_CHECK(costs.up.size() + 1 >= stages && costs.down.size() + 1 >= stages, "links of ",
              costs.up.size(), " stages for a schedule of ", stages);
  return Builder(costs).build();
}

PipelineTimeline timeline_of(const StepTasks& all, const Timeline& timeline) {
  const std::vector<Task>& tasks = all.work.tasks();
  RONDO_CHECK(all.actions.size() == tasks.size() && timeline.intervals.size() == tasks.size(),
              "a timeline of other tasks");
  PipelineTimeline drawn;
  drawn.ranks.resize(static_cast<size_t>(all.ranks));
  // By rank: which entry its last computation is.
  std::vector<size_t> last(drawn.ranks.size(), 0);
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!all.actions[i]) continue;
    const int rank = tasks[i].resource % all.ranks;
    std::vector<TimedAction>& done = drawn.ranks[static_cast<size_t>(rank)];
    const TimedAction t{*all.actions[i], timeline.intervals[i].start, timeline.intervals[i].end};
    if (tasks[i].resource < all.ranks) {
      if (tasks[i].seconds == 0) continue;
      size_t& before = last[static_cast<size_t>(rank)];
      if (before < done.size() && done[before].action == t.action && done[before].end == t.start) {
        done[before].end = t.end;
        continue;
      }
      before = done.size();
    } else if (is_send(t.action.kind)) {
      const int to = rank % all.stride + t.action.peer * all.stride;
      drawn.ranks.at(static_cast<size_t>(to))
          .push_back(received(t, rank / all.stride, tasks[i].latency));
    }
    done.push_back(t);
  }
  for (auto& done : drawn.ranks) {
    std::stable_sort(done.begin(), done.end(),
                     [](const TimedAction& a, const TimedAction& b) { return a.start < b.start; });
  }
  return drawn;
}

}  // namespace rondo::plan
