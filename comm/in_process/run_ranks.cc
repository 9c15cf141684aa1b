#include "comm/in_process/run_ranks.h"

#include <atomic>

#include "comm/in_process/in_process.h"
#include "kernels/base/cpu/thread.h"

namespace rondo {

RankOutcome run_ranks_and_collect(int n, const RankFunction& function) {
  InProcessWorld world(n);
  RankOutcome outcome;
  outcome.errors.resize(static_cast<size_t>(n));
  std::atomic<int> first_failed{-1};

  const auto failed = [&](int rank, const char* message) {
    outcome.errors[static_cast<size_t>(rank)] = std::current_exception();
    int none = -1;
    first_failed.compare_exchange_strong(none, rank);
    world.transport(rank).abort(message);
  };
  const auto run = [&](int rank) {
    try {
      function(rank, world.transport(rank));
      world.lose(rank, "it has finished");
    } catch (const std::exception& e) {
      failed(rank, e.what());
    } catch (...) {
      failed(rank, "an exception of unknown type");
    }
  };

  std::vector<Thread> threads;
  threads.reserve(static_cast<size_t>(n));
  for (int rank = 0; rank < n; ++rank) {
    try {
      threads.push_back(
          start_thread(str("the thread of rank ", rank, " of ", n), [&run, rank] { run(rank); }));
    } catch (const std::exception& e) {  // the rank has failed, which ends the others
      failed(rank, e.what());
    }
  }
  for (Thread& t : threads) t.join();
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
