// The output layer and CTC as one node: the same model as with logits in memory.
#include <algorithm>
#include <cmath>

#include "engine/session.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"
#include "tests/engine/small_model.h"

using namespace rondo;
using rondo::test::check_gradients;
using rondo::test::SmallBatches;

namespace {

bool has(const Graph& g, const char* op) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == op; });
}

Session session_of(DeviceKind device, DType compute, int64_t fuse_output_from) {
  SessionOptions o;
  o.device = device;
  o.compute = compute;
  o.threads = 2;
  o.optimizer.kind = OptimizerOptions::sgd;
  o.optimizer.learning_rate = 0.05;
  o.fuse_output_from = fuse_output_from;
  return Session(test::small_model(12), o);
}

// The greatest relative difference of losses, and the greatest one of weights, over three steps.
std::pair<double, double> drift(DeviceKind device, DType compute) {
  const SmallBatches batches(3, {19, 14, 9, 2});
  Session with = session_of(device, compute, 0), without = session_of(device, compute, 1);
  REQUIRE(has(with.training_graph(), "ctc"));
  REQUIRE(has(without.training_graph(), "linear_ctc_grad"));
  REQUIRE_FALSE(has(without.training_graph(), "ctc"));
  double losses = 0, weights = 0;
  for (const BatchView& batch : batches.views) {
    const double a = with.train_step(batch).loss, b = without.train_step(batch).loss;
    REQUIRE(a > 0);
    losses = std::fmax(losses, std::fabs(a - b) / a);
  }
  const std::vector<float> a = test::weights_of(with), b = test::weights_of(without);
  for (size_t i = 0; i < a.size(); ++i) {
    weights = std::fmax(weights, std::fabs(static_cast<double>(a[i] - b[i])));
  }
  CHECK(std::isfinite(losses + weights));
  return {losses, weights};
}

}  // namespace

TEST_CASE("gradient: an output layer and CTC as one", "[fused]") {
  for (const bool bias : {true, false}) {
    for (const int32_t blank : {0, 4}) {
      const auto result = check_gradients(
          [&](Graph& g) {
            const ValueId x = layers::linear(g, layers::input_frames(g, "features", 3), "front", 5);
            const ValueId loss = layers::ctc_loss(
                g, layers::linear(g, layers::tanh(g, x), "out", 4 + blank / 4, bias),
                {.blank = blank});
            REQUIRE(fuse_loss(g, loss, 4));
            return loss;
          },
          {7, 5, 5, 2, 1}, 4, 1);
      INFO(result.where);
      CHECK(result.compared > 0);
      CHECK(result.worst <= 2e-7);
    }
  }
}

TEST_CASE("a model trains with fused output as without", "[slow][fused]") {
  // f32: rounding of sums in another order. bf16: logits that are not rounded, too.
  const auto cpu = drift(DeviceKind::cpu, DType::f32);
  CHECK(cpu.first < 1e-5);
  CHECK(cpu.second < 1e-5);
  const auto simulated = drift(DeviceKind::sim, DType::f32);
  CHECK(simulated.first < 1e-5);
  CHECK(simulated.second < 1e-5);
  const auto narrow = drift(DeviceKind::cpu, DType::bf16);
  CHECK(narrow.first < 1e-2);
  CHECK(narrow.second < 1e-2);
}

TEST_CASE("the output is fused where it is wide, and nobody else reads it", "[fused]") {
  const auto fuses = [](int64_t least, bool log_softmax, bool twice) {
    Graph g;
    const ValueId x = layers::linear(g, layers::input_frames(g, "features", 3), "out", 6);
    if (twice) layers::sigmoid(g, x);
    const ValueId y = log_softmax ? layers::log_softmax(g, x) : x;
    return fuse_loss(g, layers::ctc_loss(g, y, {.log_softmax_input = log_softmax}), least);
  };
  CHECK(fuses(6, false, false));
  CHECK_FALSE(fuses(7, false, false));
  CHECK_FALSE(fuses(6, true, false));
  CHECK_FALSE(fuses(6, false, true));
}

TEST_CASE("labels of a fused output have to be classes of it", "[fused]") {
  Session s = session_of(DeviceKind::cpu, DType::f32, 1);
  const SmallBatches batches(1, {9, 8});
  BatchView batch = batches.views[0];
  std::vector<int32_t> labels(batch.labels.begin(), batch.labels.end());
  labels[0] = test::small_classes;
  batch.labels = labels;
  CHECK_THROWS_WITH(s.train_step(batch), Catch::Contains("5"));
}

TEST_CASE("logits of many classes are not in memory", "[fused]") {
  constexpr int64_t hidden = 64, classes = 6000;
  const auto model = [](Graph& g) {
    const ValueId x =
        layers::tanh(g, layers::linear(g, layers::input_frames(g, "features", 8), "front", hidden));
    const ValueId logits = layers::linear(g, x, "out", classes);
    return Outputs{layers::ctc_loss(g, logits), logits};
  };
  const BatchCapacity batch{.packed = {40 * 100, 100, 40}, .max_label_length = 20, .labels = 800};
  const auto activations = [&](int64_t from) {
    SessionOptions o;
    o.fuse_output_from = from;
    return Session(model, o).predict_memory(batch).activations;
  };
  const size_t logits = size_t{4} * 4000 * classes;
  CHECK(activations(0) > logits);
  CHECK(activations(4096) < logits / 4);
}
