// StopPatience: how long a rank that was told to stop goes on waiting for the others.
//
// A stop is agreed on with the update in progress, so that all ranks save after the same one. A
// rank that hangs, or stands still, would keep the others from that until parallel.timeout_seconds,
// and whoever asked them to stop has killed them by then. What takes three times as long as the
// longest of its kind so far, counted from the stop, and at least 10 s, is given up. The first of a
// kind never is: nobody knows how long it takes.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>

#include "kernels/base/cpu/thread.h"

namespace rondo {

class StopPatience {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // `stop` is asked several times a second while something is watched. `give_up` is called at most
  // once; it makes whatever is waited for fail, and must not block. Both are called from a thread
  // that lives as long as this, and must not throw.
  StopPatience(std::function<bool()> stop, std::function<void(Duration waited)> give_up,
               Duration least = std::chrono::seconds(10));
  ~StopPatience();
  StopPatience(const StopPatience&) = delete;
  StopPatience& operator=(const StopPatience&) = delete;

  // While one lives, other ranks are waited for; afterwards nothing is given up any more. One at a
  // time. `longest` is the longest of this kind so far, 0 before the first, and outlives this.
  class Watch {
   public:
    Watch(StopPatience& patience, Duration& longest);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    StopPatience& patience_;
    Duration& longest_;
  };

 private:
  void run();

  const std::function<bool()> stop_;
  const std::function<void(Duration)> give_up_;
  const Duration least_;
  std::mutex mutex_;
  ConditionVariable changed_;
  bool ends_ = false, watches_ = false;
  std::chrono::steady_clock::time_point began_{};
  Duration patience_{};  // with what is watched; 0: without end
  Thread thread_;
};

}  // namespace rondo
