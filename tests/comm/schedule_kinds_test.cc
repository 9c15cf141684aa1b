// Every schedule is valid for every size and stores what it promises. (Its bubble: tests/plan.)
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "comm/schedule.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/comm/gpipe.h"
#include "tests/comm/schedule_check.h"

namespace rondo {
namespace {

using Kind = ActionKind;

constexpr ScheduleKind all_kinds[] = {ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble};

// What a rank sends another, or receives from it, in the order of its list: which way (up is even),
// the stage that reads, and the micro-batch.
std::vector<std::array<int, 3>> messages(const PipelineSchedule& s, int rank, int peer, bool sent) {
  std::vector<std::array<int, 3>> all;
  for (const Action& a : s.actions[static_cast<size_t>(rank)]) {
    if (a.peer != peer) continue;
    const bool up = a.kind == Kind::send_activation || a.kind == Kind::recv_activation;
    const bool sends = a.kind == Kind::send_activation || a.kind == Kind::send_gradient;
    if (sends != sent) continue;
    all.push_back({up ? 0 : 1, sends ? a.stage + (up ? 1 : -1) : a.stage, a.micro_batch});
  }
  return all;
}

// Connections whose messages have no tags rely on it.
void check_order_of_messages(const PipelineSchedule& s) {
  for (int from = 0; from < s.stages(); ++from) {
    for (int to = 0; to < s.stages(); ++to) {
      if (messages(s, from, to, true) == messages(s, to, from, false)) continue;
      FAIL("rank " << to << " receives from rank " << from << " in another order than it sends");
    }
  }
}

void check_size(ScheduleKind kind, int p, int m) {
  INFO(name_of(kind) << ": " << p << " stages, " << m << " micro-batches");
  const ScheduleReport report = check_schedule(make_schedule(kind, p, m));
  std::string problems;
  for (const std::string& text : report.problems) problems += text + "\n";
  REQUIRE(problems == "");
  for (int r = 0; r < p; ++r) {
    const int promised = stored_activations(kind, r, p, m);
    if (report.peak_activations[static_cast<size_t>(r)] != promised) {
      FAIL("rank " << r << " stores " << report.peak_activations[static_cast<size_t>(r)]
                   << ", promised " << promised);
    }
  }
}

TEST_CASE("Schedules are complete, ordered, free of deadlock and as small as promised",
          "[slow][schedule]") {
  for (ScheduleKind kind : all_kinds) {
    for (int p = 1; p <= 16; ++p) {
      for (int m = 1; m <= 64; ++m) check_size(kind, p, m);
    }
  }
}

TEST_CASE("Messages between two ranks are in the same order on both", "[schedule]") {
  for (ScheduleKind kind : all_kinds) {
    for (int p = 2; p <= 8; ++p) {
      for (int m : {p, 2 * p, 5 * p}) {
        INFO(name_of(kind) << ": " << p << " stages, " << m << " micro-batches");
        check_order_of_messages(make_schedule(kind, p, m));
      }
    }
  }
  // It is noticed.
  PipelineSchedule s = gpipe_schedule(2, 2);
  const auto before = messages(s, 0, 1, true);
  std::swap(s.actions[0][1], s.actions[0][3]);
  CHECK(messages(s, 0, 1, true) != before);
}

TEST_CASE("The lists of a 1F1B rank in the middle", "[schedule]") {
  const std::vector<Action> middle = {{Kind::recv_activation, 1, 0, 0},
                                      {Kind::forward, 1, 0},
                                      {Kind::recv_activation, 1, 1, 0},
                                      {Kind::send_activation, 1, 0, 2},
                                      {Kind::forward, 1, 1},
                                      {Kind::send_activation, 1, 1, 2},
                                      {Kind::recv_gradient, 1, 0, 2},
                                      {Kind::backward, 1, 0},
                                      {Kind::send_gradient, 1, 0, 0},
                                      {Kind::recv_gradient, 1, 1, 2},
                                      {Kind::backward, 1, 1},
                                      {Kind::send_gradient, 1, 1, 0},
                                      {Kind::reduce, 1}};
  CHECK(make_schedule(ScheduleKind::one_f_one_b, 3, 2).actions[1] == middle);
}

TEST_CASE("Zero bubble puts a rank's weight gradients so many micro-batches later", "[schedule]") {
  const PipelineSchedule s = make_schedule(ScheduleKind::zero_bubble, 3, 6);
  for (int r = 0; r < 3; ++r) {
    int pending = 0, most = 0;
    for (const Action& a : s.actions[static_cast<size_t>(r)]) {
      pending += a.kind == Kind::input_backward ? 1 : a.kind == Kind::weight_backward ? -1 : 0;
      most = std::max(most, pending);
    }
    CHECK(most == r + 1);
  }
}

TEST_CASE("A schedule's name that is none is told", "[schedule]") {
  CHECK(schedule_kind("zero_bubble") == ScheduleKind::zero_bubble);
  CHECK_THROWS_WITH(schedule_kind("1b1f"), "'1b1f' is no pipeline schedule: 1f1b, zero_bubble");
}

}  // namespace
}  // namespace rondo
