// A pipeline's run as a picture: one row per rank, one box per computation.
//
// For measured runs (StepRunner::timeline) and for plans (engine/plan/simulation.h) alike. Pure
// functions; the same input gives the same bytes.
#pragma once

#include <string>
#include <vector>

#include "comm/schedule_timing.h"

namespace rondo {

// Forwards, backwards and reductions as boxes with the micro-batch's number, messages as lines from
// when they were sent to when they were there; at the right, the share of the time that a rank
// computes. Rows r are ranks r. Every `ranks_per_pipeline` ranks that are `stride` rows apart are
// one pipeline, within which the actions count their peers.
std::string timeline_svg(const PipelineTimeline& timeline, int ranks_per_pipeline,
                         const std::string& title, int stride = 1);

// One rank's actions as text, one line each, and back; times to the nanosecond. Throws InputError
// for a line that is not one.
std::string timeline_text(const std::vector<TimedAction>& actions);
std::vector<TimedAction> parse_timeline(const std::string& text);

}  // namespace rondo
