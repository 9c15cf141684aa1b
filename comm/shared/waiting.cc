#include "comm/shared/waiting.h"

#include "kernels/base/cpu/thread.h"

namespace rondo::shared_transport {

void Waiting::start(std::vector<std::shared_ptr<channels::Channel>> channels) {
  channels_ = std::move(channels);
  pump_ = start_thread("the thread that moves messages through shared memory", [this] { pump(); });
}

void Waiting::stop() {
  stop_ = true;
  bell_.pump_rings.fetch_add(1);
  futex_wake(bell_.pump_rings);
  if (pump_.joinable()) {
    pump_.join();
    while (leading_.exchange(true)) {  // the operation it waits for has ended
      bell_.ring();
      std::this_thread::yield();
    }
  }
  channels_.clear();
}

bool Waiting::work_to_do() const {
  for (const auto& c : channels_) {
    if (c->has_work()) return true;
  }
  return false;
}

void Waiting::progress() {
  for (const auto& c : channels_) c->progress();
}

void Waiting::lead(const channels::Operation& op, Deadline deadline) {
  set_leader(Leader::awake);
  while (!op.done()) {
    if (work_to_do()) {
      progress();
      continue;
    }
    const uint32_t rings = bell_.leader_rings.load();
    if (op.done() || CommClock::now() >= deadline) break;
    set_leader(Leader::asleep);
    if (!work_to_do() && !op.done()) futex_wait(bell_.leader_rings, rings, deadline);
    set_leader(Leader::awake);
  }
  set_leader(Leader::none);
  // Whoever saw this thread awake did not ring for the pump.
  if (work_to_do()) progress();
  if (work_to_do()) bell_.ring();
  leading_ = false;
}

void Waiting::pump() {
  while (!stop_) {
    const uint32_t rings = bell_.pump_rings.load();
    bell_.pump_asleep = 1;
    const bool leaderless = bell_.leader.load() == static_cast<uint32_t>(Leader::none);
    if (!stop_ && !(leaderless && work_to_do())) {
      futex_wait(bell_.pump_rings, rings, CommClock::now() + std::chrono::hours(1));
    }
    bell_.pump_asleep = 0;
    if (bell_.leader.load() == static_cast<uint32_t>(Leader::none)) progress();
  }
}

}  // namespace rondo::shared_transport
