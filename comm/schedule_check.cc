#include <algorithm>
#include <utility>

#include "comm/schedule.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using Kind = ActionKind;
constexpr size_t kinds = static_cast<size_t>(Kind::reduce) + 1;

bool is_send(Kind k) { return k == Kind::send_activation || k == Kind::send_gradient; }
bool is_recv(Kind k) { return k == Kind::recv_activation || k == Kind::recv_gradient; }

// The stage at the other end of a send or recv.
int other_stage(const Action& a) {
  return a.kind == Kind::send_activation || a.kind == Kind::recv_gradient ? a.stage + 1
                                                                          : a.stage - 1;
}

// The recv that takes what `send`, an action of `rank`, gives away.
Action counterpart(const Action& send, int rank) {
  const Kind kind =
      send.kind == Kind::send_activation ? Kind::recv_activation : Kind::recv_gradient;
  return {kind, other_stage(send), send.micro_batch, rank};
}

class Checker {
 public:
  explicit Checker(const PipelineSchedule& schedule) : schedule_(schedule) {}

  ScheduleReport run() {
    if (!placement_is_valid()) return std::move(report_);
    const size_t pairs =
        static_cast<size_t>(schedule_.stages) * (static_cast<size_t>(schedule_.micro_batches) + 1);
    counts_.assign(kinds * pairs, 0);
    for (std::vector<char>* set : {&inputs_, &outputs_, &input_gradients_, &output_gradients_}) {
      set->assign(pairs, 0);
    }
    stored_by_stage_.assign(static_cast<size_t>(schedule_.stages), 0);
    for (int r = 0; r < schedule_.ranks(); ++r) {
      for (const Action& a : actions_of(r)) check_place(r, a);
    }
    if (report_.problems.empty()) check_counts();
    // A list with unknown or missing actions would only repeat its faults when executed.
    if (report_.problems.empty()) execute();
    if (!report_.problems.empty()) report_.peak_activations.clear();
    return std::move(report_);
  }

 private:
  template <class... Args>
  void problem(Args&&... args) {
    report_.problems.push_back(str(std::forward<Args>(args)...));
  }
  const std::vector<Action>& actions_of(int rank) const {
    return schedule_.actions[static_cast<size_t>(rank)];
  }
  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }
  bool is_stage(int s) const { return s >= 0 && s < schedule_.stages; }

  bool placement_is_valid() {
    if (schedule_.rank_of_stage.size() != static_cast<size_t>(schedule_.stages)) {
      problem(schedule_.stages, " stages, but ", schedule_.rank_of_stage.size(), " are placed");
      return false;
    }
    for (int s = 0; s < schedule_.stages; ++s) {
      if (rank_of(s) < 0 || rank_of(s) >= schedule_.ranks()) {
        problem("stage ", s, " is placed on rank ", rank_of(s), " of ", schedule_.ranks());
      }
    }
    return report_.problems.empty();
  }

  void check_place(int rank, const Action& a) {
    const auto fault = [&](const std::string& what) {
      problem("rank ", rank, ": ", describe(a), ": ", what);
    };
    if (!is_stage(a.stage) || rank_of(a.stage) != rank) return fault("not a stage of this rank");
    if (a.kind == Kind::reduce) {
      if (a.micro_batch != -1) fault("a reduction has no micro-batch");
    } else if (a.micro_batch < 0 || a.micro_batch >= schedule_.micro_batches) {
      return fault("no such micro-batch");
    }
    if (!is_send(a.kind) && !is_recv(a.kind)) return;
    if (!is_stage(other_stage(a))) return fault("there is no stage at the other end");
    const int peer = rank_of(other_stage(a));
    if (peer == rank) fault("both stages are on this rank");
    if (peer != a.peer) fault(str("the other stage is on rank ", peer));
  }

  // The place of a stage with a micro-batch, or with -1.
  size_t at(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * (static_cast<size_t>(schedule_.micro_batches) + 1) +
           static_cast<size_t>(micro_batch + 1);
  }
  size_t count_at(Kind kind, int stage, int micro_batch) const {
    return at(stage, micro_batch) * kinds + static_cast<size_t>(kind);
  }
  int count(Kind kind, int stage, int micro_batch) const {
    return counts_[count_at(kind, stage, micro_batch)];
  }

  void expect(int times, Kind kind, int stage, int micro_batch) {
    const int found = count(kind, stage, micro_batch);
    if (found != times) {
      problem(name_of(kind), " stage ", stage, " micro-batch ", micro_batch, ": ", found,
              " times, expected ", times);
    }
  }

  void check_counts() {
    for (const auto& list : schedule_.actions) {
      for (const Action& a : list) ++counts_[count_at(a.kind, a.stage, a.micro_batch)];
    }
    for (int s = 0; s < schedule_.stages; ++s) {
      const bool before = s > 0 && rank_of(s - 1) != rank_of(s);
      const bool after = s + 1 < schedule_.stages && rank_of(s + 1) != rank_of(s);
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
      if (count(Kind::reduce, s, -1) > 1) problem("stage ", s, " is reduced more than once");
    }
  }

  // What an action still lacks, or nullptr.
  const char* missing(const Action& a) const {
    const size_t key = at(a.stage, a.micro_batch);
    const auto has = [&](const std::vector<char>& set) { return set[key] != 0; };
    switch (a.kind) {
      case Kind::forward:
        return a.stage == 0 || has(inputs_) ? nullptr : "its input";
      case Kind::backward:
      case Kind::input_backward:
        if (!has(outputs_)) return "its forward";
        return a.stage == schedule_.stages - 1 || has(output_gradients_) ? nullptr
                                                                         : "its output's gradient";
      case Kind::weight_backward:
        return has(input_gradients_) ? nullptr : "its input_backward";
      case Kind::send_activation:
        return has(outputs_) ? nullptr : "its forward";
      case Kind::send_gradient:
        return has(input_gradients_) ? nullptr : "its backward";
      case Kind::recv_activation:
      case Kind::recv_gradient:
        return nullptr;
      case Kind::reduce:
        return finished(a.stage) && stored_by_stage_[static_cast<size_t>(a.stage)] == 0
                   ? nullptr
                   : "all backwards of its stage";
    }
    return "a known kind";
  }

  bool finished(int stage) const {
    for (int m = 0; m < schedule_.micro_batches; ++m) {
      if (!input_gradients_[at(stage, m)]) return false;
    }
    return true;
  }

  void store(int rank, int stage, int change) {
    stored_by_stage_[static_cast<size_t>(stage)] += change;
    const int now = stored_[static_cast<size_t>(rank)] += change;
    int& peak = report_.peak_activations[static_cast<size_t>(rank)];
    peak = std::max(peak, now);
  }

  void apply(int rank, const Action& a) {
    const int s = a.stage, m = a.micro_batch;
    const bool next_is_here = s + 1 < schedule_.stages && rank_of(s + 1) == rank;
    const bool previous_is_here = s > 0 && rank_of(s - 1) == rank;
    switch (a.kind) {
      case Kind::forward:
        outputs_[at(s, m)] = 1;
        if (next_is_here) inputs_[at(s + 1, m)] = 1;
        store(rank, s, 1);
        break;
      case Kind::backward:
      case Kind::input_backward:
        input_gradients_[at(s, m)] = 1;
        if (previous_is_here) output_gradients_[at(s - 1, m)] = 1;
        if (a.kind == Kind::backward) store(rank, s, -1);
        break;
      case Kind::weight_backward:
        store(rank, s, -1);
        break;
      case Kind::recv_activation:
        inputs_[at(s, m)] = 1;
        break;
      case Kind::recv_gradient:
        output_gradients_[at(s, m)] = 1;
        break;
      case Kind::send_activation:
      case Kind::send_gradient:
      case Kind::reduce:
        break;
    }
  }

  const Action* current(int rank) const {
    const size_t at = next_[static_cast<size_t>(rank)];
    return at < actions_of(rank).size() ? &actions_of(rank)[at] : nullptr;
  }
  void advance(int rank) { ++next_[static_cast<size_t>(rank)]; }

  // Runs all ranks as far as they get, with sends that block until the peer is at the recv. The
  // result does not depend on the order in which ranks are tried: every message has one sender and
  // one receiver, and a rank never chooses.
  void execute() {
    const size_t ranks = schedule_.actions.size();
    next_.assign(ranks, 0);
    stored_.assign(ranks, 0);
    report_.peak_activations.assign(ranks, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < schedule_.ranks(); ++r) {
        while (step(r)) moved = true;
        if (!report_.problems.empty()) return;
      }
    }
    for (int r = 0; r < schedule_.ranks(); ++r) {
      if (const Action* a = current(r)) problem("deadlock: rank ", r, " waits in ", describe(*a));
    }
  }

  bool step(int rank) {
    const Action* a = current(rank);
    if (a == nullptr || is_recv(a->kind)) return false;  // a recv is completed by its send
    if (const char* lack = missing(*a)) {
      problem("rank ", rank, ": ", describe(*a), " comes before ", lack);
      return false;
    }
    if (is_send(a->kind)) {
      const Action* waiting = current(a->peer);
      if (waiting == nullptr || *waiting != counterpart(*a, rank)) return false;
      apply(a->peer, *waiting);
      advance(a->peer);
    }
    apply(rank, *a);
    advance(rank);
    return true;
  }

  const PipelineSchedule& schedule_;
  ScheduleReport report_;
  std::vector<int> counts_;   // by stage, micro-batch and kind
  std::vector<size_t> next_;  // by rank: the action it is at
  std::vector<int> stored_;   // by rank
  std::vector<int> stored_by_stage_;
  // By stage and micro-batch: what its rank has.
  std::vector<char> inputs_, outputs_, input_gradients_, output_gradients_;
};

}  // namespace

ScheduleReport check_schedule(const PipelineSchedule& schedule) { return Checker(schedule).run(); }

}  // namespace rondo
