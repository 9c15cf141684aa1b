#include <algorithm>
#include <utility>

#include "comm/schedule.h"
#include "tests/catch.h"
#include "tests/comm/gpipe.h"
#include "tests/comm/schedule_check.h"

namespace rondo {
namespace {

using Catch::Matchers::Contains;
using Kind = ActionKind;

std::string problems_of(const PipelineSchedule& schedule) {
  std::string all;
  for (const std::string& p : check_schedule(schedule).problems) all += p + "\n";
  return all;
}

size_t position(const std::vector<Action>& actions, Kind kind, int micro_batch) {
  const auto it = std::find_if(actions.begin(), actions.end(), [&](const Action& a) {
    return a.kind == kind && a.micro_batch == micro_batch;
  });
  REQUIRE(it != actions.end());
  return static_cast<size_t>(it - actions.begin());
}

TEST_CASE("GPipe schedules are valid and store every micro-batch", "[schedule]") {
  for (int p = 1; p <= 16; ++p) {
    for (int m : {1, 2, 3, 4, 7, 16, 64}) {
      INFO(p << " stages, " << m << " micro-batches");
      const PipelineSchedule schedule = gpipe_schedule(p, m);
      const ScheduleReport report = check_schedule(schedule);
      CHECK(report.problems.empty());
      CHECK(report.peak_activations == std::vector<int>(static_cast<size_t>(p), m));
    }
  }
}

TEST_CASE("One stage of GPipe is forwards, backwards, and one reduction", "[schedule]") {
  const std::vector<Action> expected = {{Kind::forward, 0, 0},
                                        {Kind::forward, 0, 1},
                                        {Kind::backward, 0, 0},
                                        {Kind::backward, 0, 1},
                                        {Kind::reduce, 0}};
  CHECK(gpipe_schedule(1, 2).actions == std::vector<std::vector<Action>>{expected});
}

TEST_CASE("The checker finds what is missing or double", "[schedule]") {
  PipelineSchedule s = gpipe_schedule(3, 2);
  auto& middle = s.actions[1];
  SECTION("a forward is missing") {
    std::erase(middle, Action{Kind::forward, 1, 1});
    CHECK_THAT(problems_of(s), Contains("forward stage 1 micro-batch 1: 0 times, expected 1"));
  }
  SECTION("a backward runs twice") {
    middle.push_back({Kind::backward, 1, 0});
    CHECK_THAT(problems_of(s), Contains("backward stage 1 micro-batch 0: 2 times, expected 1"));
  }
  SECTION("a send is missing") {
    std::erase(middle, Action{Kind::send_gradient, 1, 0, 0});
    CHECK_THAT(problems_of(s), Contains("send_gradient stage 1 micro-batch 0: 0 times"));
  }
  SECTION("an input_backward without its weight_backward") {
    middle[position(middle, Kind::backward, 0)].kind = Kind::input_backward;
    CHECK_THAT(problems_of(s), Contains("weight_backward stage 1 micro-batch 0: 0 times"));
  }
  SECTION("two reductions") {
    middle.push_back({Kind::reduce, 1});
    CHECK_THAT(problems_of(s), Contains("stage 1 is reduced more than once"));
  }
}

TEST_CASE("The checker finds actions in the wrong place", "[schedule]") {
  PipelineSchedule s = gpipe_schedule(3, 2);
  SECTION("another rank's stage") {
    s.actions[0].push_back({Kind::forward, 2, 0});
    CHECK_THAT(problems_of(s), Contains("rank 0: forward stage 2 micro-batch 0: not a stage"));
  }
  SECTION("no such micro-batch") {
    s.actions[0].push_back({Kind::forward, 0, 2});
    CHECK_THAT(problems_of(s), Contains("no such micro-batch"));
  }
  SECTION("a send to the wrong rank") {
    auto& first = s.actions[0];
    first[position(first, Kind::send_activation, 0)].peer = 2;
    CHECK_THAT(problems_of(s), Contains("send_activation stage 0 micro-batch 0 to rank 2: the "
                                        "other stage is on rank 1"));
  }
  SECTION("a send off the end") {
    s.actions[2].push_back({Kind::send_activation, 2, 0, 3});
    CHECK_THAT(problems_of(s), Contains("there is no stage at the other end"));
  }
}

TEST_CASE("The checker finds wrong order", "[schedule]") {
  PipelineSchedule s = gpipe_schedule(2, 2);
  SECTION("a send before its forward") {
    auto& a = s.actions[0];
    std::swap(a[position(a, Kind::forward, 0)], a[position(a, Kind::send_activation, 0)]);
    CHECK_THAT(problems_of(s), Contains("send_activation stage 0 micro-batch 0 to rank 1 comes "
                                        "before its forward"));
  }
  SECTION("a backward before its gradient") {
    auto& a = s.actions[0];
    std::swap(a[position(a, Kind::recv_gradient, 1)], a[position(a, Kind::backward, 1)]);
    CHECK_THAT(problems_of(s), Contains("comes before its output's gradient"));
  }
  SECTION("a forward before its input") {
    auto& a = s.actions[1];
    std::swap(a[position(a, Kind::recv_activation, 1)], a[position(a, Kind::forward, 1)]);
    CHECK_THAT(problems_of(s), Contains("forward stage 1 micro-batch 1 comes before its input"));
  }
  SECTION("a backward before its forward") {
    auto& a = s.actions[1];
    std::swap(a[position(a, Kind::backward, 0)], a[position(a, Kind::forward, 0)]);
    CHECK_THAT(problems_of(s), Contains("comes before its forward"));
  }
  SECTION("the reduction before the last backward") {
    auto& a = s.actions[1];
    std::swap(a.back(), a[position(a, Kind::backward, 1)]);
    CHECK_THAT(problems_of(s), Contains("reduce stage 1 comes before all backwards"));
  }
}

TEST_CASE("The checker finds a deadlock that buffered sends would hide", "[schedule]") {
  // Both ranks send first: rank 0 the activation of micro-batch 1, rank 1 the gradient of 0.
  PipelineSchedule s = gpipe_schedule(2, 2);
  s.actions[0] = {{Kind::forward, 0, 0},          {Kind::send_activation, 0, 0, 1},
                  {Kind::forward, 0, 1},          {Kind::send_activation, 0, 1, 1},
                  {Kind::recv_gradient, 0, 0, 1}, {Kind::backward, 0, 0},
                  {Kind::recv_gradient, 0, 1, 1}, {Kind::backward, 0, 1}};
  s.actions[1] = {{Kind::recv_activation, 1, 0, 0}, {Kind::forward, 1, 0},
                  {Kind::backward, 1, 0},           {Kind::send_gradient, 1, 0, 0},
                  {Kind::recv_activation, 1, 1, 0}, {Kind::forward, 1, 1},
                  {Kind::backward, 1, 1},           {Kind::send_gradient, 1, 1, 0}};
  const std::string problems = problems_of(s);
  CHECK_THAT(problems,
             Contains("deadlock: rank 0: waits in send_activation stage 0 micro-batch 1"));
  CHECK_THAT(problems, Contains("deadlock: rank 1: waits in send_gradient stage 1 micro-batch 0"));
  CHECK(check_schedule(s).peak_activations.empty());

  // The same with rank 0 taking the gradient first is fine, and stores less on rank 1.
  std::rotate(s.actions[0].begin() + 2, s.actions[0].begin() + 4, s.actions[0].begin() + 6);
  const ScheduleReport repaired = check_schedule(s);
  CHECK(repaired.problems.empty());
  CHECK(repaired.peak_activations == std::vector<int>{1, 1});
}

TEST_CASE("The checker finds two ranks that expect messages in different order", "[schedule]") {
  PipelineSchedule s = gpipe_schedule(2, 2);
  auto& a = s.actions[1];
  for (Kind k : {Kind::recv_activation, Kind::forward}) {
    std::swap(a[position(a, k, 0)], a[position(a, k, 1)]);
  }
  CHECK_THAT(problems_of(s), Contains("deadlock: rank 0: waits in send_activation stage 0 "
                                      "micro-batch 0 to rank 1"));
}

TEST_CASE("The checker takes split backwards", "[schedule]") {
  PipelineSchedule s{1,
                     {{{Kind::forward, 0, 0},
                       {Kind::input_backward, 0, 0},
                       {Kind::weight_backward, 0, 0},
                       {Kind::reduce, 0}}}};
  const ScheduleReport report = check_schedule(s);
  CHECK(report.problems.empty());
  CHECK(report.peak_activations == std::vector<int>{1});
  std::swap(s.actions[0][2], s.actions[0][3]);
  CHECK_THAT(problems_of(s), Contains("reduce stage 0 comes before all backwards"));
}

}  // namespace
}  // namespace rondo
