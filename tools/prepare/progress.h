// What the commands of `rondo prepare` have in common while they work.
#pragma once

#include <functional>

#include "engine/corpus/corpus.h"

namespace rondo {

// "12 of 400 recordings" on a terminal; throws InputError when a signal has come.
CorpusProgress progress_line(const char* what);

// The exit code of prepare(), which a signal stops; then nothing is left behind.
int prepare_unless_stopped(const std::function<int()>& prepare);

}  // namespace rondo
