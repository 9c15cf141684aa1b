#include "comm/mpi/poller.h"

#include <sched.h>

#include <algorithm>

#include "kernels/base/cpu/thread.h"

namespace rondo::mpi_transport {
namespace {

using std::chrono::microseconds;

constexpr microseconds shortest_pause{10}, longest_pause{500}, idle_pause{1000};
// How often the processor is only offered to others before it is left for a while.
constexpr int offers = 200;

}  // namespace

void Poller::start() {
  pump_ = start_thread("the thread that asks MPI", [this] { pump(); });
}

void Poller::stop() {
  stop_ = true;
  if (pump_.joinable()) pump_.join();
}

bool Poller::wait(channels::Operation& op, Deadline deadline) {
  if (leading_.exchange(true)) return op.sleep_until(deadline);
  int idle = 0;
  microseconds pause = shortest_pause;
  while (!op.done() && CommClock::now() < deadline) {
    if (progress_()) {
      idle = 0;
      pause = shortest_pause;
    } else if (++idle < offers) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, longest_pause);
    }
  }
  leading_ = false;
  return op.done();
}

void Poller::pump() {
  microseconds pause = shortest_pause;
  while (!stop_) {
    if (leading_ || !progress_()) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, idle_pause);
    } else {
      pause = shortest_pause;
    }
  }
}

}  // namespace rondo::mpi_transport
