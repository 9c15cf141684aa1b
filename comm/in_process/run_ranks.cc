#include "comm/in_process/run_ranks.h"

#include <atomic>
#include <thread>

#include "comm/in_process/in_process.h"

namespace rondo {

RankOutcome run_ranks_and_collect(int n, const RankFunction& function) {
  InProcessWorld world(n);
  RankOutcome outcome;
  outcome.errors.resize(static_cast<size_t>(n));
  std::atomic<int> first_failed{-1};

  const auto run = [&](int rank) {
    Transport& transport = world.transport(rank);
    const auto failed = [&](const char* message) {
      outcome.errors[static_cast<size_t>(rank)] = std::current_exception();
      int none = -1;
      first_failed.compare_exchange_strong(none, rank);
      transport.abort(message);
    };
    try {
      function(rank, transport);
      world.lose(rank, "it has finished");
    } catch (const std::exception& e) {
      failed(e.what());
    } catch (...) {
      failed("an exception of unknown type");
    }
  };

  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(run, rank);
  for (std::thread& t : threads) t.join();
  outcome.first_failed = first_failed;
  return outcome;
}

void run_ranks(int n, const RankFunction& function) {
  const RankOutcome outcome = run_ranks_and_collect(n, function);
  if (outcome.first_failed >= 0) {
    std::rethrow_exception(outcome.errors[static_cast<size_t>(outcome.first_failed)]);
  }
}

}  // namespace rondo
