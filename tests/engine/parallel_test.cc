// Ranks as threads: data parallelism gives what one rank gives.
#include <cmath>
#include <mutex>

#include "comm/group/process_group.h"
#include "comm/in_process/run_ranks.h"
#include "engine/reduce/sums.h"
#include "engine/session.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;

Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "lower", {.hidden = 16, .bidirectional = true});
  x = layers::dropout(g, x, "dropout", 0.2);
  x = layers::lstm(g, x, "upper", {.hidden = 12});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

SessionOptions options() {
  SessionOptions o;
  o.threads = 1;
  o.seed = 4;
  o.optimizer.kind = OptimizerOptions::sgd;
  o.optimizer.learning_rate = 0.5;
  return o;
}

std::vector<float> weights_of(const Session& s) {
  const TensorView w = s.parameters().weights();
  return {w.as<float>(), w.as<float>() + w.numel()};
}

}  // namespace

TEST_CASE("two ranks that sum gradients take the step of one rank with both batches") {
  Graph shape_only;
  model(shape_only);
  RandomBatch first({12, 9, 4}, classes, 1), second({17, 3}, classes, 2);
  const BatchView a = first.view(shape_only, classes, 3), b = second.view(shape_only, classes, 4);

  Session single(model, options());
  const std::vector<float> start = weights_of(single);
  single.accumulate(a);
  single.accumulate(b);
  const StepResult want = single.update();

  std::mutex mutex;
  std::vector<std::vector<float>> results(2);
  run_ranks(2, [&](int rank, Transport& transport) {
    auto group = make_ring_group(transport);
    Session session(model, options());
    GroupSums sums(*group, session.parameters());
    session.set_sums(&sums);
    const StepResult got = session.train_step(rank == 0 ? a : b);
    std::lock_guard lock(mutex);
    results[static_cast<size_t>(rank)] = weights_of(session);
    CHECK(got.sequences == want.sequences);
    CHECK(got.frames == want.frames);
    CHECK(got.loss == Approx(want.loss).epsilon(1e-6));
    CHECK(got.gradient_norm == Approx(want.gradient_norm).epsilon(1e-5));
  });
  CHECK(results[0] == results[1]);  // bit for bit
  const std::vector<float> single_weights = weights_of(single);
  double moved = 0, difference = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    moved = std::max(moved, std::abs(static_cast<double>(single_weights[i]) - start[i]));
    difference =
        std::max(difference, std::abs(static_cast<double>(single_weights[i]) - results[0][i]));
  }
  CHECK(moved > 1e-3);
  CHECK(difference <= 1e-6);  // the order of summation differs
}
