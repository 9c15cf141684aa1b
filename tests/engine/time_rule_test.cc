// What ops say of time, and what becomes of those that say nothing.
#include "engine/graph/time_rule.h"

#include "engine/cut/sequence_graph.h"
#include "engine/placement.h"
#include "kernels/pointwise/pointwise.h"
#include "tests/engine/sequence_cases.h"
#include "tests/engine/wide_ctc.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Contains;

namespace {

// An op that only this test has: a copy, whose rule says neither time nor work.
const OpRule& untold_rule() {
  static const OpRule rule = [] {
    OpRule made = rule_of("pointwise");
    made.op = "untold";
    made.time = {};
    made.work = nullptr;
    return made;
  }();
  return rule;
}

Outputs with_untold(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "encoder", {.hidden = 8});
  const Attributes copy = {{"function", static_cast<int64_t>(PointwiseFunction::tanh)}};
  x = g.add_node("untold", {x}, copy)[0];
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// One convolution applied twice, so that its weights have two gradients.
Outputs shared_weights(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  const ValueId w = g.add_parameter("conv.weight", 6, 6 * 3, {Init::uniform, 0.3});
  g.value(w).taps = 3;
  Attributes window = {{"kernel", int64_t{3}}, {"left", int64_t{1}}};
  for (const char* one :
       {"stride", "dilation", "kernel_rows", "row_stride", "row_dilation", "groups"})
    window = window.with(one, int64_t{1});
  for (const char* none : {"above", "height", "out_height", "from", "to"})
    window = window.with(none, int64_t{0});
  for (int i = 0; i < 2; ++i) {
    x = g.add_node("conv", {x, g.as_compute(w), no_value, no_value, no_value}, window)[0];
    x = layers::tanh(g, x);
  }
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

}  // namespace

TEST_CASE("an op that says nothing of time is refused by whoever cuts or places it, by name") {
  const ExtraRule extra(untold_rule());
  Graph g;
  const Outputs outputs = with_untold(g);
  const std::string told =
      "the op 'untold' does not say what it does to time (its rule in "
      "engine/ops), so a model with it cannot ";
  CHECK_THROWS_WITH(find_layers(g), told + "be placed in the stages of a pipeline");
  CHECK_THROWS_WITH(streaming_graph(g), told + "stream");
  append_backward(g, outputs.loss);
  CHECK_THROWS_WITH(shard_graph(g, outputs.loss, 7), told + "be cut in time");
}

TEST_CASE("an op that makes frames of whole sequences is not cut, but placed in stages") {
  const auto model = [](Graph& g) {
    ValueId x = layers::input_frames(g, "features", 6);
    x = layers::group_norm(g, x, "norm", 2);
    const ValueId logits =
        layers::linear(g, layers::lstm(g, x, "l", {.hidden = 8}), "out", classes);
    return Outputs{layers::ctc_loss(g, logits), logits};
  };
  Graph g;
  const Outputs outputs = model(g);
  const std::string told =
      "the op 'group_norm' makes each frame of all frames of its sequence, so a model with it "
      "cannot ";
  CHECK_NOTHROW(find_layers(g));
  CHECK_THROWS_WITH(streaming_graph(g), told + "stream");
  append_backward(g, outputs.loss);
  CHECK_THROWS_WITH(shard_graph(g, outputs.loss, 7), told + "be cut in time");
}

TEST_CASE("a graph that is cut already is not cut again") {
  Graph g;
  const Outputs outputs = shared_weights(g);
  append_backward(g, outputs.loss);
  const Graph cut = shard_graph(g, outputs.loss, 7).graph;
  CHECK_THROWS_WITH(shard_graph(cut, outputs.loss, 7), Contains("is cut in time already"));
}

TEST_CASE("every op of the table says what it does to time") {
  for (std::string_view name : rule_names()) {
    CAPTURE(name);
    const OpRule& rule = rule_of(name);
    CHECK(rule.time.kind != TimeKind::unstated);
    CHECK((rule.work != nullptr || rule.time.kind == TimeKind::part));
    CHECK((rule.time.kind == TimeKind::window) == (rule.time.halo != nullptr));
    CHECK((rule.time.kind == TimeKind::pooled) == (rule.time.pooling != nullptr));
    CHECK((rule.time.kind == TimeKind::loss) == (rule.time.cut != nullptr));
  }
}

TEST_CASE("convolutions that share their weights are cut in time as others are") {
  const WideCtc same_arithmetic;
  const Graph shape = shape_of(shared_weights, DType::f64);
  RandomBatch batch({21, 16, 9}, classes, 1, 4);
  const std::vector<BatchView> together = {batch.view(shape, classes, 3)};
  const Result want = run_whole(shared_weights, DType::f64, together);
  for (int ranks : {2, 3}) {
    CAPTURE(ranks);
    const Result got = run_sharded(shared_weights, DType::f64, ranks, together);
    CHECK(worst_difference(got.gradients, want.gradients) < 1e-9);
    CHECK(worst_difference(got.losses, want.losses) < 1e-9);
  }
}
