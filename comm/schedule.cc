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

bool computes(ActionKind k) {
  return k == ActionKind::forward || gives_gradient(k) || k == ActionKind::weight_backward;
}
bool is_send(ActionKind k) {
  return k == ActionKind::send_activation || k == ActionKind::send_gradient;
}
bool is_recv(ActionKind k) {
  return k == ActionKind::recv_activation || k == ActionKind::recv_gradient;
}
bool goes_up(ActionKind k) {
  return k == ActionKind::send_activation || k == ActionKind::recv_activation;
}
bool gives_gradient(ActionKind k) {
  return k == ActionKind::backward || k == ActionKind::input_backward;
}

std::string describe(const Action& a) {
  std::string text = str(name_of(a.kind), " stage ", a.stage);
  if (a.micro_batch >= 0) text += str(" micro-batch ", a.micro_batch);
  if (is_send(a.kind)) text += str(" to rank ", a.peer);
  if (is_recv(a.kind)) text += str(" from rank ", a.peer);
  return text;
}

int other_stage(const Action& m) {
  return m.kind == ActionKind::send_activation || m.kind == ActionKind::recv_gradient ? m.stage + 1
                                                                                      : m.stage - 1;
}

Action recv_of(const Action& send, int rank) {
  const ActionKind kind = send.kind == ActionKind::send_activation ? ActionKind::recv_activation
                                                                   : ActionKind::recv_gradient;
  return {kind, other_stage(send), send.micro_batch, rank};
}

}  // namespace rondo
