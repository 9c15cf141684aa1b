// A simulated wave as what its ranks do when: for pictures (engine/report/timeline.h).
#pragma once

#include "comm/schedule_timing.h"
#include "engine/plan/wave.h"

namespace rondo::plan {

// The timeline of the wave's ranks. Parts of an action that follow each other without a gap are one
// entry, and parts that take no time none. Messages are sends and receives from when their link
// takes them until they are there. By rank in the order of their start.
PipelineTimeline wave_timeline(const Wave& wave, const Timeline& timeline);

}  // namespace rondo::plan
