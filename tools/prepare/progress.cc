#include "tools/prepare/progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "engine/io/signals.h"
#include "kernels/base/error.h"

namespace rondo {

namespace {

using Clock = std::chrono::steady_clock;

// "[#####     ] 12 of 400 recordings, 0:31 left"
std::string bar(int64_t done, int64_t total, const char* what, double seconds) {
  constexpr int64_t width = 20;
  const int64_t filled = total > 0 ? width * done / total : 0;
  std::string text = "[" + std::string(static_cast<size_t>(filled), '#') +
                     std::string(static_cast<size_t>(width - filled), ' ') + "]";
  text += str(" ", done, " of ", total, " ", what);
  constexpr double soon = 2;
  if (done == 0 || seconds < soon) return text;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const auto left = static_cast<int64_t>(seconds / share - seconds + 0.5);
  char time[48];
  std::snprintf(time, sizeof time, ", %lld:%02lld left", static_cast<long long>(left / 60),
                static_cast<long long>(left % 60));
  return text + time;
}

}  // namespace

CorpusProgress progress_line(const char* what) {
  const bool shown = isatty(STDERR_FILENO);
  const Clock::time_point start = Clock::now();
  return [shown, what, start, told = start](int64_t done, int64_t total) mutable {
    const Clock::time_point now = Clock::now();
    constexpr std::chrono::milliseconds between{100};
    if (!shown || (done != total && now - told < between)) return;
    told = now;
    const double seconds = std::chrono::duration<double>(now - start).count();
    // What stood there may have been longer.
    std::fprintf(stderr, "\r%s\x1b[K%s", bar(done, total, what, seconds).c_str(),
                 done == total ? "\n" : "");
  };
}

int prepare_unless_stopped(const std::function<int()>& prepare) {
  say_when_stopped(stderr, "rondo: stopped by a signal; no corpus was made");
  return prepare();
}

}  // namespace rondo
