#include <atomic>
#include <thread>
#include <vector>

#include "comm/in_process/in_process.h"
#include "comm/in_process/run_ranks.h"
#include "tests/catch.h"
#include "tests/comm/time_limits.h"
#include "tests/comm/transport_contract.h"
#include "tests/few_threads.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

constexpr auto patience = test_patience;

CommError error_of(const std::exception_ptr& error) {
  REQUIRE(error != nullptr);
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    return e;
  }
}

class InProcess final : public TestWorld {
 public:
  explicit InProcess(int ranks) : world_(ranks) {}
  Transport& transport(int rank) override { return world_.transport(rank); }
  void lose(int rank) override { world_.lose(rank, "killed"); }

 private:
  InProcessWorld world_;
};

TEST_CASE("Ranks as threads keep the transport's promises", "[transport]") {
  check_transport_contract([](int ranks) { return std::make_unique<InProcess>(ranks); });
}

#ifndef __SANITIZE_THREAD__  // which does not fork
TEST_CASE("Ranks as threads that cannot be started have failed, which ends the others",
          "[transport]") {
  const std::string said = test::with_few_threads([] {
    run_ranks(9, [](int rank, Transport& transport) {
      transport.recv((rank + 1) % 9, message_tag(0, 1), {}, within(10min)).wait();
    });
  });
  CHECK_THAT(said, Catch::Matchers::Matches(
                       "InputError: the thread of rank [1-8] of 9 cannot be started: .*"));
}
#endif

TEST_CASE("A passed deadline is a timeout that names the operation", "[transport]") {
  InProcessWorld world(2);
  std::vector<int> got(2, -1);
  const auto begin = CommClock::now();
  Work work = world.transport(0).recv(1, 3, bytes_of(got), within(patience));
  auto issued = CommClock::now();
  const Deadline deadline = issued + 20ms;
  SECTION("given to wait") { CHECK_THROWS_AS(work.wait(deadline), CommError); }
  SECTION("the operation's own, seen by poll") {
    work = world.transport(0).recv(1, 3, bytes_of(got), deadline);
    issued = CommClock::now();
    while (!work.poll()) std::this_thread::sleep_for(1ms);
  }
  CHECK(CommClock::now() >= deadline);
  REQUIRE(work.error());
  CHECK(work.error()->kind() == CommErrorKind::timeout);
  CHECK(work.error()->peer() == 1);
  CHECK_THAT(work.error()->what(),
             Contains("rank 0: recv from rank 1 (tag 3, 8 bytes): timed out after "));
  CHECK(timed_out_since(work.error()->what(), begin, deadline - issued));
  // The withdrawn recv no longer takes messages.
  const std::vector<int> sent = {1, 2};
  Work send = world.transport(1).send(0, 3, bytes_of(sent), within(patience));
  CHECK(!send.poll());
  CHECK(got == std::vector<int>{-1, -1});
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
    transport.recv((rank + 1) % 4, 0, bytes_of(memory), within(60s)).wait();
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
                                transport.recv(1, 0, bytes_of(memory), within(60s)).wait();
                              }),
                    "the cause");
}

TEST_CASE("run_ranks: waiting for a rank that has finished does not hang", "[run_ranks]") {
  const RankOutcome outcome = run_ranks_and_collect(2, [](int rank, Transport& transport) {
    std::vector<int> memory(1);
    if (rank == 0) transport.recv(1, 0, bytes_of(memory), within(60s)).wait();
  });
  const CommError e = error_of(outcome.errors[0]);
  CHECK(e.kind() == CommErrorKind::peer_lost);
  CHECK_THAT(e.what(), Contains("rank 1 is lost: it has finished"));
  CHECK(outcome.errors[1] == nullptr);
}
}  // namespace
}  // namespace rondo
