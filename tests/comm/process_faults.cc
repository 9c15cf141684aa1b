#include "tests/comm/process_faults.h"

#include <csignal>
#include <iostream>

#include "comm/group/process_group.h"
#include "tests/comm/processes.h"
#include "tests/comm/time_limits.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(CommClock::now().time_since_epoch())
      .count();
}

// All-reduces without end, of the first `reducing` ranks; says "running" after the third, and what
// ended it, and when. `stops`: this rank stops itself once it has issued the sixth, so that the
// limit begins to count when it does.
void reduce_forever(const Meeting& meeting, int rank, int ranks, int reducing,
                    CommClock::duration timeout, const Stack& stack, const Processes::Say& say,
                    bool stops = false) {
  constexpr int sixth = 5;
  const auto transport = join(meeting, rank, ranks, stack);
  GroupOptions o;
  for (int r = 0; r < reducing; ++r) o.members.push_back(r);
  const auto group = make_ring_group(*transport, o);
  std::vector<float> data(1 << 20, 1.0f);
  try {
    for (int i = 0;; ++i) {
      const auto limit = within(i < sixth ? CommClock::duration(30s) : timeout);
      Work work = group->all_reduce(
          TensorView(data.data(), DType::f32, {static_cast<int64_t>(data.size())}), Reduction::sum,
          limit);
      if (stops && i == sixth) {
        say(str("at ", now_us()));
        raise(SIGSTOP);
      }
      work.wait();
      if (i == 2) say("running");
    }
  } catch (const CommError& e) {
    say(str("at ", now_us()));
    throw;
  }
}

int64_t us_of(const std::string& at_line) { return std::stoll(at_line.substr(3)); }

void check_killed(const Stack& stack) {
  const Meeting meeting;
  constexpr int ranks = 3;
  Processes p(ranks, [&](int rank, const auto& say) {
    reduce_forever(meeting, rank, ranks, ranks, 60s, stack, say);
  });
  for (int r = 0; r < ranks; ++r) p.line_starting(r, "running");
  const HeldUp held_up;
  const int64_t begin = now_us();
  p.signal(1, SIGKILL);
  for (const int r : {0, 2}) {
    const std::chrono::microseconds after(us_of(p.line_starting(r, "at ")) - begin);
    std::cout << "rank " << r << " heard of a killed rank after " << after.count() << " us\n";
    CHECK(after - held_up.so_far() < 2s);
    const std::string error = p.line_starting(r, "threw");
    CHECK_THAT(error, Contains("all_reduce of 1048576 f32"));
    CHECK_THAT(error, Contains("rank 1 is lost: ") || Contains("rank 1 aborted"));
  }
}

// Two ranks reduce, so that the one that gives up waits for the one that is stopped; a
// third one hears of it. (Of three that reduce, it may as well wait for the third, which waits.)
void check_stopped(const Stack& stack) {
  const Meeting meeting;
  constexpr int ranks = 3, reducing = 2;
  Processes p(ranks, [&](int rank, const auto& say) {
    if (rank < reducing) {
      return reduce_forever(meeting, rank, ranks, reducing, 1s, stack, say, rank == 1);
    }
    const auto transport = join(meeting, rank, ranks, stack);
    std::vector<int> memory(1);
    Work work = transport->recv(0, 0, bytes_of(memory), within(30s));
    while (!work.poll()) std::this_thread::sleep_for(1ms);
    say(str("at ", now_us()));
    work.wait();
  });
  const HeldUp held_up;
  const int64_t begin = us_of(p.line_starting(1, "at "));
  for (const int r : {0, 2}) {
    const std::chrono::microseconds after(us_of(p.line_starting(r, "at ")) - begin);
    std::cout << "rank " << r << " gave up on a stopped rank after " << after.count() << " us\n";
    CHECK(after - held_up.so_far() < 5s);
    const std::string error = p.line_starting(r, "threw");
    CHECK_THAT(error,
               Contains("rank 0: recv from rank 1 (") || Contains("rank 0: send to rank 1 ("));
    CHECK_THAT(error, Contains("timed out after ") &&
                          Contains(r == 0 ? "all_reduce of 1048576 f32" : "rank 0 aborted: "));
  }
  p.signal(1, SIGCONT);
  CHECK_THAT(p.line_starting(1, "threw"), Contains("all_reduce of 1048576 f32"));
}

void check_different_collectives(const Stack& stack) {
  const Meeting meeting;
  constexpr int ranks = 3;
  Processes p(ranks, [&](int rank, const auto&) {
    const auto transport = join(meeting, rank, ranks, stack);
    GroupOptions o;
    o.timeout = 2min;  // longer than line_starting() waits: nobody is told by a time-out
    const auto group = make_ring_group(*transport, o);
    std::vector<float> data(1 << 20);
    const auto n = static_cast<int64_t>(data.size());
    group->all_reduce(TensorView(data.data(), DType::f32, {n}), Reduction::sum).wait();
    // The same bytes, so that nothing but the comparison can tell.
    const TensorView other(data.data(), rank == 1 ? DType::f64 : DType::f32,
                           {rank == 1 ? n / 2 : n});
    group->all_reduce(other, Reduction::sum).wait();
  });
  for (int r = 0; r < ranks; ++r) {  // either pair may notice first
    CHECK_THAT(p.line_starting(r, "threw"), Contains("ranks disagree on collective 1: rank ") &&
                                                Contains(" calls all_reduce of 1048576 f32") &&
                                                Contains("rank 1 calls all_reduce of 524288 f64"));
  }
}

void check_thrown(const Stack& stack) {
  const Meeting meeting;
  Processes p(3, [&](int rank, const auto& say) {
    const auto transport = join(meeting, rank, 3, stack);
    say("joined");
    std::vector<int> memory(1);
    if (rank == 0) {
      // Where ranks connect when they need each other: whoever comes after rank 0 has gone finds
      // nobody to ask for a reason.
      for (const int r : {1, 2}) transport->recv(r, 0, bytes_of(memory), within(30s)).wait();
      transport->abort("utterance 12 is damaged");
      return;
    }
    transport->send(0, 0, bytes_of(memory), within(30s)).wait();
    transport->recv(0, 0, bytes_of(memory), within(30s)).wait();
  });
  for (const int r : {1, 2}) {
    CHECK_THAT(
        p.line_starting(r, "threw"),
        Contains("threw aborted: rank ") && Contains("rank 0 aborted: utterance 12 is damaged"));
  }
}

void check_leaving(const Stack& stack) {
  const Meeting meeting;
  Processes p(2, [&](int rank, const auto&) {
    const auto transport = join(meeting, rank, 2, stack);
    std::vector<int> large(4'000'000, rank == 0 ? 7 : 0);
    if (rank == 0) {
      transport->send(1, 3, bytes_of(large), within(30s)).wait();
      return;
    }
    std::this_thread::sleep_for(50ms);
    transport->recv(0, 3, bytes_of(large), within(30s)).wait();
    for (const int v : large) {
      if (v != 7) throw Error("damaged");
    }
    Work more = transport->recv(0, 3, bytes_of(large), within(30s));
    const CommError e = comm_error_of(more);
    if (std::string(e.what()).find("rank 0 is lost: it has finished") == std::string::npos) throw e;
  });
  for (const int r : {0, 1}) CHECK(p.line(r) == "done");
}

}  // namespace

void check_process_faults(const Stack& stack) {
  SECTION("a rank killed in the middle of an all-reduce is named by all others") {
    check_killed(stack);
  }
  SECTION("a rank stopped in the middle of an all-reduce is a timeout") { check_stopped(stack); }
  SECTION("different collectives are told which") { check_different_collectives(stack); }
  SECTION("a rank that throws tells the others why") { check_thrown(stack); }
  SECTION("what was sent before a rank leaves arrives") { check_leaving(stack); }
}

}  // namespace rondo
