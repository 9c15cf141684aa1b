// What the commands of `rondo prepare` have in common while they work.
#pragma once

#include <functional>

#include "tools/corpus/corpus.h"

namespace rondo {

// A bar with the time that is left, on a terminal.
CorpusProgress progress_line(const char* what);

// The exit code of prepare(). A signal ends it and the process; then nothing is left behind.
int prepare_unless_stopped(const std::function<int()>& prepare);

}  // namespace rondo
