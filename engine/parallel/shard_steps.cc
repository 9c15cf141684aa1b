#include "engine/parallel/shard_steps.h"

#include "kernels/base/error.h"

namespace rondo {
namespace {

using Kind = ShardStep::Kind;

bool computes(ActionKind k) {
  return k == ActionKind::forward || k == ActionKind::backward || k == ActionKind::input_backward ||
         k == ActionKind::weight_backward;
}

class Expansion {
 public:
  Expansion(std::span<const StageExchanges> exchanges, int shard, int shards)
      : exchanges_(exchanges), shard_(shard), shards_(shards) {}

  std::vector<ShardStep> of(const std::vector<Action>& actions) {
    std::vector<Action> computations;
    for (const Action& a : actions) {
      if (computes(a.kind)) computations.push_back(a);
    }
    if (!computations.empty()) expect(computations.front());
    size_t next = 0;
    for (const Action& a : actions) {
      if (!computes(a.kind)) {
        steps_.push_back({Kind::action, a});
        continue;
      }
      if (++next < computations.size()) expect(computations[next]);
      compute(a);
    }
    return std::move(steps_);
  }

 private:
  template <class F>
  void for_exchanges(const Action& a, F f) const {
    if (a.kind == ActionKind::weight_backward) return;
    const StageExchanges& row = exchanges_[static_cast<size_t>(a.stage)];
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].backward != (a.kind == ActionKind::forward)) f(row[i], static_cast<int>(i));
    }
  }
  template <class F>
  void for_directions(const WaveExchange& e, F f) const {
    const int early = early_direction(e, shard_, shards_);
    f(early);
    if (e.directions == 2) f(1 - early);
  }

  void expect(const Action& a) {
    for_exchanges(a, [&](const WaveExchange& e, int i) {
      if (e.pooled) return;
      for_directions(e, [&](int direction) {
        if (shard_before(e, direction, shard_, shards_) < 0) return;
        steps_.push_back({Kind::expect, a, i, direction});
      });
    });
  }

  void compute(const Action& a) {
    for_exchanges(a, [&](const WaveExchange& e, int i) {
      steps_.push_back({Kind::nodes, a, i});
      for_directions(e, [&](int direction) {
        steps_.push_back({Kind::exchange, a, i, direction});
      });
    });
    steps_.push_back({Kind::nodes, a});
  }

  const std::span<const StageExchanges> exchanges_;
  const int shard_, shards_;
  std::vector<ShardStep> steps_;
};

}  // namespace

std::string describe(const ShardStep& s) {
  switch (s.kind) {
    case Kind::action:
      return describe(s.action);
    case Kind::nodes:
      return str("nodes ",
                 s.exchange < 0 ? "behind the exchanges" : str("before exchange ", s.exchange),
                 " of ", describe(s.action));
    case Kind::expect:
    case Kind::exchange:
      break;
  }
  return str(s.kind == Kind::expect ? "expect" : "exchange", " ", s.exchange, " direction ",
             s.direction, " of ", describe(s.action));
}

std::vector<ShardStep> shard_steps(const PipelineSchedule& schedule,
                                   std::span<const StageExchanges> exchanges, int rank, int shard,
                                   int shards) {
  RONDO_CHECK(exchanges.size() == static_cast<size_t>(schedule.stages), "exchanges of ",
              exchanges.size(), " stages for a schedule of ", schedule.stages);
  return Expansion(exchanges, shard, shards).of(schedule.actions.at(static_cast<size_t>(rank)));
}

}  // namespace rondo
