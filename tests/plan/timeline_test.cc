// The simulator against cases with exact answers.
#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "engine/parallel/wave_order.h"
#include "engine/plan/timeline.h"
#include "engine/plan/wave.h"
#include "kernels/base/error.h"

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
WaveCosts forward_only(int shards, int micro_batches, int layers, int directions) {
  WaveCosts c;
  c.shards = shards;
  c.micro_batches = micro_batches;
  c.layers.resize(static_cast<size_t>(layers));
  for (auto& l : c.layers) l.direction.forward = 1;
  c.directions.assign(static_cast<size_t>(layers), directions);
  c.state_bytes.assign(static_cast<size_t>(layers), 0);
  c.beside.assign(static_cast<size_t>(shards), {"link", false, 0, 1});
  return c;
}

}  // namespace

TEST_CASE("a shard's list holds every exchange once, in order, and is simulated as it stands") {
  const std::vector<WaveExchange> row = {{2, false, false}, {1, false, false}, {2, true, false}};
  for (int shards : {1, 2, 5}) {
    for (int shard = 0; shard < shards; ++shard) {
      const auto steps = wave_steps(row, 3, shard, shards);
      CHECK(steps.size() == 3 * (5 + 4 + 1));
      std::map<std::tuple<int, int, int>, int> seen;
      int last = 0;
      for (const WaveStep& s : steps) {
        if (s.kind == WaveStep::Kind::exchange) ++seen[{s.exchange, s.micro_batch, s.direction}];
        CHECK(s.exchange >= last);
        last = s.exchange;
      }
      CHECK(seen.size() == 3 * 5);
      for (const auto& [key, count] : seen) CHECK(count == 1);
      CHECK(steps.back().kind == WaveStep::Kind::weight_gradients);
    }
  }
  // The planner's shards carry out that list and nothing else.
  WaveCosts c = forward_only(2, 3, 2, 2);
  c.alpha = c.beta = 1;
  const Wave wave = build_wave(c);
  std::vector<WaveExchange> exchanges = {{2, false, false}, {2, false, false}, {1, false, false},
                                         {1, true, false},  {2, true, false},  {2, true, false}};
  for (int shard = 0; shard < 2; ++shard) {
    std::vector<int> micro_batches, expected;
    for (const Task& t : wave.work.tasks()) {
      if (t.resource == shard) micro_batches.push_back(t.micro_batch);
    }
    for (const WaveStep& s : wave_steps(exchanges, 3, shard, 2)) expected.push_back(s.micro_batch);
    CHECK(micro_batches == expected);
  }
}

TEST_CASE("unidirectional layers over shards take mL + p - 1 turns") {
  for (int p : {1, 2, 4, 8}) {
    for (int m : {1, 3, 8}) {
      for (int layers : {1, 2, 5}) {
        const Wave wave = build_wave(forward_only(p, m, layers, 1));
        INFO(p << " shards, " << m << " micro-batches, " << layers << " layers");
        CHECK(simulate(wave.work).end == m * layers + p - 1);
      }
    }
  }
}

TEST_CASE("of a bidirectional layer both directions cross all shards") {
  // One micro-batch: a shard runs its two directions at different times, but each must wait for the
  // other end; p shards take p turns per layer, plus one where both meet in the middle shard.
  for (int p : {2, 4, 8}) {
    const Wave wave = build_wave(forward_only(p, 1, 3, 2));
    CHECK(simulate(wave.work).end >= 3 * p);
    CHECK(simulate(wave.work).end <= 3 * (p + 1));
  }
  // Enough micro-batches fill the gaps.
  const Wave full = build_wave(forward_only(2, 16, 3, 2));
  const double turns = simulate(full.work).end, busy = 16 * 3 * 2;
  CHECK(busy / turns > 0.85);
}

TEST_CASE("messages, CTC and the way back lengthen the wave as they must") {
  WaveCosts c = forward_only(4, 1, 1, 1);
  c.state_bytes = {0.5};
  CHECK(simulate(build_wave(c).work).end == 4 + 3 * 0.5 + 3 * 0.5);  // gradients of states return
  c.alpha = c.beta = 1;
  c.ctc_bytes = 0.25;
  // alpha follows the last layer shard by shard; beta comes all the way back.
  CHECK(simulate(build_wave(c).work).end == 4 + 3 * 0.5 + 1 + (4 + 3 * 0.25));
  // The LSTM's way back follows beta: the last shard begins when its beta is done, each further one
  // takes its turn and a message, which is longer than beta's.
  c.layers[0].direction.input_backward = 1;
  const double beta_of_last = 4 + 1.5 + 1 + 1;
  CHECK(simulate(build_wave(c).work).end == beta_of_last + 4 * 1 + 3 * 0.5);
}
