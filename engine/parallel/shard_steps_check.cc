#include <map>
#include <set>
#include <tuple>

#include "engine/parallel/shard_steps.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using Kind = ShardStep::Kind;

bool is_recv(ActionKind k) {
  return k == ActionKind::recv_activation || k == ActionKind::recv_gradient;
}
bool is_send(ActionKind k) {
  return k == ActionKind::send_activation || k == ActionKind::send_gradient;
}

// The recv that takes what `send`, an action of `rank`, gives away.
Action counterpart(const Action& send, int rank) {
  if (send.kind == ActionKind::send_activation) {
    return {ActionKind::recv_activation, send.stage + 1, send.micro_batch, rank};
  }
  return {ActionKind::recv_gradient, send.stage - 1, send.micro_batch, rank};
}

class Checker {
 public:
  Checker(const PipelineSchedule& schedule, std::span<const StageExchanges> exchanges, int shards,
          const std::vector<std::vector<ShardStep>>& lists)
      : schedule_(schedule), exchanges_(exchanges), shards_(shards), lists_(lists) {}

  std::vector<std::string> run() {
    if (lists_.size() != static_cast<size_t>(schedule_.ranks() * shards_)) {
      problem(lists_.size(), " lists for ", schedule_.ranks(), " x ", shards_, " ranks");
    } else {
      for (int shard = 0; shard < shards_; ++shard) check_actions(shard);
    }
    // A list with wrong actions would only repeat its faults when its parts are looked at.
    for (int r = 0; r < ranks() && problems_.empty(); ++r) {
      check_rows(r);
      check_expected(r);
    }
    if (problems_.empty()) execute();
    return std::move(problems_);
  }

 private:
  // A state on its way to a rank: of which exchange.
  using Key = std::tuple<int, int, int, int, bool>;

  int ranks() const { return static_cast<int>(lists_.size()); }
  const std::vector<ShardStep>& list(int r) const { return lists_[static_cast<size_t>(r)]; }
  int shard_of(int r) const { return r % shards_; }
  int stage_rank_of(int r) const { return r / shards_; }
  template <class... Args>
  void problem(Args&&... args) {
    problems_.push_back(str(std::forward<Args>(args)...));
  }
  std::string name(int r) const {
    return str("shard ", shard_of(r), " of rank ", stage_rank_of(r), ": ");
  }
  const WaveExchange* exchange_of(const ShardStep& s) const {
    const auto stage = static_cast<size_t>(s.action.stage), i = static_cast<size_t>(s.exchange);
    return stage < exchanges_.size() && i < exchanges_[stage].size() ? &exchanges_[stage][i]
                                                                     : nullptr;
  }
  static Key key_of(const ShardStep& s) {
    return {s.action.stage, s.action.micro_batch, s.exchange, s.direction,
            s.action.kind == ActionKind::forward};
  }

  // What a shard's ranks do without their exchanges is a schedule.
  void check_actions(int shard) {
    PipelineSchedule alone = schedule_;
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      auto& actions = alone.actions[static_cast<size_t>(rank)];
      actions.clear();
      const Action* computing = nullptr;
      for (const ShardStep& s : list(rank * shards_ + shard)) {
        if (s.kind == Kind::expect || (computing && *computing == s.action)) continue;
        actions.push_back(s.action);
        computing = s.kind == Kind::action ? nullptr : &s.action;
      }
    }
    for (const std::string& text : check_schedule(alone).problems) {
      problem("shard ", shard, ": ", text);
    }
  }

  // The parts of each computation: nodes, the exchange behind them, and so on.
  void check_rows(int r) {
    std::vector<ShardStep> parts;
    for (const ShardStep& s : list(r)) {
      if (s.kind == Kind::expect) continue;
      if (!parts.empty() && parts.front().action != s.action) {
        check_row(r, parts);
        parts.clear();
      }
      if (s.kind != Kind::action) parts.push_back(s);
    }
    if (!parts.empty()) check_row(r, parts);
  }

  void check_row(int r, const std::vector<ShardStep>& parts) {
    const Action& a = parts.front().action;
    const StageExchanges& row = exchanges_[static_cast<size_t>(a.stage)];
    size_t at = 0;
    const auto take = [&](Kind kind, int exchange, std::set<int> directions) {
      while (!directions.empty()) {
        if (at == parts.size() || parts[at].kind != kind || parts[at].exchange != exchange ||
            directions.erase(parts[at].direction) == 0) {
          const ShardStep wanted{kind, a, exchange, *directions.begin()};
          problem(name(r), "lacks ", describe(wanted), " where it has ",
                  at == parts.size() ? "nothing" : describe(parts[at]));
          return false;
        }
        ++at;
      }
      return true;
    };
    const bool forward = a.kind == ActionKind::forward;
    for (size_t i = 0; i < row.size() && a.kind != ActionKind::weight_backward; ++i) {
      if (row[i].backward == forward) continue;
      const auto index = static_cast<int>(i);
      if (!take(Kind::nodes, index, {0})) return;
      const bool both = row[i].directions == 2 && !row[i].pooled;
      if (!take(Kind::exchange, index, both ? std::set{0, 1} : std::set{0})) return;
    }
    if (!take(Kind::nodes, ShardStep::no_exchange, {0})) return;
    if (at < parts.size()) problem(name(r), describe(parts[at]), " comes again, or too late");
  }

  void check_expected(int r) {
    std::set<Key> expected;
    for (const ShardStep& s : list(r)) {
      const WaveExchange* e = exchange_of(s);
      if (s.kind == Kind::expect) {
        if (e == nullptr || e->pooled || shard_before(*e, s.direction, shard_of(r), shards_) < 0) {
          problem(name(r), describe(s), ": nobody sends it");
        } else if (!expected.insert(key_of(s)).second) {
          problem(name(r), describe(s), " comes again");
        }
      } else if (s.kind == Kind::exchange && !e->pooled &&
                 shard_before(*e, s.direction, shard_of(r), shards_) >= 0 &&
                 expected.erase(key_of(s)) == 0) {
        problem(name(r), describe(s), " has not been expected");
      }
    }
    // What arrives twice would be expected twice: what is left here is never computed.
    if (!expected.empty()) problem(name(r), expected.size(), " states are expected for nothing");
  }

  // Runs all ranks as far as they get. The result does not depend on the order in which they are
  // tried: every message has one sender and one receiver, and a rank never chooses.
  void execute() {
    const auto n = static_cast<size_t>(ranks());
    next_.assign(n, 0);
    computed_.assign(n, false);
    posted_.assign(n, {});
    arrived_.assign(n, {});
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < ranks(); ++r) {
        while (step(r)) moved = true;
      }
    }
    for (int r = 0; r < ranks(); ++r) {
      if (const ShardStep* s = current(r)) problem(name(r), "deadlock: waits in ", describe(*s));
    }
  }

  const ShardStep* current(int r) const {
    const size_t at = next_[static_cast<size_t>(r)];
    return at < list(r).size() ? &list(r)[at] : nullptr;
  }
  bool advance(int r) {
    ++next_[static_cast<size_t>(r)];
    computed_[static_cast<size_t>(r)] = false;
    return true;
  }

  bool step(int r) {
    const ShardStep* s = current(r);
    if (s == nullptr) return false;
    switch (s->kind) {
      case Kind::nodes:
        return advance(r);
      case Kind::expect:
        posted_[static_cast<size_t>(r)].insert(key_of(*s));
        return advance(r);
      case Kind::exchange:
        return exchange_of(*s)->pooled ? pool(r, *s) : exchange(r, *s);
      case Kind::action:
        break;
    }
    const Action& a = s->action;
    if (is_recv(a.kind)) return false;  // completed by its send
    if (is_send(a.kind)) {
      const int to = a.peer * shards_ + shard_of(r);
      const ShardStep* waiting = current(to);
      const ShardStep wanted{Kind::action, counterpart(a, stage_rank_of(r))};
      if (waiting == nullptr || *waiting != wanted) return false;
      advance(to);
    }
    return advance(r);
  }

  bool exchange(int r, const ShardStep& s) {
    const auto self = static_cast<size_t>(r);
    const WaveExchange& e = *exchange_of(s);
    const Key key = key_of(s);
    if (!computed_[self]) {
      const bool waits = shard_before(e, s.direction, shard_of(r), shards_) >= 0;
      if (waits && !arrived_[self].contains(key)) return false;
      computed_[self] = true;
    }
    const int after = shard_after(e, s.direction, shard_of(r), shards_);
    if (after >= 0) {
      const auto to = static_cast<size_t>(r - shard_of(r) + after);
      if (!posted_[to].contains(key)) return false;
      arrived_[to].insert(key);
    }
    return advance(r);
  }

  // Sums of all shards wait for all of them; shares of gradients for nobody. Halos wait for the
  // neighbours: for all shards, to be on the safe side.
  bool pool(int r, const ShardStep& s) {
    if (exchange_of(s)->backward && !exchange_of(s)->halo) return advance(r);
    std::set<int>& there = pooling_[key_of(s)];
    there.insert(shard_of(r));
    return there.size() == static_cast<size_t>(shards_) && advance(r);
  }

  const PipelineSchedule& schedule_;
  const std::span<const StageExchanges> exchanges_;
  const int shards_;
  const std::vector<std::vector<ShardStep>>& lists_;
  std::vector<std::string> problems_;
  // By rank: the step it is at, whether it only has to send what that made, what it expects, and
  // what has come.
  std::vector<size_t> next_;
  std::vector<bool> computed_;
  std::vector<std::set<Key>> posted_, arrived_;
  std::map<Key, std::set<int>> pooling_;  // the shards that are there
};

}  // namespace

std::vector<std::string> check_shard_steps(const PipelineSchedule& schedule,
                                           std::span<const StageExchanges> exchanges, int shards,
                                           const std::vector<std::vector<ShardStep>>& lists) {
  return Checker(schedule, exchanges, shards, lists).run();
}

}  // namespace rondo
