#include "tests/comm/schedule_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "kernels/base/error.h"

namespace rondo {
namespace {

using Kind = ActionKind;
constexpr size_t kinds = static_cast<size_t>(Kind::reduce) + 1;

class Checker {
 public:
  Checker(const ShardedSchedule& s, std::span<const std::vector<Step>> lists)
      : s_(s), schedule_(s.schedule), lists_(lists) {}

  ScheduleReport run() {
    if (lists_.size() != static_cast<size_t>(s_.ranks())) {
      problem(lists_.size(), " lists for ", schedule_.stages(), " x ", s_.shards, " ranks");
      return std::move(report_);
    }
    pairs_ = schedule_.actions.size() * (static_cast<size_t>(schedule_.micro_batches) + 1);
    for (int r = 0; r < ranks(); ++r) {
      for (const Step& s : list(r)) check_place(r, s);
    }
    for (int shard = 0; shard < s_.shards && sound(); ++shard) check_counts(shard);
    for (int r = 0; r < ranks() && sound(); ++r) {
      check_rows(r);
      if (sound()) check_expected(r);
    }
    // A list with unknown or missing steps would only repeat its faults when executed.
    if (sound()) execute();
    if (!sound()) report_.peak_activations.clear();
    return std::move(report_);
  }

 private:
  // What a rank has, by micro-batch; and how many micro-batches it stores.
  struct Holdings {
    std::vector<char> inputs, outputs, input_gradients, output_gradients;
    int stored = 0;
  };
  // A state on its way to a rank: of which exchange.
  using Key = std::tuple<int, int, int, int, bool>;

  bool sound() const { return report_.problems.empty(); }
  template <class... Args>
  void problem(Args&&... args) {
    report_.problems.push_back(str(std::forward<Args>(args)...));
  }
  int ranks() const { return static_cast<int>(lists_.size()); }
  const std::vector<Step>& list(int r) const { return lists_[static_cast<size_t>(r)]; }
  int shard_of(int r) const { return r % s_.shards; }
  int stage_of(int r) const { return r / s_.shards; }
  std::string name(int r) const {
    const std::string shard = s_.shards > 1 ? str("shard ", shard_of(r), " of ") : "";
    return str(shard, "rank ", stage_of(r), ": ");
  }
  bool is_stage(int s) const { return s >= 0 && s < schedule_.stages(); }
  const ShardExchange* exchange_of(const Step& s) const {
    const StageExchanges& row = s_.of(s.action.stage);
    const auto i = static_cast<size_t>(s.exchange);
    return i < row.size() ? &row[i] : nullptr;
  }
  // Whether somebody sends what the exchange begins with.
  bool waits(const ShardExchange& e, int direction, int r) const {
    return !e.meets && shard_before(e, direction, shard_of(r), s_.shards) >= 0;
  }
  static Key key_of(const Step& s) {
    return {s.action.stage, s.action.micro_batch, s.exchange, s.direction,
            s.action.kind == Kind::forward};
  }
  // The last part of a computation.
  static bool completes(const Step& s) {
    return s.kind == Step::Kind::nodes && s.exchange == Step::no_exchange;
  }

  void check_place(int r, const Step& s) {
    const Action& a = s.action;
    const auto fault = [&](const std::string& what) { problem(name(r), describe(a), ": ", what); };
    if (a.stage != stage_of(r)) {
      return fault("not a stage of this rank");
    }
    if ((s.kind == Step::Kind::action) == computes(a.kind)) return fault("not such a step");
    if (a.kind == Kind::reduce || s.kind == Step::Kind::weights) {
      if (a.micro_batch != -1) fault("it has no micro-batch");
    } else if (a.micro_batch < 0 || a.micro_batch >= schedule_.micro_batches) {
      return fault("no such micro-batch");
    }
    if (!is_send(a.kind) && !is_recv(a.kind)) return;
    if (!is_stage(other_stage(a))) return fault("there is no stage at the other end");
    const int peer = other_stage(a);
    if (peer != a.peer) fault(str("the other stage is on rank ", peer));
  }

  // The place of a stage with a micro-batch, or with -1.
  size_t at(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * (static_cast<size_t>(schedule_.micro_batches) + 1) +
           static_cast<size_t>(micro_batch + 1);
  }

  // What a shard's ranks do without their exchanges.
  void check_counts(int shard) {
    std::vector<int> counts(kinds * pairs_);
    const auto count = [&](Kind kind, int stage, int micro_batch) -> int& {
      return counts[at(stage, micro_batch) * kinds + static_cast<size_t>(kind)];
    };
    for (int r = shard; r < ranks(); r += s_.shards) {
      for (const Step& s : list(r)) {
        const Action& a = s.action;
        if (s.kind == Step::Kind::action || completes(s)) ++count(a.kind, a.stage, a.micro_batch);
        for (int m = 0; m < schedule_.micro_batches && s.kind == Step::Kind::weights; ++m) {
          ++count(Kind::weight_backward, a.stage, m);
        }
      }
    }
    const std::string whose = s_.shards > 1 ? str("shard ", shard, ": ") : "";
    const auto expect = [&](int times, Kind kind, int stage, int micro_batch) {
      const int found = count(kind, stage, micro_batch);
      if (found == times) return;
      problem(whose, name_of(kind), " stage ", stage, " micro-batch ", micro_batch, ": ", found,
              " times, expected ", times);
    };
    for (int s = 0; s < schedule_.stages(); ++s) {
      const bool before = s > 0, after = s + 1 < schedule_.stages();
      for (int m = 0; m < schedule_.micro_batches; ++m) {
        const bool split = count(Kind::input_backward, s, m) + count(Kind::weight_backward, s, m);
        expect(1, Kind::forward, s, m);
        expect(split ? 0 : 1, Kind::backward, s, m);
        expect(split ? 1 : 0, Kind::input_backward, s, m);
        expect(split ? 1 : 0, Kind::weight_backward, s, m);
        expect(before ? 1 : 0, Kind::recv_activation, s, m);
        expect(before ? 1 : 0, Kind::send_gradient, s, m);
        expect(after ? 1 : 0, Kind::send_activation, s, m);
        expect(after ? 1 : 0, Kind::recv_gradient, s, m);
      }
      if (count(Kind::reduce, s, -1) > 1) problem(whose, "stage ", s, " is reduced more than once");
    }
  }

  // The parts of each computation: nodes, the exchange behind them, and so on.
  void check_rows(int r) {
    std::vector<std::vector<Step>> rows;
    std::map<std::tuple<Kind, int, int>, size_t> row_of;
    for (const Step& s : list(r)) {
      if (s.kind == Step::Kind::expect) continue;
      if (s.kind == Step::Kind::action || s.kind == Step::Kind::weights) {
        if (!s_.woven) row_of.clear();
        continue;
      }
      const Action& a = s.action;
      const auto key = std::tuple(a.kind, a.stage, a.micro_batch);
      if (!row_of.contains(key)) {
        if (!s_.woven) row_of.clear();  // another one is over
        row_of[key] = rows.size();
        rows.emplace_back();
      }
      rows[row_of[key]].push_back(s);
    }
    for (const std::vector<Step>& parts : rows) check_row(r, parts);
  }

  void check_row(int r, const std::vector<Step>& parts) {
    const Action& a = parts.front().action;
    const StageExchanges& row = s_.of(a.stage);
    size_t next = 0;
    const auto take = [&](Step::Kind kind, int exchange, std::set<int> directions = {0}) {
      while (!directions.empty()) {
        if (next == parts.size() || parts[next].kind != kind || parts[next].exchange != exchange ||
            directions.erase(parts[next].direction) == 0) {
          const Step wanted{kind, a, exchange, *directions.begin()};
          problem(name(r), "lacks ", describe(wanted), " where it has ",
                  next == parts.size() ? "nothing" : describe(parts[next]));
          return false;
        }
        ++next;
      }
      return true;
    };
    const bool forward = a.kind == Kind::forward;
    for (size_t i = 0; i < row.size() && a.kind != Kind::weight_backward; ++i) {
      if (row[i].backward == forward) continue;
      const auto index = static_cast<int>(i);
      if (!take(Step::Kind::nodes, index)) return;
      if (row[i].meets && !take(Step::Kind::offer, index)) return;
      const bool both = row[i].directions == 2 && !row[i].meets;
      if (!take(Step::Kind::exchange, index, both ? std::set{0, 1} : std::set{0})) return;
    }
    if (!take(Step::Kind::nodes, Step::no_exchange)) return;
    if (next < parts.size()) problem(name(r), describe(parts[next]), " comes again, or too late");
  }

  void check_expected(int r) {
    std::set<Key> expected;
    for (const Step& s : list(r)) {
      const ShardExchange* e = s.exchange < 0 ? nullptr : exchange_of(s);
      if (s.kind == Step::Kind::expect) {
        if (e == nullptr || !waits(*e, s.direction, r)) {
          problem(name(r), describe(s), ": nobody sends it");
        } else if (!expected.insert(key_of(s)).second) {
          problem(name(r), describe(s), " comes again");
        }
      } else if (s.kind == Step::Kind::exchange && waits(*e, s.direction, r) &&
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
    const auto n = lists_.size();
    next_.assign(n, 0);
    computed_.assign(n, false);
    posted_.assign(n, {});
    arrived_.assign(n, {});
    report_.peak_activations.assign(n, 0);
    const std::vector<char> nothing(static_cast<size_t>(schedule_.micro_batches));
    holdings_.assign(n, {nothing, nothing, nothing, nothing});
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < ranks(); ++r) {
        while (step(r)) moved = true;
        if (!sound()) return;
      }
    }
    for (int r = 0; r < ranks(); ++r) {
      if (const Step* s = current(r)) problem("deadlock: ", name(r), "waits in ", describe(*s));
    }
  }

  const Step* current(int r) const {
    const size_t place = next_[static_cast<size_t>(r)];
    return place < list(r).size() ? &list(r)[place] : nullptr;
  }
  bool advance(int r) {
    ++next_[static_cast<size_t>(r)];
    computed_[static_cast<size_t>(r)] = false;
    return true;
  }

  // Whether the rank got on.
  bool step(int r) {
    const Step* s = current(r);
    if (s == nullptr || is_recv(s->action.kind)) return false;  // completed by its send
    if (s->kind == Step::Kind::expect) {
      posted_[static_cast<size_t>(r)].insert(key_of(*s));
      return advance(r);
    }
    if (s->kind == Step::Kind::weights) return weights(r, s->action);
    if (const char* lack = missing(r, s->action)) {
      problem(name(r), describe(*s), " comes before ", lack);
      return false;
    }
    switch (s->kind) {
      case Step::Kind::offer:
        offered_[key_of(*s)].insert(shard_of(r));
        return advance(r);
      case Step::Kind::exchange:
        return exchange_of(*s)->meets ? meet(r, *s) : exchange(r, *s);
      case Step::Kind::nodes:
        if (completes(*s)) apply(r, s->action);
        return advance(r);
      default:
        return is_send(s->action.kind) ? send(r, s->action) : advance(r);
    }
  }

  bool weights(int r, Action a) {
    for (a.micro_batch = 0; a.micro_batch < schedule_.micro_batches; ++a.micro_batch) {
      if (const char* lack = missing(r, a)) {
        problem(name(r), describe(a), " comes before ", lack);
        return false;
      }
      apply(r, a);
    }
    return advance(r);
  }

  // Blocks until the peer has arrived at the recv.
  bool send(int r, const Action& a) {
    const int to = a.peer * s_.shards + shard_of(r);
    const Step* waiting = current(to);
    const Step wanted{Step::Kind::action, recv_of(a, stage_of(r))};
    if (waiting == nullptr || *waiting != wanted) return false;
    apply(to, wanted.action);
    advance(to);
    return advance(r);
  }

  bool exchange(int r, const Step& s) {
    const auto self = static_cast<size_t>(r);
    const ShardExchange& e = *exchange_of(s);
    const Key key = key_of(s);
    if (!computed_[self]) {
      if (waits(e, s.direction, r) && !arrived_[self].contains(key)) return false;
      computed_[self] = true;
    }
    const int after = shard_after(e, s.direction, shard_of(r), s_.shards);
    if (after >= 0) {
      const auto to = static_cast<size_t>(r - shard_of(r) + after);
      if (!posted_[to].contains(key)) return false;
      arrived_[to].insert(key);
    }
    return advance(r);
  }

  // Sums of all shards wait for all of them; shares of gradients for nobody. Halos wait for the
  // neighbours: for all shards, to be on the safe side.
  bool meet(int r, const Step& s) {
    if (exchange_of(s)->backward && !exchange_of(s)->halo) return advance(r);
    return offered_[key_of(s)].size() == static_cast<size_t>(s_.shards) && advance(r);
  }

  // What an action still lacks, or nullptr.
  const char* missing(int r, const Action& a) const {
    const Holdings& h = holdings_[static_cast<size_t>(r)];
    const auto key = static_cast<size_t>(a.micro_batch);
    switch (a.kind) {
      case Kind::forward:
        return a.stage == 0 || h.inputs[key] ? nullptr : "its input";
      case Kind::backward:
      case Kind::input_backward:
        if (!h.outputs[key]) return "its forward";
        return a.stage == schedule_.stages() - 1 || h.output_gradients[key]
                   ? nullptr
                   : "its output's gradient";
      case Kind::weight_backward:
        return h.input_gradients[key] ? nullptr : "its input_backward";
      case Kind::send_activation:
        return h.outputs[key] ? nullptr : "its forward";
      case Kind::send_gradient:
        return h.input_gradients[key] ? nullptr : "its backward";
      case Kind::recv_activation:
      case Kind::recv_gradient:
        return nullptr;
      case Kind::reduce:
        return finished(h) ? nullptr : "all backwards of its stage";
    }
    return "a known kind";
  }

  bool finished(const Holdings& h) const {
    return h.stored == 0 && std::count(h.input_gradients.begin(), h.input_gradients.end(), 0) == 0;
  }

  void apply(int r, const Action& a) {
    Holdings& h = holdings_[static_cast<size_t>(r)];
    const auto m = static_cast<size_t>(a.micro_batch);
    if (a.kind == Kind::recv_activation) h.inputs[m] = 1;
    if (a.kind == Kind::recv_gradient) h.output_gradients[m] = 1;
    if (a.kind == Kind::forward) {
      h.outputs[m] = 1;
      int& peak = report_.peak_activations[static_cast<size_t>(r)];
      peak = std::max(peak, ++h.stored);
    }
    if (gives_gradient(a.kind)) h.input_gradients[m] = 1;
    if (a.kind == Kind::backward || a.kind == Kind::weight_backward) --h.stored;
  }

  const ShardedSchedule& s_;
  const PipelineSchedule& schedule_;
  const std::span<const std::vector<Step>> lists_;
  ScheduleReport report_;
  size_t pairs_ = 0;  // of stages and micro-batches, or none
  // By rank: the step it is at, whether it only has to send what that made, what it expects, what
  // has come from other shards, and what it has.
  std::vector<size_t> next_;
  std::vector<bool> computed_;
  std::vector<std::set<Key>> posted_, arrived_;
  std::vector<Holdings> holdings_;
  std::map<Key, std::set<int>> offered_;  // by shards
};

}  // namespace

ScheduleReport check_steps(const ShardedSchedule& schedule,
                           std::span<const std::vector<Step>> lists) {
  return Checker(schedule, lists).run();
}

ScheduleReport check_schedule(const PipelineSchedule& schedule) {
  const ShardedSchedule alone{schedule};
  return check_steps(alone, all_steps(alone));
}

}  // namespace rondo
