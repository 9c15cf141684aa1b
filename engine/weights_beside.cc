#include "engine/weights_beside.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// Calls rest(node) for nodes of the plan's stream and group(number, first, last) for runs of nodes
// that are beside, in the order of nodes; `last` is one past them, and nodes between that nobody
// needs are in neither.
template <class Rest, class Group>
void visit(const Plan& plan, Rest rest, Group group) {
  const MemoryPlan& memory = plan.memory();
  size_t groups = 0;
  for (size_t i = 0; i < plan.node_count();) {
    if (!memory.beside[i]) {
      rest(i++);
      continue;
    }
    size_t last = i;
    while (last < plan.node_count() && (memory.beside[last] || !memory.needed[last])) ++last;
    group(groups++, i, last);
    i = last;
  }
}

}  // namespace

WeightsBeside::WeightsBeside(const Graph& graph, const Context& context)
    : context_(context), stream_(context.device->make_stream()), beside_(context) {
  RONDO_CHECK(context.device->can_capture(), "a second stream on a device without streams");
  beside_.stream = &stream_;
  const auto most = std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.phase == Phase::weight_gradient;
  });
  for (auto i = most; i > 0; --i) starts_.push_back(context.device->make_event());
  done_ = context.device->make_event();
}

void WeightsBeside::run_rest(Plan& plan) {
  visit(
      plan, [&](size_t node) { plan.run_node(node); },
      [&](size_t group, size_t, size_t) { starts_.at(group).record(*context_.stream); });
}

void WeightsBeside::run(Plan& plan) {
  visit(
      plan, [](size_t) {},
      [&](size_t group, size_t first, size_t last) {
        starts_.at(group).wait(stream_);
        plan.run_beside(group, beside_, first, last);
      });
  done_.record(stream_);
  done_.wait(*context_.stream);
}

}  // namespace rondo
