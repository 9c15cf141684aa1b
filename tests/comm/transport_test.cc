#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/in_process.h"
#include "comm/run_ranks.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

constexpr auto patience = 10s;  // long enough for a loaded machine; nobody waits for it

std::span<const std::byte> bytes(const std::vector<int>& v) { return std::as_bytes(std::span(v)); }
std::span<std::byte> bytes(std::vector<int>& v) { return std::as_writable_bytes(std::span(v)); }

CommError error_of(Work& work) {
  try {
    work.wait();
  } catch (const CommError& e) {
    return e;
  }
  FAIL("expected a CommError");
  throw;
}

CommError error_of(const std::exception_ptr& error) {
  REQUIRE(error != nullptr);
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    return e;
  }
}

TEST_CASE("A message arrives whole, whichever side comes first", "[transport]") {
  InProcessWorld world(2);
  Transport &a = world.transport(0), &b = world.transport(1);
  const std::vector<int> sent = {1, 2, 3};
  std::vector<int> got(3);
  SECTION("send first") {
    Work send = a.send(1, 5, bytes(sent), within(patience));
    CHECK(!send.poll());  // not done before its recv
    Work recv = b.recv(0, 5, bytes(got), within(patience));
    CHECK(send.poll());
    send.wait();
    recv.wait();
    CHECK(recv.bytes() == 12);
    CHECK(send.bytes() == 12);
    CHECK(recv.end() >= recv.start());
    CHECK(!recv.error());
  }
  SECTION("recv first") {
    Work recv = b.recv(0, 5, bytes(got), within(patience));
    CHECK(!recv.poll());
    a.send(1, 5, bytes(sent), within(patience)).wait();
    recv.wait();
  }
  CHECK(got == sent);
}

TEST_CASE("An empty message is a message", "[transport]") {
  InProcessWorld world(2);
  Work recv = world.transport(1).recv(0, 1, {}, within(patience));
  CHECK(!recv.poll());
  world.transport(0).send(1, 1, {}, within(patience)).wait();
  recv.wait();
  CHECK(recv.bytes() == 0);
}

TEST_CASE("Tags are independent; equal tags keep their order", "[transport]") {
  InProcessWorld world(3);
  std::vector<std::vector<int>> sent, got(6, std::vector<int>(1));
  for (int i = 0; i < 6; ++i) sent.push_back({100 + i});
  std::vector<Work> works;
  // Two messages on each of tags 7, 8 and 9, received in the opposite order of tags.
  for (size_t i = 0; i < 6; ++i) {
    works.push_back(world.transport(0).send(2, 7 + i / 2, bytes(sent[i]), within(patience)));
  }
  for (size_t tag : {9u, 8u, 7u}) {
    for (size_t i = 2 * (tag - 7); i < 2 * (tag - 7) + 2; ++i) {
      works.push_back(world.transport(2).recv(0, tag, bytes(got[i]), within(patience)));
    }
  }
  for (Work& w : works) w.wait();
  CHECK(got == sent);
}

TEST_CASE("The same tag from different ranks does not mix", "[transport]") {
  InProcessWorld world(3);
  const std::vector<int> one = {1}, two = {2};
  std::vector<int> from_one(1), from_two(1);
  Work s2 = world.transport(2).send(0, 4, bytes(two), within(patience));
  Work s1 = world.transport(1).send(0, 4, bytes(one), within(patience));
  world.transport(0).recv(1, 4, bytes(from_one), within(patience)).wait();
  world.transport(0).recv(2, 4, bytes(from_two), within(patience)).wait();
  CHECK(from_one == one);
  CHECK(from_two == two);
}

TEST_CASE("A passed deadline is a timeout that names the operation", "[transport]") {
  InProcessWorld world(2);
  std::vector<int> got(2, -1);
  Work work = world.transport(0).recv(1, 3, bytes(got), within(patience));
  const auto begin = CommClock::now();
  SECTION("given to wait") {
    CHECK_THROWS_AS(work.wait(within(20ms)), CommError);
    CHECK(CommClock::now() - begin >= 20ms);
  }
  SECTION("the operation's own, seen by poll") {
    work = world.transport(0).recv(1, 3, bytes(got), within(20ms));
    while (!work.poll()) std::this_thread::sleep_for(1ms);
    CHECK(CommClock::now() - begin >= 20ms);
  }
  REQUIRE(work.error());
  CHECK(work.error()->kind() == CommErrorKind::timeout);
  CHECK(work.error()->peer() == 1);
  CHECK_THAT(work.error()->what(),
             Contains("rank 0: recv from rank 1 (tag 3, 8 bytes): timed out after 0.0"));
  // The withdrawn recv no longer takes messages.
  const std::vector<int> sent = {1, 2};
  Work send = world.transport(1).send(0, 3, bytes(sent), within(patience));
  CHECK(!send.poll());
  CHECK(got == std::vector<int>{-1, -1});
}

TEST_CASE("A dropped Work is withdrawn before its memory can go", "[transport]") {
  InProcessWorld world(2);
  {
    std::vector<int> gone(2);
    Work dropped = world.transport(0).recv(1, 3, bytes(gone), within(patience));
  }
  const std::vector<int> sent = {1, 2};
  std::vector<int> got(2);
  Work send = world.transport(1).send(0, 3, bytes(sent), within(patience));
  CHECK(!send.poll());
  world.transport(0).recv(1, 3, bytes(got), within(patience)).wait();
  CHECK(got == sent);
}

TEST_CASE("Different sizes are a mismatch on both sides", "[transport]") {
  InProcessWorld world(2);
  const std::vector<int> sent = {1, 2};
  std::vector<int> got(3, -1);
  Work send = world.transport(0).send(1, 0, bytes(sent), within(patience));
  Work recv = world.transport(1).recv(0, 0, bytes(got), within(patience));
  for (Work* w : {&send, &recv}) {
    const CommError e = error_of(*w);
    CHECK(e.kind() == CommErrorKind::mismatch);
    CHECK_THAT(e.what(), Contains("rank 0 sends 8 bytes, rank 1 expects 12"));
  }
  CHECK(got == std::vector<int>{-1, -1, -1});
}

TEST_CASE("Abort wakes pending operations and refuses later ones", "[transport]") {
  InProcessWorld world(3);
  std::vector<int> a(1), b(1);
  Work pending = world.transport(0).recv(1, 0, bytes(a), within(patience));
  world.transport(2).abort("the disk is full");
  world.transport(1).abort("a later reason");
  Work later = world.transport(1).recv(0, 0, bytes(b), within(patience));
  for (Work* w : {&pending, &later}) {
    const CommError e = error_of(*w);
    CHECK(e.kind() == CommErrorKind::aborted);
    CHECK(e.peer() == 2);
    CHECK_THAT(e.what(), Contains("rank 2 aborted: the disk is full"));
  }
}

TEST_CASE("Operations with a lost rank fail, others go on", "[transport]") {
  InProcessWorld world(3);
  std::vector<int> a(1), b(1);
  const std::vector<int> sent = {5};
  Work pending = world.transport(0).recv(1, 0, bytes(a), within(patience));
  Work unaffected = world.transport(0).recv(2, 0, bytes(b), within(patience));
  world.lose(1, "killed");
  Work later = world.transport(2).send(1, 0, bytes(sent), within(patience));
  for (Work* w : {&pending, &later}) {
    const CommError e = error_of(*w);
    CHECK(e.kind() == CommErrorKind::peer_lost);
    CHECK(e.peer() == 1);
    CHECK_THAT(e.what(), Contains("rank 1 is lost: killed"));
  }
  world.transport(2).send(0, 0, bytes(sent), within(patience)).wait();
  unaffected.wait();
  CHECK(b == sent);
}

TEST_CASE("A Work outlives its world", "[transport]") {
  std::vector<int> a(1);
  Work work;
  {
    InProcessWorld world(2);
    work = world.transport(0).recv(1, 0, bytes(a), within(patience));
  }
  CHECK(error_of(work).kind() == CommErrorKind::aborted);
}

TEST_CASE("Misuse is an Error at the call", "[transport]") {
  InProcessWorld world(2);
  CHECK_THROWS_WITH(world.transport(0).send(2, 0, {}, within(1s)), Contains("rank 2"));
  CHECK_THROWS_WITH(world.transport(1).recv(1, 0, {}, within(1s)), Contains("itself"));
  CHECK_THROWS_AS(Work().wait(), Error);
}

TEST_CASE("run_ranks: one rank throws while the others wait", "[run_ranks]") {
  const auto begin = CommClock::now();
  const RankOutcome outcome = run_ranks_and_collect(4, [](int rank, Transport& transport) {
    if (rank == 2) throw InputError("line 7 is not JSON");
    std::vector<int> memory(1);
    transport.recv((rank + 1) % 4, 0, bytes(memory), within(60s)).wait();
  });
  CHECK(CommClock::now() - begin < 30s);
  CHECK(outcome.first_failed == 2);
  CHECK_THROWS_AS(std::rethrow_exception(outcome.errors[2]), InputError);
  for (size_t r : {0u, 1u, 3u}) {
    const CommError e = error_of(outcome.errors[r]);
    CHECK(e.kind() == CommErrorKind::aborted);
    CHECK_THAT(e.what(), Contains("rank 2 aborted: line 7 is not JSON"));
  }
}

TEST_CASE("run_ranks rethrows the first failure, not its consequences", "[run_ranks]") {
  CHECK_THROWS_WITH(run_ranks(3,
                              [](int rank, Transport& transport) {
                                if (rank == 1) throw Error("the cause");
                                std::vector<int> memory(1);
                                transport.recv(1, 0, bytes(memory), within(60s)).wait();
                              }),
                    "the cause");
}

TEST_CASE("run_ranks: waiting for a rank that has finished does not hang", "[run_ranks]") {
  const RankOutcome outcome = run_ranks_and_collect(2, [](int rank, Transport& transport) {
    std::vector<int> memory(1);
    if (rank == 0) transport.recv(1, 0, bytes(memory), within(60s)).wait();
  });
  const CommError e = error_of(outcome.errors[0]);
  CHECK(e.kind() == CommErrorKind::peer_lost);
  CHECK_THAT(e.what(), Contains("rank 1 is lost: it has finished"));
  CHECK(outcome.errors[1] == nullptr);
}

TEST_CASE("Many messages between all pairs arrive in order", "[transport]") {
  constexpr int ranks = 4, messages = 200;
  std::atomic<int> wrong{0};
  run_ranks(ranks, [&](int rank, Transport& transport) {
    std::vector<Work> works;
    std::vector<std::vector<int>> out(ranks * messages), in(ranks * messages);
    for (int i = 0; i < messages; ++i) {
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        const auto at = static_cast<size_t>(peer * messages + i);
        out[at].assign(static_cast<size_t>(i % 5), rank * 1000 + i);
        in[at].resize(static_cast<size_t>(i % 5));
        const Tag tag = static_cast<Tag>(i % 3);
        works.push_back(transport.recv(peer, tag, bytes(in[at]), within(patience)));
        works.push_back(transport.send(peer, tag, bytes(out[at]), within(patience)));
      }
    }
    for (Work& w : works) w.wait();
    for (int peer = 0; peer < ranks; ++peer) {
      for (int i = 0; i < messages && peer != rank; ++i) {
        for (int v : in[static_cast<size_t>(peer * messages + i)]) wrong += v != peer * 1000 + i;
      }
    }
  });
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace rondo
