#include "comm/schedule_timing.h"

#include <algorithm>

namespace rondo {

double PipelineTimeline::duration() const {
  double last = 0;
  for (const auto& actions : ranks) {
    for (const TimedAction& t : actions) last = std::max(last, t.end);
  }
  return last;
}

double PipelineTimeline::busy(int rank) const {
  double sum = 0;
  for (const TimedAction& t : ranks.at(static_cast<size_t>(rank))) {
    if (computes(t.action.kind)) sum += t.end - t.start;
  }
  return sum;
}

double PipelineTimeline::bubble(int rank) const {
  const double all = duration();
  return all > 0 ? 1 - busy(rank) / all : 0;
}

}  // namespace rondo
