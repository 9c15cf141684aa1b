// The simulator against cases with exact answers.
#include <cmath>

#include "engine/plan/step_tasks.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/comm/gpipe.h"

using namespace rondo;
using namespace rondo::plan;

TEST_CASE("tasks wait for their resource and for each other") {
  Work work;
  const int cpu = work.add_resource(Order::listed), link = work.add_resource(Order::listed);
  const int a = work.add({cpu, 2});
  const int sent = work.add({link, 3, {a}});
  const int b = work.add({cpu, 4});
  const int c = work.add({cpu, 1, {sent}});
  const Timeline t = simulate(work);
  const auto at = [&t](int task) { return t.intervals[static_cast<size_t>(task)]; };
  CHECK(at(a).end == 2);
  CHECK(at(sent).start == 2);
  CHECK(at(b).start == 2);
  CHECK(at(c).start == 6);  // the message came at 5, while b ran
  CHECK(t.end == 7);
  CHECK(t.busy[static_cast<size_t>(cpu)] == 7);
  CHECK(t.busy[static_cast<size_t>(link)] == 3);
}

TEST_CASE("what waits for a message waits for its latency, its link does not") {
  Work work;
  const int cpu = work.add_resource(Order::listed), link = work.add_resource(Order::listed);
  Task message{link, 3};
  message.latency = 10;
  const int sent = work.add(message);
  const int next = work.add({link, 1});
  const int reads = work.add({cpu, 1, {sent, next}});
  const Timeline t = simulate(work);
  CHECK(t.intervals[static_cast<size_t>(sent)].end == 3);
  CHECK(t.intervals[static_cast<size_t>(next)].end == 4);
  CHECK(t.intervals[static_cast<size_t>(reads)].start == 13);
  CHECK(t.busy[static_cast<size_t>(link)] == 4);
}

TEST_CASE("listed resources keep their order, others take the lowest priority that can start") {
  for (Order order : {Order::listed, Order::priority}) {
    Work work;
    const int slow = work.add_resource(Order::listed), r = work.add_resource(order);
    const int late = work.add({slow, 5});
    const int first = work.add({r, 1, {late}, 0});
    const int third = work.add({r, 1, {}, 2});
    const int second = work.add({r, 1, {}, 1});
    const Timeline t = simulate(work);
    const auto start = [&t](int task) { return t.intervals[static_cast<size_t>(task)].start; };
    if (order == Order::listed) {
      CHECK(start(first) == 5);
      CHECK(start(third) == 6);
      CHECK(start(second) == 7);
    } else {
      CHECK(start(second) == 0);
      CHECK(start(third) == 1);
      CHECK(start(first) == 5);
    }
  }
}

TEST_CASE("a circle is an error that names a task") {
  Work work;
  const int r = work.add_resource(Order::priority);
  const int a = work.add({r, 1});
  const int b = work.add({r, 1, {a}});
  work.wait_for(a, b);
  CHECK_THROWS_WITH(simulate(work), Catch::Contains("never starts"));
  Work behind;
  const int one = behind.add_resource(Order::listed);
  const int early = behind.add({one, 1});
  behind.wait_for(early, behind.add({one, 1}));
  CHECK_THROWS_AS(simulate(behind), Error);
}

namespace {

// L equal layers over p shards; nothing but the forward passes takes time.
struct Wave {
  Wave(int shards, int micro_batches, int layers, int directions) {
    costs.layers.resize(static_cast<size_t>(layers));
    for (auto& l : costs.layers) l.direction.forward = 1;
    costs.directions.assign(static_cast<size_t>(layers), directions);
    costs.state_bytes.assign(static_cast<size_t>(layers), 0);
    steps.schedule = woven_schedule({}, micro_batches, shards);
    steps.beside.assign(static_cast<size_t>(shards), {"link", false, 0, 1});
    steps.reduce = {0};
  }
  StepTasks tasks() {
    steps.stages = {costs.of_layers(0, static_cast<int>(costs.layers.size()))};
    return tasks_of(steps);
  }
  double end() { return simulate(tasks().work).end; }

  ShardCosts costs;
  StepCosts steps;
};

}  // namespace

TEST_CASE("a shard's list is simulated as it stands") {
  Wave wave(2, 3, 2, 2);
  wave.costs.alpha = wave.costs.beta = 1;
  const StepTasks tasks = wave.tasks();
  ShardedSchedule schedule = wave.steps.schedule;
  schedule.exchanges = {wave.steps.stages[0].order()};
  CHECK(schedule.exchanges[0] ==
        StageExchanges{{2, false}, {2, false}, {1, false}, {1, true}, {2, true}, {2, true}});
  for (int shard = 0; shard < 2; ++shard) {
    std::vector<int> micro_batches, expected;
    for (const Task& t : tasks.work.tasks()) {
      if (t.resource == shard) micro_batches.push_back(t.micro_batch);
    }
    for (const Step& s : rank_steps(schedule, 0, shard)) {
      if (s.kind == Step::Kind::weights) expected.insert(expected.end(), {0, 1, 2});
      if (s.kind == Step::Kind::nodes || s.kind == Step::Kind::exchange) {
        expected.push_back(s.action.micro_batch);
      }
    }
    CHECK(micro_batches == expected);
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

TEST_CASE("messages, CTC and the way back lengthen the wave as they must") {
  Wave wave(4, 1, 1, 1);
  ShardCosts& c = wave.costs;
  c.state_bytes = {0.5};
  CHECK(wave.end() == 4 + 3 * 0.5 + 3 * 0.5);  // gradients of states return
  c.alpha = c.beta = 1;
  c.ctc_bytes = 0.25;
  // alpha follows the last layer shard by shard; beta comes all the way back.
  CHECK(wave.end() == 4 + 3 * 0.5 + 1 + (4 + 3 * 0.25));
  // The LSTM's way back follows beta: the last shard begins when its beta is done, each further one
  // takes its turn and a message, which is longer than beta's.
  c.layers[0].direction.input_backward = 1;
  const double beta_of_last = 4 + 1.5 + 1 + 1;
  CHECK(wave.end() == beta_of_last + 4 * 1 + 3 * 0.5);
}

namespace {

// A pipeline whose forward takes 1 and backward 2; messages as given.
StepCosts pipeline_costs(PipelineSchedule schedule, double transfer = 0, double latency = 0) {
  const size_t stages = schedule.actions.size();
  StepCosts c;
  c.schedule = {std::move(schedule)};
  c.stages.assign(stages, costs_of_passes({1, 1, 1}));
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
        const double end = simulate(tasks_of(pipeline_costs(make_schedule(kind, p, m))).work).end;
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
  const StepTasks tasks = tasks_of(pipeline_costs(gpipe_schedule(2, 3), 2, 0.5));
  const PipelineTimeline t = timeline_of(tasks, simulate(tasks.work));
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
  CHECK_THROWS_AS(simulate(tasks_of(pipeline_costs(s)).work), Error);
}
