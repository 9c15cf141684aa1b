// Limits in time that a busy machine does not break: how long it held up a test, what a time-out
// says.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "comm/work.h"
#include "tests/catch.h"

namespace rondo {

// How long threads of this process were held up by a busy machine, since the start: a thread that
// sleeps for a moment at a time, and the time by which it was late by more than another moment
// (timers are always late by a little).
class HeldUp {
 public:
  HeldUp()
      : thread_([this] {
          while (!over_) {
            const auto begin = CommClock::now();
            std::this_thread::sleep_for(moment);
            const CommClock::duration late = CommClock::now() - begin - 2 * moment;
            if (late.count() > 0) late_ += late.count();
          }
        }) {}
  ~HeldUp() {
    over_ = true;
    thread_.join();
  }
  CommClock::duration so_far() const { return CommClock::duration(late_); }

 private:
  static constexpr std::chrono::milliseconds moment{1};
  std::atomic<bool> over_{false};
  std::atomic<int64_t> late_{0};
  std::thread thread_;
};

// The seconds in "timed out after S s"; fails the test where there are none.
inline double seconds_timed_out(const std::string& message) {
  const std::string before = "timed out after ";
  const size_t at = message.find(before);
  INFO(message);
  REQUIRE(at != std::string::npos);
  size_t length = 0;
  const std::string rest = message.substr(at + before.size());
  const double seconds = std::stod(rest, &length);
  CHECK_THAT(rest.substr(length), Catch::Matchers::StartsWith(" s"));
  return seconds;
}

// Whether a time-out says that an operation waited for some time: no longer than since `begin`, and
// at least for `least`. An operation counts from its own start, which comes after its deadline was
// computed by however long the machine held up the caller: `least` is what is certainly left, the
// deadline less a time that was read after the start.
inline bool timed_out_since(const std::string& message, CommClock::time_point begin,
                            std::chrono::duration<double> least = {}) {
  const std::chrono::duration<double> most = CommClock::now() - begin;
  const double seconds = seconds_timed_out(message), digits = 1e-5;  // six are written
  return seconds > 0 && seconds >= least.count() * (1 - digits) &&
         seconds <= most.count() * (1 + digits);
}

}  // namespace rondo
