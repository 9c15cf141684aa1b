#include "comm/schedule_steps.h"

#include "kernels/base/error.h"

namespace rondo {
namespace {

using Kind = Step::Kind;

class Expansion {
 public:
  Expansion(const ShardedSchedule& s, int shard) : s_(s), shard_(shard) {}

  std::vector<Step> of(const std::vector<Action>& actions) {
    for (size_t i = 0; i < actions.size();) {
      const Action& a = actions[i];
      if (!computes(a.kind)) {
        steps_.push_back({Kind::action, a});
        ++i;
        continue;
      }
      size_t end = i + 1;
      while (s_.woven && end < actions.size() && actions[end].kind == a.kind &&
             actions[end].stage == a.stage) {
        ++end;
      }
      compute(std::span(actions).subspan(i, end - i));
      i = end;
    }
    return with_expected();
  }

 private:
  // Whose receives are posted together: a computation, or an exchange of several.
  struct Unit {
    size_t begin = 0;  // in steps_
    std::vector<Step> expected = {};
  };

  void compute(std::span<const Action> all) {
    const Action& any = all.front();
    if (s_.woven && any.kind == ActionKind::weight_backward) {
      steps_.push_back({Kind::weights, {any.kind, any.stage}});
      return;
    }
    const auto each = [&](Kind kind, int exchange, int direction = 0) {
      for (const Action& a : all) steps_.push_back({kind, a, exchange, direction});
    };
    if (!s_.woven) units_.push_back({steps_.size()});
    const StageExchanges& row = s_.of(any.stage);
    for (size_t i = 0; i < row.size(); ++i) {
      const ShardExchange& e = row[i];
      if (any.kind == ActionKind::weight_backward ||
          e.backward != (any.kind != ActionKind::forward)) {
        continue;
      }
      const auto index = static_cast<int>(i);
      if (s_.woven) units_.push_back({steps_.size()});
      each(Kind::nodes, index);
      if (e.meets) {
        each(Kind::offer, index);
        each(Kind::exchange, index);
        continue;
      }
      const int early = early_direction(e, shard_, s_.shards);
      for (int direction : {early, 1 - early}) {
        if (direction != early && e.directions == 1) continue;
        each(Kind::exchange, index, direction);
        if (shard_before(e, direction, shard_, s_.shards) < 0) continue;
        for (const Action& a : all) {
          units_.back().expected.push_back({Kind::expect, a, index, direction});
        }
      }
    }
    each(Kind::nodes, Step::no_exchange);
  }

  // What a unit waits for is expected when the one before it begins.
  std::vector<Step> with_expected() {
    std::vector<Step> all;
    const auto expect = [&](size_t unit) {
      if (unit >= units_.size()) return;
      const std::vector<Step>& expected = units_[unit].expected;
      all.insert(all.end(), expected.begin(), expected.end());
    };
    size_t next = 0;
    expect(0);
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (next < units_.size() && units_[next].begin == i) expect(++next);
      all.push_back(steps_[i]);
    }
    return all;
  }

  const ShardedSchedule& s_;
  const int shard_;
  std::vector<Step> steps_;
  std::vector<Unit> units_;
};

}  // namespace

int early_direction(const ShardExchange& exchange, int shard, int shards) {
  const bool near_left = 2 * shard < shards - 1;
  return exchange.directions == 1 || near_left != exchange.backward ? 0 : 1;
}

int shard_before(const ShardExchange& exchange, int direction, int shard, int shards) {
  const bool rightward = (direction == 0) != exchange.backward;
  const int from = rightward ? shard - 1 : shard + 1;
  return from < shards ? from : -1;
}

int shard_after(const ShardExchange& exchange, int direction, int shard, int shards) {
  const bool rightward = (direction == 0) != exchange.backward;
  const int to = rightward ? shard + 1 : shard - 1;
  return to < shards ? to : -1;
}

const StageExchanges& ShardedSchedule::of(int stage) const {
  static const StageExchanges none;
  return exchanges.empty() ? none : exchanges.at(static_cast<size_t>(stage));
}

ShardedSchedule woven_schedule(const StageExchanges& exchanges, int micro_batches, int shards) {
  ShardedSchedule s{{micro_batches, {{}}}, {exchanges}, shards, true};
  for (ActionKind kind :
       {ActionKind::forward, ActionKind::input_backward, ActionKind::weight_backward}) {
    for (int m = 0; m < micro_batches; ++m) s.schedule.actions[0].push_back({kind, 0, m});
  }
  s.schedule.actions[0].push_back({ActionKind::reduce, 0});
  return s;
}

std::string describe(const Step& s) {
  switch (s.kind) {
    case Kind::action:
    case Kind::weights:
      return describe(s.action);
    case Kind::nodes:
      return str("nodes ",
                 s.exchange < 0 ? "behind the exchanges" : str("before exchange ", s.exchange),
                 " of ", describe(s.action));
    case Kind::offer:
      return str("offer ", s.exchange, " of ", describe(s.action));
    case Kind::expect:
    case Kind::exchange:
      break;
  }
  return str(s.kind == Kind::expect ? "expect" : "exchange", " ", s.exchange, " direction ",
             s.direction, " of ", describe(s.action));
}

std::vector<Step> rank_steps(const ShardedSchedule& s, int stage, int shard) {
  RONDO_CHECK(s.exchanges.empty() || s.exchanges.size() == s.schedule.actions.size(),
              "exchanges of ", s.exchanges.size(), " stages for a schedule of ",
              s.schedule.stages());
  return Expansion(s, shard).of(s.schedule.actions.at(static_cast<size_t>(stage)));
}

std::vector<std::vector<Step>> all_steps(const ShardedSchedule& s) {
  std::vector<std::vector<Step>> lists;
  for (int r = 0; r < s.ranks(); ++r) lists.push_back(rank_steps(s, r / s.shards, r % s.shards));
  return lists;
}

}  // namespace rondo
