#include "tools/prepare/progress.h"

#include <unistd.h>

#include <cstdio>

#include "engine/io/signals.h"

namespace rondo {

CorpusProgress progress_line(const char* what) {
  const bool shown = isatty(STDERR_FILENO);
  return [shown, what](int64_t done, int64_t total) {
    if (!shown) return;
    std::fprintf(stderr, "\r%lld of %lld %s%s", static_cast<long long>(done),
                 static_cast<long long>(total), what, done == total ? "\n" : "");
  };
}

int prepare_unless_stopped(const std::function<int()>& prepare) {
  say_when_stopped(stderr, "rondo: stopped by a signal; no corpus was made");
  return prepare();
}

}  // namespace rondo
