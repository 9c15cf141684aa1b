#include "tests/comm/decorators.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>

#include "comm/group/process_group.h"
#include "comm/in_process/in_process.h"
#include "comm/in_process/run_ranks.h"
#include "tests/catch.h"
#include "tests/comm/time_limits.h"
#include "tests/comm/transport_contract.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

constexpr auto patience = test_patience;

// Each rank's transport decorated.
class Decorated final : public TestWorld {
 public:
  using Decorate = std::function<std::unique_ptr<Transport>(Transport&)>;
  Decorated(int ranks, const Decorate& decorate) : world_(ranks) {
    for (int r = 0; r < ranks; ++r) ends_.push_back(decorate(world_.transport(r)));
  }
  Transport& transport(int rank) override { return *ends_[static_cast<size_t>(rank)]; }
  void lose(int rank) override { world_.lose(rank, "killed"); }

 private:
  InProcessWorld world_;
  std::vector<std::unique_ptr<Transport>> ends_;
};

TEST_CASE("Decorators keep the transport's promises", "[decorators]") {
  const int which = GENERATE(0, 1, 2, 3);
  const auto decorate = [which](Transport& inner) -> std::unique_ptr<Transport> {
    switch (which) {
      case 0:
        return std::make_unique<Recorder>(inner);
      case 1:
        return std::make_unique<FaultInjector>(inner, std::vector<Fault>{}, [] {});
      case 2:
        return make_throttled(inner, {});
      default:
        return make_throttled(inner, {.bytes_per_second = 2e9, .latency = 100us});
    }
  };
  check_transport_contract([&](int ranks) { return std::make_unique<Decorated>(ranks, decorate); });
}

TEST_CASE("The recorder counts what passes", "[decorators]") {
  InProcessWorld world(3);
  Recorder r(world.transport(0));
  const std::vector<int> five(5), two(2);
  std::vector<int> got5(5), got2(2);
  Work a = r.send(1, 1, bytes_of(five), within(patience));
  Work b = r.send(2, 1, bytes_of(two), within(patience));
  Work c = r.send(2, verification_tag(0, 3), bytes_of(two), within(patience));
  std::this_thread::sleep_for(2ms);  // of which both sends tell
  world.transport(1).recv(0, 1, bytes_of(got5), within(patience)).wait();
  a.wait();
  world.lose(2, "killed");
  CHECK_THROWS_AS(b.wait(), CommError);
  Work d = r.recv(1, 9, bytes_of(got2), within(patience));
  world.transport(1).send(0, 9, bytes_of(two), within(patience)).wait();
  d.wait();
  CHECK(r.sent().messages == 2);
  CHECK(r.sent().bytes == 28);
  CHECK(r.sent().largest == 20);
  CHECK(r.sent().failed == 1);
  CHECK(r.sent().seconds >= 4e-3);
  CHECK(r.sent_to(1).bytes == 20);
  CHECK(r.received().bytes == 8);
  CHECK(r.verification().messages == 1);
  CHECK_THAT(r.json(), Contains("\"rank\": 0, \"sent\": {\"messages\": 2, \"bytes\": 28, "
                                "\"largest\": 20, \"failed\": 1, \"seconds\": ") &&
                           Contains("\"peers\": [{\"rank\": 0, "));
}

TEST_CASE("A throttled link takes the time it is told to", "[decorators]") {
  InProcessWorld world(2);
  // 20 kB twice at 1 MB/s, and 5 ms on the way.
  const auto slow = make_throttled(world.transport(0), {.bytes_per_second = 1e6, .latency = 5ms});
  const std::vector<int> sent(5000, 3);
  std::vector<int> got(5000);
  CommClock::duration soonest = patience;
  // No message may be early, ever; that none is late shows when the machine has time for the test.
  for (int attempt = 0; attempt < 20 && soonest >= 45ms; ++attempt) {
    const auto begin = CommClock::now();
    Work first = slow->send(1, 0, bytes_of(sent), within(patience));
    Work second = slow->send(1, 0, bytes_of(sent), within(patience));
    world.transport(1).recv(0, 0, bytes_of(got), within(patience)).wait();
    const auto half = CommClock::now() - begin;
    world.transport(1).recv(0, 0, bytes_of(got), within(patience)).wait();
    CHECK(half >= 25ms);
    CHECK(CommClock::now() - begin >= 45ms);
    CHECK(got == sent);
    first.wait();
    second.wait();
    soonest = std::min<CommClock::duration>(soonest, half);
  }
  CHECK(soonest < 45ms);
}

TEST_CASE("Faults happen where they are told to", "[decorators]") {
  InProcessWorld world(2);
  bool killed = false;
  const std::vector<Fault> faults = {{0, 1, FaultKind::drop, {}},
                                     {0, 2, FaultKind::delay, 30ms},
                                     {0, 3, FaultKind::kill, {}},
                                     {1, 0, FaultKind::kill, {}}};
  FaultInjector t(world.transport(0), faults, [&] {
    killed = true;
    world.lose(0, "killed");
  });
  const std::vector<int> sent = {4};
  std::vector<int> got(1), other(1);
  Work arrives = world.transport(1).recv(0, 0, bytes_of(got), within(patience));
  t.send(1, 0, bytes_of(sent), within(patience)).wait();
  arrives.wait();
  Work never = world.transport(1).recv(0, 0, bytes_of(other), within(patience));
  Work dropped = t.send(1, 0, bytes_of(sent), within(20ms));
  CHECK(comm_error_of(dropped).kind() == CommErrorKind::timeout);
  CHECK(!never.poll());
  const auto begin = CommClock::now();
  t.send(1, 0, bytes_of(sent), within(patience)).wait();
  CHECK(CommClock::now() - begin >= 30ms);
  CHECK(!killed);
  Work last = t.send(1, 0, bytes_of(sent), within(patience));
  CHECK(killed);
  CHECK_THAT(comm_error_of(last).what(), Contains("rank 0 is lost: killed"));
  CHECK(describe(faults[1]) == "rank 0: delay of 0.03 s at operation 2");
}

TEST_CASE("Random faults are a function of their seed", "[decorators]") {
  const auto text = [](uint64_t seed) {
    std::string all;
    for (const Fault& f : random_faults(seed, 4, 50, 10ms)) all += describe(f) + "\n";
    return all;
  };
  CHECK(text(7) == text(7));
  CHECK(text(7) != text(8));
}

// How ranks ended, over all runs.
struct Outcomes {
  std::atomic<uint64_t> succeeded{0};
  std::array<std::atomic<uint64_t>, 4> failed{};  // by CommErrorKind
};

// A few collectives of every kind under faults. Returns "" or what is wrong.
std::string run_with_faults(uint64_t seed, Outcomes& outcomes, const HeldUp& held_up) {
  constexpr auto timeout = 100ms;
  const int ranks = 2 + static_cast<int>(seed % 3);
  const std::vector<Fault> faults = random_faults(seed, ranks, 60, 20ms);
  InProcessWorld world(ranks);
  std::mutex mutex;
  std::string trouble;
  const auto complain = [&](int rank, const std::string& what) {
    std::lock_guard lock(mutex);
    trouble += str("seed ", seed, ", rank ", rank, ": ", what, "\n");
    for (const Fault& f : faults) trouble += "  " + describe(f) + "\n";
  };
  const auto run = [&](int rank) {
    FaultInjector transport(world.transport(rank), faults,
                            [&, rank] { world.lose(rank, "killed"); });
    GroupOptions options;
    options.timeout = timeout;
    options.message_bytes = 64;
    const auto group = make_ring_group(transport, options);
    std::vector<float> data(37);
    const TensorView view(data.data(), DType::f32, {37});
    try {
      for (int step = 0; step < 4; ++step) {
        for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(rank + step);
        const auto deadline = within(timeout);
        const auto late = held_up.so_far();
        Work work = step % 2 == 0 ? group->all_reduce(view, Reduction::sum, deadline)
                                  : group->broadcast(view, step % ranks, deadline);
        Work barrier = group->barrier(deadline);
        work.wait();
        const int expected =
            step % 2 == 0 ? ranks * (ranks - 1) / 2 + ranks * step : step % ranks + step;
        for (const float v : data) {
          if (v != static_cast<float>(expected)) complain(rank, str("a wrong value ", v));
        }
        barrier.wait();
        // The faults' delays come on top, since they hold up the threads that would notice.
        if (CommClock::now() - (held_up.so_far() - late) > deadline + 500ms)
          complain(rank, "a success long after its deadline");
      }
      ++outcomes.succeeded;
    } catch (const CommError& e) {
      ++outcomes.failed[static_cast<size_t>(e.kind())];
      if (std::string(e.what()).find("rank ") == std::string::npos) complain(rank, e.what());
    } catch (const std::exception& e) {
      complain(rank, str("an error of the wrong type: ", e.what()));
    }
  };
  const auto begin = CommClock::now();
  const auto late = held_up.so_far();
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(run, r);
  for (std::thread& t : threads) t.join();
  const auto took = CommClock::now() - begin - held_up.so_far() + late;
  if (took > 4 * timeout + 1500ms) {
    complain(-1, str("took ", std::chrono::duration<double>(took).count(), " s"));
  }
  return trouble;
}

// RONDO_FAULT_RUNS=10000 runs more of them.
TEST_CASE("Random faults end in success or a typed error", "[slow][random_faults]") {
  const char* const wanted = std::getenv("RONDO_FAULT_RUNS");
  const uint64_t runs = wanted == nullptr ? 200 : std::strtoull(wanted, nullptr, 10);
  std::atomic<uint64_t> next{0};
  const HeldUp held_up;
  Outcomes outcomes;
  std::mutex mutex;
  std::string trouble;
  const auto work = [&] {
    for (uint64_t seed; (seed = next++) < runs;) {
      const std::string t = run_with_faults(seed, outcomes, held_up);
      std::lock_guard lock(mutex);
      trouble += t;
    }
  };
  std::vector<std::thread> threads;  // mostly waiting, so more than cores
  for (int i = 0; i < 8; ++i) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  std::cout << runs << " runs with faults: " << outcomes.succeeded << " ranks succeeded";
  for (const auto kind : {CommErrorKind::timeout, CommErrorKind::peer_lost, CommErrorKind::mismatch,
                          CommErrorKind::aborted}) {
    const uint64_t n = outcomes.failed[static_cast<size_t>(kind)];
    std::cout << ", " << name_of(kind) << ": " << n;
  }
  std::cout << "\n";
  CHECK(trouble == "");
  // A mismatch is what a dropped message does to the one after it. Runs that all end alike
  // would test little.
  CHECK(outcomes.succeeded > runs / 10);
  CHECK(outcomes.failed[static_cast<size_t>(CommErrorKind::timeout)] > runs / 10);
  CHECK(outcomes.failed[static_cast<size_t>(CommErrorKind::peer_lost)] > runs / 10);
}

}  // namespace
}  // namespace rondo
