#include "engine/plan/wave.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "engine/parallel/shard_steps.h"
#include "engine/plan/wave_row.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

// What both orders share: ranks that compute and hand states to the shards beside them.
class Builder {
 protected:
  explicit Builder(const WaveCosts& costs, int pipeline_ranks, int links) : c_(costs) {
    wave_.ranks = pipeline_ranks * c_.shards;
    for (int r = 0; r < wave_.ranks; ++r) wave_.work.add_resource(Order::listed);
    for (int r = 0; r < links * wave_.ranks; ++r) wave_.work.add_resource(Order::priority);
  }

  // A part of `action`.
  int compute(int rank, double seconds, Phase phase, int layer, const Action& action) {
    return add({rank, seconds, {}, 0, static_cast<int>(phase), layer, action.micro_batch}, action);
  }
  // What `task` made, after its way over one of its rank's links.
  int message(int task, int rank, int link, double seconds, std::optional<Action> action) {
    return add({wave_.ranks * (1 + link) + rank, seconds, {task}}, action);
  }

  // Exchange of a stage, micro-batch, direction, and the rank that its result goes to.
  using Key = std::tuple<int, int, int, int, int>;

  int exchange(const WaveRow::Exchange& e, const Action& action, int index, int direction,
               int rank) {
    const int shard = rank % c_.shards, stage = action.stage, micro_batch = action.micro_batch;
    const int task = compute(rank, e.seconds, e.order.backward ? Phase::backward : Phase::forward,
                             e.layer, action);
    if (shard_before(e.order, direction, shard, c_.shards) >= 0) {
      waiting_.push_back({task, {stage, index, micro_batch, direction, rank}});
    }
    const int to = shard_after(e.order, direction, shard, c_.shards);
    if (to < 0) return task;
    std::optional<Action> send;
    if (c_.schedule.stages == 0) {
      send = {e.order.backward ? ActionKind::send_gradient : ActionKind::send_activation, stage,
              micro_batch, to};
    }
    const LinkModel& link = c_.beside[static_cast<size_t>(std::min(shard, to))];
    messages_[{stage, index, micro_batch, direction, rank - shard + to}] =
        message(task, rank, to > shard ? 0 : 1, link.seconds(e.bytes), send);
    return task;
  }

  Wave finish() {
    for (const auto& [task, key] : waiting_) wave_.work.wait_for(task, messages_.at(key));
    return std::move(wave_);
  }

  const WaveCosts& c_;
  Wave wave_;

 private:
  int add(Task task, std::optional<Action> action) {
    wave_.actions.push_back(action);
    return wave_.work.add(std::move(task));
  }

  std::map<Key, int> messages_;
  std::vector<std::pair<int, Key>> waiting_;
};

// All layers on every shard.
class ShardWave : Builder {
 public:
  explicit ShardWave(const WaveCosts& costs)
      : Builder(costs, 1, 2), row_(wave_row(costs, 0, static_cast<int>(costs.layers.size()))) {}

  Wave build() {
    for (int k = 0; k < c_.shards; ++k) add_shard(k);
    return finish();
  }

 private:
  void add_shard(int shard) {
    const auto count = static_cast<int>(row_.exchanges.size());
    for (const WaveStep& s : wave_steps(row_.order(), c_.micro_batches, shard, c_.shards)) {
      if (s.kind == WaveStep::Kind::weight_gradients) {
        compute(shard, row_.weights, Phase::weight_gradient, -1,
                {ActionKind::weight_backward, 0, s.micro_batch});
        continue;
      }
      const bool last = s.exchange == count;
      const WaveRow::Exchange* e =
          last ? nullptr : &row_.exchanges[static_cast<size_t>(s.exchange)];
      const bool backward = last || e->order.backward;
      const Action action{backward ? ActionKind::input_backward : ActionKind::forward,
                          last ? 0 : e->layer, s.micro_batch};
      if (s.kind == WaveStep::Kind::exchange) {
        exchange(*e, action, s.exchange, s.direction, shard);
      } else {
        compute(shard, nodes_before(s.exchange), backward ? Phase::backward : Phase::forward, -1,
                action);
      }
    }
  }

  // The forward pass goes on into the backward pass.
  double nodes_before(int exchange) const {
    const auto at = static_cast<size_t>(exchange), count = row_.exchanges.size();
    const bool backward = at == count || row_.exchanges[at].order.backward;
    const bool first = backward && (at == 0 || !row_.exchanges[at - 1].order.backward);
    return (at == count ? row_.after_backward : row_.exchanges[at].before) +
           (first ? row_.after_forward : 0);
  }

  const WaveRow row_;
};

// Stages of a schedule, each on as many ranks as there are shards.
class StagedWave : Builder {
 public:
  explicit StagedWave(const WaveCosts& costs) : Builder(costs, costs.schedule.ranks(), 5) {
    wave_.stride = c_.shards;
    for (int s = 0; s < schedule().stages; ++s) {
      const auto at = static_cast<size_t>(s);
      rows_.push_back(wave_row(c_, c_.first_layer[at], c_.first_layer[at + 1]));
      exchanges_.push_back(rows_.back().order());
    }
  }

  Wave build() {
    for (int rank = 0; rank < schedule().ranks(); ++rank) {
      for (int shard = 0; shard < c_.shards; ++shard) add_rank(rank, shard);
    }
    for (const auto& [task, key] : inputs_) wave_.work.wait_for(task, arriving_.at(key));
    return finish();
  }

 private:
  enum Link : int { to_upper = 2, to_lower = 3, reduction = 4 };  // after those to shards
  // Upwards, the stage that reads, micro-batch, shard.
  using StageKey = std::tuple<bool, int, int, int>;

  const PipelineSchedule& schedule() const { return c_.schedule; }

  void add_rank(int pipeline_rank, int shard) {
    const int rank = pipeline_rank * c_.shards + shard;
    const auto steps = shard_steps(schedule(), exchanges_, pipeline_rank, shard, c_.shards);
    const Action* computing = nullptr;
    int last = -1;  // task
    for (const ShardStep& s : steps) {
      if (s.kind == ShardStep::Kind::expect) continue;
      if (s.kind == ShardStep::Kind::action) {
        if (last >= 0) add_action(s.action, pipeline_rank, shard, last);
        continue;
      }
      last = s.kind == ShardStep::Kind::nodes ? add_nodes(s, rank) : add_exchange(s, rank);
      if (!computing || *computing != s.action) await_input(s.action, pipeline_rank, shard, last);
      computing = &s.action;
    }
  }

  int add_nodes(const ShardStep& s, int rank) {
    const WaveRow& row = rows_[static_cast<size_t>(s.action.stage)];
    const bool behind = s.exchange < 0;
    const double before = behind ? 0 : row.exchanges[static_cast<size_t>(s.exchange)].before;
    const auto add = [&](Phase phase, double seconds) {
      return compute(rank, seconds, phase, -1, s.action);
    };
    switch (s.action.kind) {
      case ActionKind::forward:
        return add(Phase::forward, behind ? row.after_forward : before);
      case ActionKind::weight_backward:
        return add(Phase::weight_gradient, row.weights);
      case ActionKind::input_backward:
        return add(Phase::backward, behind ? row.after_backward : before);
      default:
        return add(Phase::backward, behind ? row.after_backward + row.weights : before);
    }
  }

  int add_exchange(const ShardStep& s, int rank) {
    const int stage = s.action.stage;
    const auto& e = rows_[static_cast<size_t>(stage)].exchanges[static_cast<size_t>(s.exchange)];
    return exchange(e, s.action, s.exchange, s.direction, rank);
  }

  // A computation's first task waits for what the stage before or behind it gives.
  void await_input(const Action& a, int pipeline_rank, int shard, int task) {
    const bool up = a.kind == ActionKind::forward;
    if (a.kind == ActionKind::weight_backward) return;
    const int from = up ? a.stage - 1 : a.stage + 1;
    if (from < 0 || from == schedule().stages) return;
    // On the same rank it has been computed before.
    if (schedule().rank_of_stage[static_cast<size_t>(from)] == pipeline_rank) return;
    inputs_.push_back({task, {up, a.stage, a.micro_batch, shard}});
  }

  void add_action(const Action& a, int pipeline_rank, int shard, int last) {
    const int rank = pipeline_rank * c_.shards + shard;
    const auto at = static_cast<size_t>(pipeline_rank);
    if (a.kind == ActionKind::reduce) {
      message(last, rank, reduction, c_.reduce[static_cast<size_t>(a.stage)], a);
    } else if (a.kind == ActionKind::send_activation || a.kind == ActionKind::send_gradient) {
      const bool up = a.kind == ActionKind::send_activation;
      const int to = up ? a.stage + 1 : a.stage - 1;
      const double bytes = c_.output_bytes[static_cast<size_t>(std::min(to, a.stage))];
      arriving_[{up, to, a.micro_batch, shard}] = message(
          last, rank, up ? to_upper : to_lower, (up ? c_.up : c_.down)[at].seconds(bytes), a);
    }
  }

  std::vector<WaveRow> rows_;
  std::vector<StageExchanges> exchanges_;
  std::map<StageKey, int> arriving_;
  std::vector<std::pair<int, StageKey>> inputs_;
};

}  // namespace

Wave build_wave(const WaveCosts& costs) {
  RONDO_CHECK(costs.shards >= 1 && costs.micro_batches >= 1 && !costs.layers.empty(), costs.shards,
              " shards of ", costs.micro_batches, " micro-batches");
  RONDO_CHECK(static_cast<int>(costs.beside.size()) >= costs.shards - 1, "links for ",
              costs.beside.size(), " shards of ", costs.shards);
  if (costs.schedule.stages == 0) return ShardWave(costs).build();
  const auto stages = static_cast<size_t>(costs.schedule.stages);
  RONDO_CHECK(costs.first_layer.size() == stages + 1 && costs.reduce.size() == stages &&
                  costs.schedule.micro_batches == costs.micro_batches,
              "costs of another schedule");
  return StagedWave(costs).build();
}

}  // namespace rondo::plan
