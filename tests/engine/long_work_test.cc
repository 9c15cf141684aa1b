// Ranks wait for those that work for long, and not for those that say nothing.
#include "engine/reduce/long_work.h"

#include <chrono>
#include <thread>

#include "comm/in_process/run_ranks.h"
#include "tests/catch.h"

using namespace rondo;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

constexpr auto patience = 3s;  // a busy machine holds up who is at work, too

// What became of each of three ranks, of which `busy` does this while the others are ready at once.
std::vector<std::string> outcomes(int busy, const std::function<void(const Ranks&)>& act) {
  std::vector<std::string> all(3);
  run_ranks(3, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    const Ranks ranks(*group, 60s);
    std::string& mine = all[static_cast<size_t>(rank)];
    try {
      if (rank == busy) {
        act(ranks);
      } else {
        together_at_length(ranks, patience, [] {});
      }
      // And once more: nothing of the first time is left.
      together_at_length(ranks, patience, [] {});
      mine = "done";
    } catch (const CommError& e) {
      mine = str(name_of(e.kind()), ": ", e.what());
      group->abort(e.what());
    } catch (const Error& e) {
      mine = e.what();
    }
  });
  return all;
}

}  // namespace

TEST_CASE("ranks wait for one that works longer than ranks wait for each other",
          "[long work][slow]") {
  std::vector<std::string> all[3];
  std::vector<std::thread> worlds;
  for (int busy = 0; busy < 3; ++busy) {
    worlds.emplace_back([&all, busy] {
      all[busy] = outcomes(busy, [](const Ranks& ranks) {
        together_at_length(ranks, patience, [] { std::this_thread::sleep_for(patience + 1s); });
      });
    });
  }
  for (std::thread& w : worlds) w.join();
  for (const auto& of_ranks : all) CHECK(of_ranks == std::vector<std::string>(3, "done"));
}

TEST_CASE("what went wrong in long work is told to all ranks", "[long work]") {
  const auto all = outcomes(1, [](const Ranks& ranks) {
    together_at_length(ranks, patience, [] { fail_input("late.wav: is empty"); });
  });
  CHECK(all[1] == "late.wav: is empty");
  CHECK(all[0] == "rank 1: late.wav: is empty");
  CHECK(all[2] == all[0]);
}

TEST_CASE("a rank that says nothing is named", "[long work][slow]") {
  for (const int silent : {0, 2}) {
    CAPTURE(silent);
    const auto all =
        outcomes(silent, [](const Ranks&) { std::this_thread::sleep_for(patience + 1s); });
    // Of the two that wait one is the first to lose patience, and the other hears of it.
    const std::string& one = all[silent == 0 ? 1 : 0];
    const std::string& other = all[silent == 2 ? 1 : 2];
    CHECK_THAT(one, Contains(str("recv from rank ", silent)));
    CHECK_THAT(other, Contains(str("recv from rank ", silent)));
    CHECK_THAT(one + other, Contains("timeout: "));
  }
}
