// Work that may take some ranks much longer than others, and than ranks wait for each other:
// looking at all data from a slow disk, say.
#pragma once

#include <functional>

#include "engine/reduce/ranks.h"

namespace rondo {

// ranks.together(action), but that ranks which are ready wait as long as the others are at work: a
// rank says each quarter of `patience` that it is. One that says nothing for so long is stopped, or
// cut off, and is named by a CommError. Uses messages of the group beside its collectives.
void together_at_length(const Ranks& ranks, CommClock::duration patience,
                        const std::function<void()>& action);

}  // namespace rondo
