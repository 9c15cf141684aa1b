#include "tools/prepare/progress.h"

#include <unistd.h>

#include <cstdio>

#include "engine/io/signals.h"
#include "kernels/base/error.h"

namespace rondo {

CorpusProgress progress_line(const char* what) {
  const bool shown = isatty(STDERR_FILENO);
  return [shown, what](int64_t done, int64_t total) {
    if (stop_requested()) fail_input("stopped by a signal");
    if (!shown) return;
    std::fprintf(stderr, "\r%lld of %lld %s%s", static_cast<long long>(done),
                 static_cast<long long>(total), what, done == total ? "\n" : "");
  };
}

int prepare_unless_stopped(const std::function<int()>& prepare) {
  const SignalGuard signals;
  try {
    return prepare();
  } catch (const InputError&) {
    // espeak-ng gets the terminal's signals too, and may be the one that fails.
    if (!stop_requested()) throw;
    std::fprintf(stderr, "rondo: stopped by a signal; no corpus was made\n");
    return 128 + stop_signal();
  }
}

}  // namespace rondo
