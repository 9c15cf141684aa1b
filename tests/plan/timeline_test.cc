// The simulation against cases with exact answers.
#include <cmath>

#include "engine/plan/simulation.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/comm/gpipe.h"

using namespace rondo;
using namespace rondo::plan;

namespace {

// L equal layers over p shards; nothing but the forward passes takes time.
struct Wave {
  Wave(int shards, int micro_batches, int layers, int directions) {
    blocks.resize(static_cast<size_t>(layers));
    for (BlockCost& b : blocks) {
      b.directions = directions;
      b.direction.forward = 1;
    }
    steps.schedule = woven_schedule({}, micro_batches, shards);
    steps.beside.assign(static_cast<size_t>(shards), {"link", false, 0, 1});
    steps.reduce = {0};
  }
  StepTimes times() {
    steps.stages = {costs_of_stage(blocks, 0, static_cast<int>(blocks.size()), true)};
    return simulate(steps);
  }
  double end() { return times().end; }

  std::vector<BlockCost> blocks;
  StepCosts steps;
};

}  // namespace

TEST_CASE("a shard's list is simulated as it stands") {
  Wave wave(2, 3, 2, 2);
  wave.blocks.back().loss = 2;
  for (BlockCost& l : wave.blocks) l.direction.input_backward = l.rest.weight_backward = 1;
  const StepTimes times = wave.times();
  const ShardedSchedule schedule = wave.steps.listed();
  CHECK(schedule.exchanges[0] ==
        StageExchanges{{2, false}, {2, false}, {1, false}, {1, true}, {2, true}, {2, true}});
  using Turn = std::pair<int, int>;  // layer, micro-batch; parts of the same one are drawn as one
  const auto append = [](std::vector<Turn>& all, const Turn& turn) {
    if (all.empty() || all.back() != turn) all.push_back(turn);
  };
  for (int shard = 0; shard < 2; ++shard) {
    std::vector<Turn> drawn, listed;
    for (const TimedAction& t : times.timeline.ranks[static_cast<size_t>(shard)]) {
      if (computes(t.action.kind)) append(drawn, {t.action.stage, t.action.micro_batch});
    }
    for (const Step& s : rank_steps(schedule, 0, shard)) {
      if (s.kind == Step::Kind::weights) {
        for (int m = 0; m < 3; ++m) append(listed, {0, m});
      }
      if (s.kind != Step::Kind::exchange) continue;
      const auto& e = wave.steps.stages[0].exchanges[static_cast<size_t>(s.exchange)];
      append(listed, {e.block, s.action.micro_batch});
    }
    CHECK(drawn == listed);
  }
}

TEST_CASE("unidirectional layers over shards take mL + p - 1 turns") {
  for (int p : {1, 2, 4, 8}) {
    for (int m : {1, 3, 8}) {
      for (int layers : {1, 2, 5}) {
        INFO(p << " shards, " << m << " micro-batches, " << layers << " layers");
        CHECK(Wave(p, m, layers, 1).end() == m * layers + p - 1);
      }
    }
  }
}

TEST_CASE("of a bidirectional layer both directions cross all shards") {
  // One micro-batch: a shard runs its two directions at different times, but each must wait for the
  // other end; p shards take p turns per layer, plus one where both meet in the middle shard.
  for (int p : {2, 4, 8}) {
    Wave wave(p, 1, 3, 2);
    CHECK(wave.end() >= 3 * p);
    CHECK(wave.end() <= 3 * (p + 1));
  }
  // Enough micro-batches fill the gaps.
  const double turns = Wave(2, 16, 3, 2).end(), busy = 16 * 3 * 2;
  CHECK(busy / turns > 0.85);
}

TEST_CASE("messages, a loss and the way back lengthen the wave as they must") {
  Wave wave(4, 1, 1, 1);
  BlockCost& b = wave.blocks[0];
  b.state_bytes = 0.5;
  CHECK(wave.end() == 4 + 3 * 0.5 + 3 * 0.5);  // gradients of states return
  b.loss = 2;
  b.loss_bytes = 0.25;
  // Half of the loss follows the last layer shard by shard; the other half comes all the way back.
  CHECK(wave.end() == 4 + 3 * 0.5 + 1 + (4 + 3 * 0.25));
  // The layer's way back follows: the last shard begins when its loss is done, each further one
  // takes its turn and a message, which is longer than the loss's.
  b.direction.input_backward = 1;
  const double loss_of_last = 4 + 1.5 + 1 + 1;
  CHECK(wave.end() == loss_of_last + 4 * 1 + 3 * 0.5);
}

namespace {

// A pipeline whose forward takes 1 and backward 2; messages as given.
StepCosts pipeline_costs(PipelineSchedule schedule, double transfer = 0, double latency = 0) {
  const size_t stages = schedule.actions.size();
  StepCosts c;
  c.schedule = {std::move(schedule)};
  c.stages.assign(stages, {.after_forward = 1, .after_backward = 1, .weights = 1});
  c.output_bytes.assign(stages, transfer);
  c.up.assign(stages, {"link", false, latency, 1});
  c.down = c.up;
  c.reduce.assign(stages, 0);
  return c;
}

}  // namespace

TEST_CASE("every schedule has the bubble that it promises") {
  int checked = 0;
  for (ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble}) {
    // Of comm/schedule.h, in units of a forward.
    const double idle = kind == ScheduleKind::zero_bubble ? 1 : 3;
    for (int p = 1; p <= 16; ++p) {
      for (int m : {1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 28, 33, 48, 64}) {
        if (m < p) continue;
        INFO(name_of(kind) << ": " << p << " stages, " << m << " micro-batches");
        const double end = simulate(pipeline_costs(make_schedule(kind, p, m))).end;
        CHECK(end - 3.0 * m == Approx(idle * (p - 1)).margin(1e-9));
        ++checked;
      }
    }
  }
  CHECK(checked > 200);
}

TEST_CASE("messages of a pipeline take their time, one after the other, beside computations") {
  // Rank 0 is done with its forwards at 3; the link takes 2 per activation: the last arrives at
  // 1 + 3*2 + 0.5, its forward ends at 8.5, and its backward is the third of three.
  const PipelineTimeline t = simulate(pipeline_costs(gpipe_schedule(2, 3), 2, 0.5)).timeline;
  REQUIRE(t.ranks.size() == 2);
  const auto end_of = [&](int rank, const Action& a) {
    for (const TimedAction& done : t.ranks[static_cast<size_t>(rank)]) {
      if (done.action == a) return done.end;
    }
    return -1.0;
  };
  CHECK(end_of(0, {ActionKind::forward, 0, 2}) == 3);
  CHECK(end_of(0, {ActionKind::send_activation, 0, 2, 1}) == 7);
  CHECK(end_of(1, {ActionKind::recv_activation, 1, 2, 0}) == 7.5);
  CHECK(end_of(1, {ActionKind::forward, 1, 2}) == 8.5);
  CHECK(end_of(1, {ActionKind::backward, 1, 2}) == 14.5);
  CHECK(end_of(0, {ActionKind::backward, 0, 2}) == 19);
  CHECK(t.duration() == 19);
  CHECK(t.busy(0) == 9);
  CHECK(t.bubble(0) == Approx(1 - 9.0 / 19));
}

TEST_CASE("a list that waits for ever has no timing") {
  PipelineSchedule s = gpipe_schedule(2, 1);
  std::swap(s.actions[0][0], s.actions[0][3]);  // the backward first
  CHECK(s.actions[0][0].kind == ActionKind::backward);
  CHECK_THROWS_WITH(simulate(pipeline_costs(s)), Catch::Contains("waits for ever"));
}
