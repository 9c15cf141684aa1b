#include "tests/comm/transport_contract.h"

#include <atomic>
#include <cmath>
#include <numeric>
#include <thread>

#include "comm/group/process_group.h"
#include "tests/catch.h"
#include "tests/comm/sums.h"
#include "tests/comm/time_limits.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

constexpr auto patience = test_patience;
// Small messages and large ones may go different ways.
constexpr size_t sizes[] = {3, 100'000};

std::vector<int> numbers(size_t n, int first) {
  std::vector<int> v(n);
  std::iota(v.begin(), v.end(), first);
  return v;
}

bool eventually_done(Work& work) {
  for (const Deadline end = within(patience); CommClock::now() < end;) {
    if (work.poll()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

void check_delivery(const MakeWorld& make) {
  for (const size_t n : sizes) {
    const auto world = make(2);
    Transport &a = world->transport(0), &b = world->transport(1);
    const std::vector<int> sent = numbers(n, 7);
    std::vector<int> got(n);
    {  // send first
      Work send = a.send(1, 5, bytes_of(sent), within(patience));
      std::this_thread::sleep_for(5ms);
      CHECK(!send.poll());  // not done before its recv
      Work recv = b.recv(0, 5, bytes_of(got), within(patience));
      recv.wait();
      send.wait();
      CHECK(recv.bytes() == n * sizeof(int));
      CHECK(send.bytes() == n * sizeof(int));
      CHECK(recv.end() >= recv.start());
      CHECK(!recv.error());
      CHECK(got == sent);
    }
    got.assign(n, 0);
    Work recv = b.recv(0, 5, bytes_of(got), within(patience));
    CHECK(!recv.poll());
    a.send(1, 5, bytes_of(sent), within(patience)).wait();
    recv.wait();
    CHECK(got == sent);
    // Empty messages are messages.
    Work none = b.recv(0, 1, {}, within(patience));
    std::this_thread::sleep_for(2ms);
    CHECK(!none.poll());
    a.send(1, 1, {}, within(patience)).wait();
    none.wait();
    CHECK(none.bytes() == 0);
  }
}

// Two messages on each of tags 7, 8 and 9, received in the opposite order of tags; and the same tag
// from another rank.
void check_tags(const MakeWorld& make) {
  const auto world = make(3);
  for (const size_t n : sizes) {
    std::vector<std::vector<int>> sent, got(6, std::vector<int>(n));
    std::vector<int> other = numbers(n, -5), from_other(n);
    for (int i = 0; i < 6; ++i) sent.push_back(numbers(n, 100 * i));
    std::vector<Work> works;
    for (size_t i = 0; i < 6; ++i) {
      works.push_back(world->transport(0).send(2, 7 + i / 2, bytes_of(sent[i]), within(patience)));
    }
    works.push_back(world->transport(1).send(2, 8, bytes_of(other), within(patience)));
    for (size_t tag : {9u, 8u, 7u}) {
      for (size_t i = 2 * (tag - 7); i < 2 * (tag - 7) + 2; ++i) {
        works.push_back(world->transport(2).recv(0, tag, bytes_of(got[i]), within(patience)));
      }
    }
    works.push_back(world->transport(2).recv(1, 8, bytes_of(from_other), within(patience)));
    for (Work& w : works) w.wait();
    CHECK(got == sent);
    CHECK(from_other == other);
  }
}

// A recv that ends early no longer takes messages, and its memory is left alone.
void check_withdrawal(const MakeWorld& make) {
  const auto world = make(2);
  Tag tag = 10;
  for (const size_t n : sizes) {
    for (const bool by_deadline : {true, false}) {
      ++tag;
      std::vector<int> gone(n, -1), got(n);
      const std::vector<int> sent = numbers(n, 1);
      const auto begin = CommClock::now();
      if (by_deadline) {
        const Deadline deadline = within(20ms);
        Work work = world->transport(0).recv(1, tag, bytes_of(gone), deadline);
        const auto issued = CommClock::now();
        while (!work.poll()) std::this_thread::sleep_for(1ms);
        REQUIRE(work.error());
        CHECK(CommClock::now() >= deadline);
        CHECK(work.error()->kind() == CommErrorKind::timeout);
        CHECK(work.error()->peer() == 1);
        CHECK_THAT(work.error()->what(),
                   Contains(str("rank 0: recv from rank 1 (tag ", tag, ", ", n * sizeof(int),
                                " bytes): timed out after ")));
        CHECK(timed_out_since(work.error()->what(), begin, deadline - issued));
      } else {
        Work dropped = world->transport(0).recv(1, tag, bytes_of(gone), within(patience));
      }
      Work send = world->transport(1).send(0, tag, bytes_of(sent), within(patience));
      std::this_thread::sleep_for(5ms);
      CHECK(!send.poll());
      CHECK(gone == std::vector<int>(n, -1));
      world->transport(0).recv(1, tag, bytes_of(got), within(patience)).wait();
      send.wait();
      CHECK(got == sent);

      // And a withdrawn send is not received.
      std::vector<int> first = numbers(n, 50), second = numbers(n, 60);
      {
        Work early = world->transport(1).send(0, tag, bytes_of(first), within(patience));
        CHECK_THROWS_AS(early.wait(within(5ms)), CommError);
      }
      first.assign(n, -1);
      Work recv = world->transport(0).recv(1, tag, bytes_of(got), within(patience));
      world->transport(1).send(0, tag, bytes_of(second), within(patience)).wait();
      recv.wait();
      CHECK(got == second);
    }
  }
}

void check_mismatch(const MakeWorld& make) {
  const auto world = make(2);
  for (const bool recv_first : {false, true}) {
    for (const size_t n : sizes) {
      const std::vector<int> sent(n);
      std::vector<int> got(n + 1, -1);
      Work send, recv;
      const auto post_send = [&] {
        send = world->transport(0).send(1, 0, bytes_of(sent), within(patience));
      };
      if (!recv_first) post_send();
      recv = world->transport(1).recv(0, 0, bytes_of(got), within(patience));
      if (recv_first) post_send();
      for (Work* w : {&send, &recv}) {
        const CommError e = comm_error_of(*w);
        CHECK(e.kind() == CommErrorKind::mismatch);
        CHECK_THAT(e.what(),
                   Contains(str("rank 0 sends ", 4 * n, " bytes, rank 1 expects ", 4 * n + 4)));
      }
      CHECK(got == std::vector<int>(n + 1, -1));
    }
  }
}

void check_abort(const MakeWorld& make) {
  const auto world = make(3);
  std::vector<int> a(100'000), b(1);
  Work pending = world->transport(0).recv(1, 0, bytes_of(a), within(patience));
  Work other = world->transport(1).recv(0, 1, bytes_of(b), within(patience));
  world->transport(2).abort("the disk is full");
  REQUIRE(eventually_done(pending));
  REQUIRE(eventually_done(other));
  world->transport(1).abort("a later reason");
  Work later = world->transport(1).recv(0, 0, bytes_of(b), within(patience));
  for (Work* w : {&pending, &other, &later}) {
    const CommError e = comm_error_of(*w);
    CHECK(e.kind() == CommErrorKind::aborted);
    CHECK(e.peer() == 2);
    CHECK_THAT(e.what(), Contains("rank 2 aborted: the disk is full"));
  }
}

void check_loss(const MakeWorld& make) {
  const auto world = make(3);
  std::vector<int> a(1), b(1), large(100'000);
  const std::vector<int> sent = {5};
  Work pending = world->transport(0).recv(1, 0, bytes_of(a), within(patience));
  Work big = world->transport(2).send(1, 7, bytes_of(large), within(patience));
  Work unaffected = world->transport(0).recv(2, 0, bytes_of(b), within(patience));
  world->lose(1);
  REQUIRE(eventually_done(pending));
  REQUIRE(eventually_done(big));
  Work later = world->transport(2).send(1, 0, bytes_of(sent), within(patience));
  for (Work* w : {&pending, &big, &later}) {
    const CommError e = comm_error_of(*w);
    CHECK(e.kind() == CommErrorKind::peer_lost);
    CHECK(e.peer() == 1);
    CHECK_THAT(e.what(), Contains("rank 1 is lost: "));
  }
  world->transport(2).send(0, 0, bytes_of(sent), within(patience)).wait();
  unaffected.wait();
  CHECK(b == sent);
}

void check_misuse(const MakeWorld& make) {
  const auto world = make(2);
  CHECK_THROWS_WITH(world->transport(0).send(2, 0, {}, within(1s)), Contains("rank 2"));
  CHECK_THROWS_WITH(world->transport(1).recv(1, 0, {}, within(1s)), Contains("itself"));
}

// Many messages between all pairs, of sizes on both sides of what counts as small.
void check_crowd(const MakeWorld& make) {
  constexpr int ranks = 4, messages = 100;
  const auto world = make(ranks);
  std::atomic<int> wrong{0};
  const auto run = [&](int rank) {
    std::vector<Work> works;
    std::vector<std::vector<int>> out(ranks * messages), in(ranks * messages);
    for (int i = 0; i < messages; ++i) {
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        const auto at = static_cast<size_t>(peer * messages + i);
        const auto size = static_cast<size_t>(i % 5 * (i % 7) * 40);
        out[at].assign(size, rank * 1000 + i);
        in[at].resize(size);
        const Tag tag = static_cast<Tag>(i % 3);
        Transport& t = world->transport(rank);
        works.push_back(t.recv(peer, tag, bytes_of(in[at]), within(patience)));
        works.push_back(t.send(peer, tag, bytes_of(out[at]), within(patience)));
      }
    }
    for (Work& w : works) {
      try {
        w.wait();
      } catch (const Error&) {
        ++wrong;
      }
    }
    for (int peer = 0; peer < ranks; ++peer) {
      for (int i = 0; i < messages && peer != rank; ++i) {
        for (int v : in[static_cast<size_t>(peer * messages + i)]) wrong += v != peer * 1000 + i;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

// Small sums by every number of ranks, of values whose sum depends on the order: in the order that
// collectives.h tells, and the same on all ranks.
void check_small_sums(const MakeWorld& make) {
  constexpr size_t n = 11;
  const auto value = [](int rank, size_t i) {
    const double x = std::sin(12.9898 * static_cast<double>(i) + 78.233 * rank) * 43758.5453;
    return std::ldexp(x, 9 * (rank % 3));
  };
  int order_matters = 0;
  for (int ranks = 2; ranks <= 9; ++ranks) {
    const auto world = make(ranks);
    std::vector<std::vector<double>> sums(static_cast<size_t>(ranks));
    const auto run = [&](int rank) {
      const auto group = make_ring_group(world->transport(rank));
      std::vector<double>& own = sums[static_cast<size_t>(rank)];
      for (int again = 0; again < 3; ++again) {
        own.clear();
        for (size_t i = 0; i < n; ++i) own.push_back(value(rank, i));
        group->all_reduce(view(own), Reduction::sum, within(patience)).wait();
      }
      group->barrier(within(patience)).wait();
    };
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
    for (std::thread& t : threads) t.join();
    for (size_t i = 0; i < n; ++i) {
      std::vector<double> of_rank;
      double in_sequence = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        of_rank.push_back(value(rank, i));
        in_sequence += of_rank.back();
      }
      const double expected = doubled_sum(of_rank);
      order_matters += in_sequence != expected;
      for (const auto& own : sums) CHECK(own[i] == expected);
    }
  }
  CHECK(order_matters > 0);
}

}  // namespace

CommError comm_error_of(Work& work) {
  try {
    work.wait();
  } catch (const CommError& e) {
    return e;
  }
  FAIL("expected a CommError");
  throw;
}

void check_transport_contract(const MakeWorld& make) {
  SECTION("a message arrives whole, whichever side comes first") { check_delivery(make); }
  SECTION("tags are independent, equal tags keep their order") { check_tags(make); }
  SECTION("an operation that is withdrawn takes and gives nothing") { check_withdrawal(make); }
  SECTION("different sizes are a mismatch on both sides") { check_mismatch(make); }
  SECTION("abort wakes pending operations and refuses later ones") { check_abort(make); }
  SECTION("operations with a lost rank fail, others go on") { check_loss(make); }
  SECTION("misuse is an Error at the call") { check_misuse(make); }
  SECTION("many messages between all pairs arrive in order") { check_crowd(make); }
  SECTION("small sums have one order, for any number of ranks") { check_small_sums(make); }
  SECTION("a Work outlives its world") {
    std::vector<int> a(1), b(100'000);
    auto world = make(2);
    Work small = world->transport(0).recv(1, 0, bytes_of(a), within(patience));
    Work large = world->transport(1).send(0, 1, bytes_of(b), within(patience));
    world.reset();
    CHECK(small.poll());
    CHECK(large.poll());
    comm_error_of(small);
    comm_error_of(large);
  }
}

}  // namespace rondo
