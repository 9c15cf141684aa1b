// Gradients of weights on a stream of their own, beside the rest of the backward pass: nothing in
// it waits for them, and a time loop that is launched step by step, or has few blocks, leaves most
// of a GPU idle.
//
//   recording.run(context, [&] { beside.run_rest(plan); });   // may be recorded
//   beside.run(plan);                                         // may not
//
// run_rest() marks on the plan's stream where each group of such nodes may begin; run() lets the
// second stream wait for the marks, and the plan's stream for the second one. So everything that is
// enqueued after it finds all gradients. What belongs to one gradient is added in the order of
// nodes on one stream, so the bits are those of a single stream.
//
// Memory: a plan with Reuse::weights_beside keeps what these nodes read to its end.
#pragma once

#include <vector>

#include "engine/graph/plan.h"

namespace rondo {

class WeightsBeside {
 public:
  // For plans of `graph` with Reuse::weights_beside, whose context is `context`; its device records
  // work. Borrows the device and the stream.
  WeightsBeside(const Graph& graph, const Context& context);

  // Every node but those.
  void run_rest(Plan& plan);
  // Those, after a run_rest() of the same plan. Each group is recorded when it runs for the second
  // time.
  void run(Plan& plan);

 private:
  Context context_;
  Stream stream_;
  Context beside_;             // context_ with stream_
  std::vector<Event> starts_;  // by group
  Event done_;
};

}  // namespace rondo
