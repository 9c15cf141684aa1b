#include "engine/parallel/stop_patience.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto pause = std::chrono::milliseconds(100);
constexpr int times_the_longest = 3;

}  // namespace

StopPatience::StopPatience(std::function<bool()> stop, std::function<void(Duration)> give_up,
                           Duration least)
    : stop_(std::move(stop)),
      give_up_(std::move(give_up)),
      least_(least),
      thread_(start_thread("the thread that ends waiting for others", [this] { run(); })) {}

StopPatience::~StopPatience() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

StopPatience::Watch::Watch(StopPatience& patience, Duration& longest)
    : patience_(patience), longest_(longest) {
  const std::lock_guard lock(patience.mutex_);
  patience.watches_ = true;
  patience.began_ = Clock::now();
  patience.patience_ = longest > Duration{}
                           ? std::max<Duration>(patience.least_, times_the_longest * longest)
                           : Duration{};
}

StopPatience::Watch::~Watch() {
  const std::lock_guard lock(patience_.mutex_);
  patience_.watches_ = false;
  longest_ = std::max(longest_, Clock::now() - patience_.began_);
}

void StopPatience::run() {
  std::unique_lock lock(mutex_);
  std::optional<Clock::time_point> told;
  while (!changed_.wait_for(lock, pause, [&] { return ends_; })) {
    if (!watches_ || patience_ == Duration{}) continue;
    if (!told && stop_()) told = Clock::now();
    if (!told) continue;
    const Duration waited = Clock::now() - std::max(*told, began_);
    if (waited < patience_) continue;
    give_up_(waited);
    return;
  }
}

}  // namespace rondo
