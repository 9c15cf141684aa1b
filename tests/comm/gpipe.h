// GPipe's order, all forwards and then all backwards: the simplest that there is, beside which the
// schedules of the engine are looked at. Y. Huang et al., "GPipe: efficient training of giant
// neural networks using pipeline parallelism", 2019. Bubble (p-1)/m; every stage stores all
// micro-batches.
#pragma once

#include <utility>
#include <vector>

#include "comm/schedule.h"

namespace rondo {

inline PipelineSchedule gpipe_schedule(int stages, int micro_batches) {
  std::vector<std::vector<Action>> orders;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Action>& order = orders.emplace_back();
    for (const ActionKind kind : {ActionKind::forward, ActionKind::backward}) {
      for (int m = 0; m < micro_batches; ++m) order.push_back({kind, stage, m});
    }
  }
  return with_messages(std::move(orders), micro_batches);
}

}  // namespace rondo
