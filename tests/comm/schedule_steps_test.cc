// The order in which stages, shards, and shards of stages work: right for every size, and the
// checker sees what is wrong.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "comm/schedule_steps.h"
#include "tests/catch.h"
#include "tests/comm/gpipe.h"
#include "tests/comm/schedule_check.h"

using namespace rondo;

namespace {

using Kind = Step::Kind;
using Lists = std::vector<std::vector<Step>>;

// Layers in turn bidirectional and not, so many to a stage; a convolution's halo in front of every
// third stage's; CTC on the last one.
std::vector<StageExchanges> rows(int stages, int layers = 2, bool halos = false) {
  std::vector<StageExchanges> all(static_cast<size_t>(stages));
  for (int s = 0; s < stages; ++s) {
    StageExchanges& row = all[static_cast<size_t>(s)];
    std::vector<ShardExchange> forward;
    if (halos && s % 3 == 0) forward.push_back({1, false, true, true});
    for (int l = 0; l < layers; ++l) forward.push_back({(s + l) % 2 == 0 ? 2 : 1, false, false});
    if (s == stages - 1) forward.push_back({1, false, false});
    row = forward;
    for (auto e = forward.rbegin(); e != forward.rend(); ++e) {
      row.push_back({e->directions, true, e->meets, e->halo});
    }
  }
  return all;
}

std::string problems(const ShardedSchedule& schedule, const Lists& lists) {
  std::string text;
  for (const auto& p : check_steps(schedule, lists).problems) text += p + "\n";
  return text;
}
std::string problems(const ShardedSchedule& schedule) {
  return problems(schedule, all_steps(schedule));
}

size_t find(const std::vector<Step>& list, const Step& step) {
  const auto found = std::find(list.begin(), list.end(), step);
  REQUIRE(found != list.end());
  return static_cast<size_t>(found - list.begin());
}

}  // namespace

TEST_CASE("Lists of stages and shards are complete, ordered and free of deadlock", "[slow]") {
  int checked = 0;
  for (const char* const kind : {"gpipe", "1f1b", "zero_bubble"}) {
    for (int stages : {1, 2, 3, 5, 8, 16}) {
      for (int m : {1, 2, 3, 8, 16, 64}) {
        const bool simplest = kind == std::string("gpipe");
        const PipelineSchedule schedule =
            simplest ? gpipe_schedule(stages, m) : make_schedule(schedule_kind(kind), stages, m);
        const auto exchanges = rows(stages, 2, m % 2 == 1);
        for (int shards : {1, 2, 3, 8, 16}) {
          if (stages * m * shards > 4096) continue;  // half of the time, and nothing new
          INFO(kind << ": " << stages << " stages, " << m << " micro-batches, " << shards
                    << " shards");
          CHECK(problems({schedule, exchanges, shards}) == "");
          ++checked;
        }
      }
    }
  }
  CHECK(checked == 528);
}

TEST_CASE("Lists of shards that weave micro-batches are complete, ordered and free of deadlock") {
  for (int m : {1, 2, 3, 8, 16, 64}) {
    for (int shards : {1, 2, 3, 4, 8, 16}) {
      for (const bool halos : {false, true}) {
        INFO(m << " micro-batches, " << shards << " shards");
        const ShardedSchedule schedule = woven_schedule(rows(1, 4, halos)[0], m, shards);
        const ScheduleReport report = check_steps(schedule, all_steps(schedule));
        CHECK(report.problems == std::vector<std::string>{});
        CHECK(report.peak_activations == std::vector<int>(static_cast<size_t>(shards), m));
      }
    }
  }
}

TEST_CASE("The list of a shard that weaves two micro-batches") {
  // A convolution's halo and a bidirectional layer; the shard's left direction is the near one.
  const ShardedSchedule schedule =
      woven_schedule({{1, false, true, true}, {2, false}, {2, true}, {1, true, true, true}}, 2, 2);
  const auto forward = [](int m) { return Action{ActionKind::forward, 0, m}; };
  const auto backward = [](int m) { return Action{ActionKind::input_backward, 0, m}; };
  const std::vector<Step> want = {
      {Kind::expect, forward(0), 1, 0},  // what comes from the left, an exchange ahead
      {Kind::expect, forward(1), 1, 0},
      {Kind::nodes, forward(0), 0},
      {Kind::nodes, forward(1), 0},
      {Kind::offer, forward(0), 0},  // all give before one takes
      {Kind::offer, forward(1), 0},
      {Kind::exchange, forward(0), 0},
      {Kind::exchange, forward(1), 0},
      {Kind::expect, backward(0), 2, 1},  // the gradient of the state that came from the left
      {Kind::expect, backward(1), 2, 1},
      {Kind::nodes, forward(0), 1},
      {Kind::nodes, forward(1), 1},
      {Kind::exchange, forward(0), 1, 1},
      {Kind::exchange, forward(1), 1, 1},
      {Kind::exchange, forward(0), 1, 0},
      {Kind::exchange, forward(1), 1, 0},
      {Kind::nodes, forward(0)},
      {Kind::nodes, forward(1)},
      {Kind::nodes, backward(0), 2},
      {Kind::nodes, backward(1), 2},
      {Kind::exchange, backward(0), 2, 0},
      {Kind::exchange, backward(1), 2, 0},
      {Kind::exchange, backward(0), 2, 1},
      {Kind::exchange, backward(1), 2, 1},
      {Kind::nodes, backward(0), 3},
      {Kind::nodes, backward(1), 3},
      {Kind::offer, backward(0), 3},
      {Kind::offer, backward(1), 3},
      {Kind::exchange, backward(0), 3},
      {Kind::exchange, backward(1), 3},
      {Kind::nodes, backward(0)},
      {Kind::nodes, backward(1)},
      {Kind::weights, {ActionKind::weight_backward, 0}},
      {Kind::action, {ActionKind::reduce, 0}}};
  CHECK(rank_steps(schedule, 0, 1) == want);
}

TEST_CASE("The list of a shard at the left end of the last stage") {
  // One bidirectional layer and CTC; the shard's right direction is the near one.
  const std::vector<StageExchanges> exchanges = {
      {}, {{2, false, false}, {1, false, false}, {1, true, false}, {2, true, false}}};
  const PipelineSchedule schedule = gpipe_schedule(2, 1);
  const Action receive{ActionKind::recv_activation, 1, 0, 0}, forward{ActionKind::forward, 1, 0};
  const Action backward{ActionKind::backward, 1, 0};
  const std::vector<Step> want = {
      {Kind::expect, forward, 0, 1},   // what comes from the right
      {Kind::action, receive},         //
      {Kind::expect, backward, 2, 0},  // beta
      {Kind::expect, backward, 3, 0},  // the gradient of the state that went right
      {Kind::nodes, forward, 0},
      {Kind::exchange, forward, 0, 0},
      {Kind::exchange, forward, 0, 1},
      {Kind::nodes, forward, 1},
      {Kind::exchange, forward, 1, 0},
      {Kind::nodes, forward},
      {Kind::nodes, backward, 2},
      {Kind::exchange, backward, 2, 0},
      {Kind::nodes, backward, 3},
      {Kind::exchange, backward, 3, 1},  // its own end first
      {Kind::exchange, backward, 3, 0},
      {Kind::nodes, backward},
      {Kind::action, {ActionKind::send_gradient, 1, 0, 0}},
      {Kind::action, {ActionKind::reduce, 1}}};
  CHECK(rank_steps({schedule, exchanges, 2}, 1, 0) == want);
}

TEST_CASE("Neighbours wait for each other's halos, forward and backward") {
  const PipelineSchedule schedule = gpipe_schedule(1, 2);
  for (const bool halo : {true, false}) {  // else poolings, whose gradients wait for nobody
    const ShardedSchedule shared{schedule, {{{1, false, true, halo}, {1, true, true, halo}}}, 2};
    for (const ActionKind kind : {ActionKind::forward, ActionKind::backward}) {
      Lists lists = all_steps(shared);
      REQUIRE(problems(shared, lists) == "");
      // Nodes, both halves of the exchange, nodes: of one micro-batch and then of the other.
      const auto first = std::find_if(lists[1].begin(), lists[1].end(),
                                      [&](const Step& s) { return s.action.kind == kind; });
      std::rotate(first, first + 4, first + 8);
      const std::string text = problems(shared, lists);
      if (halo || kind == ActionKind::forward) {
        CHECK_THAT(text, Catch::Contains("waits in exchange"));
      } else {
        CHECK(text == "");
      }
    }
  }
}

// Lists of two stages of two shards, broken in one way.
struct Broken {
  const ShardedSchedule schedule{make_schedule(ScheduleKind::one_f_one_b, 2, 4), rows(2), 2};
  const Action forward{ActionKind::forward, 0, 1};
  const Step early{Kind::exchange, forward, 0, 0}, late{Kind::exchange, forward, 0, 1};

  // What the checker says of them.
  template <class Break>
  std::string fault(Break&& break_lists) const {
    Lists lists = all_steps(schedule);
    break_lists(lists);
    return problems(schedule, lists);
  }
};

TEST_CASE_METHOD(Broken, "The checker names steps that lists of stages and shards lack or repeat") {
  CHECK_THAT(fault([](Lists& l) { l.pop_back(); }), Catch::Contains("3 lists for 2 x 2 ranks"));
  CHECK_THAT(fault([&](Lists& l) { std::erase(l[0], late); }),
             Catch::Contains("lacks exchange 0 direction 1 of forward stage 0 micro-batch 1"));
  CHECK_THAT(fault([&](Lists& l) { l[0].insert(l[0].begin() + 20, l[0][find(l[0], late)]); }),
             !Catch::Equals(""));
  CHECK_THAT(fault([&](Lists& l) {
               std::erase(l[0], Step{Kind::expect, forward, 0, 1});
             }),
             Catch::Contains("has not been expected"));
  CHECK_THAT(fault([&](Lists& l) {
               l[0].insert(l[0].begin(), {Kind::expect, forward, 0, 1});
             }),
             Catch::Contains("comes again"));
  CHECK_THAT(fault([&](Lists& l) {
               l[0].insert(l[0].begin(), {Kind::expect, forward, 0, 0});
             }),
             Catch::Contains("nobody sends it"));
  CHECK_THAT(fault([&](Lists& l) {
               std::erase_if(l[1], [&](const Step& s) {
                 return s.action == forward && s.kind != Kind::expect;
               });
             }),
             Catch::Contains("forward stage 0 micro-batch 1: 0 times, expected 1"));
}

TEST_CASE_METHOD(Broken,
                 "The checker finds orders in which stages and shards wait for each other") {
  // Both shards begin with the direction whose end is far: each waits for the other.
  const auto far_first = [&](std::vector<Step>& list) {
    std::swap(list[find(list, early)], list[find(list, late)]);
  };
  CHECK(fault([&](Lists& l) { far_first(l[0]); }) == "");
  CHECK_THAT(fault([&](Lists& l) {
               far_first(l[0]);
               far_first(l[1]);
             }),
             Catch::Contains("deadlock: shard 0 of rank 0: waits in exchange 0"));
  // A state is expected only after the shard has given away what the other one waits with.
  CHECK_THAT(fault([&](Lists& l) {
               for (size_t r : {0, 1}) {
                 std::vector<Step> expected;
                 for (const Step& s : l[r]) {
                   if (s.kind == Kind::expect && s.action == forward) expected.push_back(s);
                 }
                 std::erase_if(l[r], [&](const Step& s) {
                   return s.kind == Kind::expect && s.action == forward;
                 });
                 for (const Step& s : expected) {
                   const size_t at = find(l[r], {Kind::exchange, forward, s.exchange, s.direction});
                   l[r].insert(l[r].begin() + static_cast<std::ptrdiff_t>(at), s);
                 }
               }
             }),
             Catch::Contains("deadlock"));
  // Two micro-batches change places on one of the shards.
  CHECK_THAT(fault([&](Lists& l) {
               for (Step& s : l[2]) {
                 int& m = s.action.micro_batch;
                 if (s.kind != Kind::action && s.action.kind == ActionKind::forward && m < 2) {
                   m = 1 - m;
                 }
               }
             }),
             !Catch::Equals(""));
}
