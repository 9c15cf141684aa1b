// What this process asked GPUs for last. A kernel that fails on a GPU is told of later, at some
// call that waits, without its name; the launches of just before are where to look.
//
// Thread safety: any thread, at any time.
#pragma once

#include <string>

#include "kernels/base/gpu/launch.h"

namespace rondo {

// One launch, or one of recorded work, whose kernels were noted when it was recorded. Repeats of
// the newest are not kept.
void note_launch(const LaunchConfig& config);
void note_recorded_launch();

// The newest first, at most 12: "recorded work; step<<<grid 4x1x1, ...>>>". "none" without any.
std::string recent_launches();

}  // namespace rondo
