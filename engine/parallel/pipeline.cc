#include "engine/parallel/pipeline.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// The stage whose nodes produce each value; -1 for inputs and parameters.
std::vector<int> producing_stage(const Graph& g) {
  std::vector<int> stage(g.values.size(), -1);
  for (const Node& node : g.nodes) {
    for (ValueId id : node.outputs) {
      if (id != no_value) stage[static_cast<size_t>(id)] = node.stage;
    }
  }
  return stage;
}

}  // namespace

PipelineRank::PipelineRank(const Graph& graph, const Context& context, Transport& transport,
                           const PipelineSchedule& schedule, const BatchCapacity& capacity,
                           Parameters& parameters)
    : graph_(graph), transport_(transport), schedule_(schedule) {
  RONDO_CHECK(context.device->host_memory(), "activations must be in host memory to be sent");
  const std::vector<int> produced = producing_stage(graph);
  for (const Node& node : graph.nodes) {
    for (ValueId id : node.inputs) {
      if (id == no_value) continue;
      const Value& v = graph.value(id);
      const int from = produced[static_cast<size_t>(id)];
      RONDO_CHECK(from < 0 || std::abs(from - node.stage) <= 1, "value '", v.name,
                  "' crosses from stage ", from, " to stage ", node.stage);
      RONDO_CHECK(v.role != ValueRole::parameter || v.stage == node.stage, "parameter '", v.name,
                  "' of stage ", v.stage, " is used by stage ", node.stage);
    }
  }
  const int stage = transport.rank();
  from_lower_ = find_crossing(stage - 1, stage, produced);
  to_lower_ = find_crossing(stage, stage - 1, produced);
  from_upper_ = find_crossing(stage + 1, stage, produced);
  to_upper_ = find_crossing(stage, stage + 1, produced);
  for (int m = 0; m < schedule.micro_batches; ++m) {
    plans_.push_back(std::make_unique<Plan>(graph, context, capacity, parameters,
                                            Reuse::by_liveness, transport.rank()));
  }
}

std::vector<ValueId> PipelineRank::find_crossing(int from, int to,
                                                 const std::vector<int>& produced) const {
  std::vector<ValueId> values;
  for (const Node& node : graph_.nodes) {
    if (node.stage != to) continue;
    for (ValueId id : node.inputs) {
      if (id != no_value && produced[static_cast<size_t>(id)] == from &&
          std::find(values.begin(), values.end(), id) == values.end()) {
        values.push_back(id);
      }
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

void PipelineRank::exchange(const Action& action, Deadline deadline) {
  const bool activation =
      action.kind == ActionKind::send_activation || action.kind == ActionKind::recv_activation;
  const bool sends =
      action.kind == ActionKind::send_activation || action.kind == ActionKind::send_gradient;
  const bool upper = activation == sends;  // activations go up, gradients down
  const std::vector<ValueId>& values =
      upper ? (sends ? to_upper_ : from_upper_) : (sends ? to_lower_ : from_lower_);
  Plan& plan = *plans_[static_cast<size_t>(action.micro_batch)];
  std::vector<Work> pending;
  for (ValueId id : values) {
    const TensorView view = plan.view(id);
    if (!view) continue;
    const Shape& shape = graph_.shape(id);
    const size_t live =
        static_cast<size_t>(plan.live_rows(shape) * shape.cols) * size_of(graph_.value(id).dtype);
    const size_t plane = view.bytes() / static_cast<size_t>(shape.planes);
    for (int64_t p = 0; p < shape.planes; ++p) {
      auto* at = static_cast<std::byte*>(view.data) + static_cast<size_t>(p) * plane;
      const auto number =
          static_cast<uint32_t>((static_cast<size_t>(action.micro_batch) * graph_.values.size() +
                                 static_cast<size_t>(id)) *
                                    8 +
                                static_cast<size_t>(p));
      const Tag tag = message_tag(0, number);
      const int peer = action.peer;
      pending.push_back(sends ? transport_.send(peer, tag, {at, live}, deadline)
                              : transport_.recv(peer, tag, {at, live}, deadline));
    }
  }
  for (Work& work : pending) work.wait();
}

void PipelineRank::run(std::span<const BatchView> micro_batches, CommClock::duration timeout) {
  RONDO_CHECK(micro_batches.size() == plans_.size(), micro_batches.size(),
              " micro-batches for a schedule of ", plans_.size());
  const Deadline deadline = CommClock::now() + timeout;
  for (size_t m = 0; m < plans_.size(); ++m) plans_[m]->load(micro_batches[m]);
  for (const Action& action : schedule_.actions.at(static_cast<size_t>(transport_.rank()))) {
    switch (action.kind) {
      case ActionKind::forward:
        plans_[static_cast<size_t>(action.micro_batch)]->run(Phase::forward);
        break;
      case ActionKind::backward: {
        Plan& plan = *plans_[static_cast<size_t>(action.micro_batch)];
        plan.run_backward();
        break;
      }
      case ActionKind::input_backward:
      case ActionKind::weight_backward:
        RONDO_CHECK(false, "the engine does not run ", name_of(action.kind), " yet");
        break;
      case ActionKind::reduce:
        break;  // a stage has one replica here; GradientReducer sums over more
      default:
        exchange(action, deadline);
    }
  }
}

}  // namespace rondo
