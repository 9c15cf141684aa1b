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

PipelineSchedule gpipe_schedule(int ranks, int micro_batches) {
  return make_schedule(ScheduleKind::gpipe, ranks, micro_batches);
}
PipelineSchedule one_f_one_b_schedule(int ranks, int micro_batches) {
  return make_schedule(ScheduleKind::one_f_one_b, ranks, micro_batches);
}
PipelineSchedule interleaved_schedule(int ranks, int micro_batches, int chunks) {
  return make_schedule(ScheduleKind::interleaved, ranks, micro_batches, chunks);
}
PipelineSchedule zero_bubble_schedule(int ranks, int micro_batches) {
  return make_schedule(ScheduleKind::zero_bubble, ranks, micro_batches);
}

}  // namespace rondo
