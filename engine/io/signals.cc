#include "engine/io/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr int handled[] = {SIGINT, SIGTERM, SIGHUP};

// Lock-free atomics are what a handler may touch.
std::atomic<int> received{0};
std::atomic<bool> stop{false};
std::atomic<bool> installed{false};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  int none = 0;
  if (!received.compare_exchange_strong(none, number)) ::_exit(128 + number);
  stop.store(true);
}

}  // namespace

struct SignalGuard::Saved {
  struct sigaction actions[std::size(handled)];
};

SignalGuard::SignalGuard() : saved_(std::make_unique<Saved>()) {
  RONDO_CHECK(!installed.exchange(true), "two SignalGuards at once");
  received = 0;
  stop = false;
  for (size_t i = 0; i < std::size(handled); ++i) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    // Reads and waits of the main thread go on: the loop looks at the flag between steps.
    action.sa_flags = SA_RESTART;
    RONDO_CHECK(::sigaction(handled[i], nullptr, &saved_->actions[i]) == 0, "errno ", errno);
    if (saved_->actions[i].sa_handler == SIG_IGN) continue;
    RONDO_CHECK(::sigaction(handled[i], &action, nullptr) == 0, "errno ", errno);
  }
}

SignalGuard::~SignalGuard() {
  for (size_t i = 0; i < std::size(handled); ++i)
    ::sigaction(handled[i], &saved_->actions[i], nullptr);
  installed = false;
}

bool stop_requested() { return stop.load(); }
int stop_signal() { return received.load(); }
void request_stop() { stop.store(true); }

}  // namespace rondo
