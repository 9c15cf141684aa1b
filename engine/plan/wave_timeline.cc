#include "engine/plan/wave_timeline.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

// At the other end, by the stage that a pipeline would receive it in.
TimedAction received(const TimedAction& sent, int from) {
  const bool up = sent.action.kind == ActionKind::send_activation;
  const Action& a = sent.action;
  return {{up ? ActionKind::recv_activation : ActionKind::recv_gradient,
           up ? a.stage + 1 : a.stage - 1, a.micro_batch, from},
          sent.start,
          sent.end};
}

bool is_send(ActionKind kind) {
  return kind == ActionKind::send_activation || kind == ActionKind::send_gradient;
}

}  // namespace

PipelineTimeline wave_timeline(const Wave& wave, const Timeline& timeline) {
  const std::vector<Task>& tasks = wave.work.tasks();
  RONDO_CHECK(wave.actions.size() == tasks.size() && timeline.intervals.size() == tasks.size(),
              "a timeline of another wave");
  PipelineTimeline all;
  all.ranks.resize(static_cast<size_t>(wave.ranks));
  // By rank: which entry its last computation is.
  std::vector<size_t> last(all.ranks.size(), 0);
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!wave.actions[i]) continue;
    const int rank = tasks[i].resource % wave.ranks;
    std::vector<TimedAction>& done = all.ranks[static_cast<size_t>(rank)];
    const TimedAction t{*wave.actions[i], timeline.intervals[i].start, timeline.intervals[i].end};
    if (tasks[i].resource < wave.ranks) {
      if (tasks[i].seconds == 0) continue;
      size_t& before = last[static_cast<size_t>(rank)];
      if (before < done.size() && done[before].action == t.action && done[before].end == t.start) {
        done[before].end = t.end;
        continue;
      }
      before = done.size();
    } else if (is_send(t.action.kind)) {
      const int to = rank % wave.stride + t.action.peer * wave.stride;
      all.ranks.at(static_cast<size_t>(to)).push_back(received(t, rank / wave.stride));
    }
    done.push_back(t);
  }
  for (auto& done : all.ranks) {
    std::stable_sort(done.begin(), done.end(),
                     [](const TimedAction& a, const TimedAction& b) { return a.start < b.start; });
  }
  return all;
}

}  // namespace rondo::plan
