#include "comm/schedule.h"

#include "kernels/base/error.h"

namespace rondo {

const char* name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "forward";
    case ActionKind::backward:
      return "backward";
    case ActionKind::input_backward:
      return "input_backward";
    case ActionKind::weight_backward:
      return "weight_backward";
    case ActionKind::send_activation:
      return "send_activation";
    case ActionKind::recv_activation:
      return "recv_activation";
    case ActionKind::send_gradient:
      return "send_gradient";
    case ActionKind::recv_gradient:
      return "recv_gradient";
    case ActionKind::reduce:
      return "reduce";
  }
  return "?";
}

std::string describe(const Action& a) {
  std::string text = str(name_of(a.kind), " stage ", a.stage);
  if (a.micro_batch >= 0) text += str(" micro-batch ", a.micro_batch);
  if (a.kind == ActionKind::send_activation || a.kind == ActionKind::send_gradient) {
    text += str(" to rank ", a.peer);
  }
  if (a.kind == ActionKind::recv_activation || a.kind == ActionKind::recv_gradient) {
    text += str(" from rank ", a.peer);
  }
  return text;
}

PipelineSchedule gpipe_schedule(int stages, int micro_batches) {
  RONDO_CHECK(stages >= 1, stages, " pipeline stages");
  RONDO_CHECK(micro_batches >= 1, micro_batches, " micro-batches");
  PipelineSchedule schedule;
  schedule.stages = stages;
  schedule.micro_batches = micro_batches;
  schedule.actions.resize(static_cast<size_t>(stages));
  for (int s = 0; s < stages; ++s) {
    schedule.rank_of_stage.push_back(s);
    auto& actions = schedule.actions[static_cast<size_t>(s)];
    const bool first = s == 0, last = s == stages - 1;
    for (int m = 0; m < micro_batches; ++m) {
      if (!first) actions.push_back({ActionKind::recv_activation, s, m, s - 1});
      actions.push_back({ActionKind::forward, s, m});
      if (!last) actions.push_back({ActionKind::send_activation, s, m, s + 1});
    }
    for (int m = 0; m < micro_batches; ++m) {
      if (!last) actions.push_back({ActionKind::recv_gradient, s, m, s + 1});
      actions.push_back({ActionKind::backward, s, m});
      if (!first) actions.push_back({ActionKind::send_gradient, s, m, s - 1});
    }
    actions.push_back({ActionKind::reduce, s});
  }
  return schedule;
}

}  // namespace rondo
