// Stacks of LSTM layers as one node: which layers it takes, and that what a GPU computes of them at
// once are the same bits as one layer after the other.
#include <algorithm>
#include <cmath>

#include "engine/graph/memory_layout.h"
#include "engine/ops/lstm/lstm_stack.h"
#include "engine/rank_model.h"
#include "engine/session.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/dispatch.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 4;

// What a streaming recogniser is, in small.
Outputs streamer(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 5);
  x = layers::lstm(g, x, "encoder", {.hidden = 12, .layers = 3, .bidirectional = false});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

int64_t count(const Graph& g, const char* op) {
  return std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == op; });
}

// How many layers each stack of the graph has; 1 for an lstm node that is by itself.
std::vector<int64_t> stacks_of(Graph g) {
  stack_lstm_layers(g);
  std::vector<int64_t> found;
  for (const Node& n : g.nodes) {
    if (n.op == "lstm") found.push_back(1);
    if (n.op == "lstm_stack") found.push_back(n.attributes.integer("layers"));
  }
  return found;
}

// Stacks the layers, and looks whether every activation is made before it is read.
void check_order(Graph& g) {
  stack_lstm_layers(g);
  std::vector<bool> made(g.values.size(), false);
  for (const Node& node : g.nodes) {
    for (ValueId id : node.outputs) {
      if (id != no_value) made[static_cast<size_t>(id)] = true;
    }
    for (ValueId id : node.inputs) {
      if (id == no_value || g.value(id).role != ValueRole::activation) continue;
      CHECK(made[static_cast<size_t>(id)]);
    }
  }
}

class Preferred {
 public:
  Preferred(const char* op, const char* name) : op_(op) { prefer_variant(op, name); }
  ~Preferred() { prefer_variant(op_, ""); }
  Preferred(const Preferred&) = delete;
  Preferred& operator=(const Preferred&) = delete;

 private:
  const char* op_;
};

Session session_of(DeviceKind device, DType compute) {
  SessionOptions o;
  o.device = device;
  o.compute = compute;
  o.threads = 2;
  o.optimizer.kind = OptimizerOptions::sgd;
  o.optimizer.learning_rate = 0.05;
  return Session(streamer, o);
}

struct Trained {
  bool cuttable = false;  // by those who cut the graph in time, and know no stacks
  std::vector<double> losses;
  std::vector<float> prediction, weights;
  int64_t stacks = 0;
};

Trained train(DeviceKind device, DType compute) {
  Session session = session_of(device, compute);
  Trained t;
  t.cuttable = count(session.training_graph(), "lstm") == 3 &&
               count(session.rank_model().evaluation_graph(), "lstm") == 3;
  t.stacks = count(session.rank_model().executed_graph(), "lstm_stack") +
             count(session.rank_model().executed_graph(), "lstm_stack_backward");
  Graph g;
  g.compute = compute;
  streamer(g);
  const std::vector<std::vector<int32_t>> lengths = {{23, 17, 9, 9, 1}, {12, 12}, {30, 4, 3}};
  std::vector<RandomBatch> batches;
  BatchCapacity capacity;
  for (unsigned i = 0; i < lengths.size(); ++i) {
    batches.emplace_back(lengths[i], classes, i, 1);
    capacity = BatchCapacity::merge(capacity, batches.back().view(g, classes, i).extent());
  }
  session.reserve(capacity);
  for (unsigned step = 0; step < 6; ++step) {
    t.losses.push_back(session.train_step(batches[step % 3].view(g, classes, step % 3)).loss);
  }
  t.prediction = session.predict(batches[0].view(g, classes, 0));
  const TensorView w = session.parameters().weights();
  t.weights.assign(w.as<float>(), w.as<float>() + w.numel());
  return t;
}

}  // namespace

TEST_CASE("stacks: layers that a node takes") {
  const auto graph_of = [](auto add) {
    Graph g;
    const ValueId x = layers::input_frames(g, "features", 5);
    layers::ctc_loss(g, layers::linear(g, add(g, x), "out", classes));
    return g;
  };
  using Options = layers::LstmOptions;
  const auto stack = [&](const Options& options) {
    return stacks_of(
        graph_of([&](Graph& g, ValueId x) { return layers::lstm(g, x, "encoder", options); }));
  };
  using Found = std::vector<int64_t>;
  CHECK(stack({.hidden = 6, .layers = 4, .bidirectional = false}) == Found{4});
  CHECK(stack({.hidden = 6, .layers = 1, .bidirectional = false}) == Found{1});
  CHECK(stack({.hidden = 6, .layers = 2, .bidirectional = true}) == Found{1, 1});
  CHECK(stack({.hidden = 6, .layers = 2, .bidirectional = false, .projection = 3}) == Found{1, 1});
  CHECK(stack({.hidden = 6, .layers = 11, .bidirectional = false}) == Found{8, 3});
  // Something lies between, in training.
  CHECK(stack({.hidden = 6, .layers = 2, .bidirectional = false, .dropout = 0.1}) == Found{1, 1});
  CHECK(stacks_of(graph_of([](Graph& g, ValueId x) {
          x = layers::lstm(g, x, "a", {.hidden = 6, .layers = 2, .bidirectional = false});
          x = layers::layer_norm(g, x, "norm");
          return layers::lstm(g, x, "b", {.hidden = 6, .layers = 3, .bidirectional = false});
        })) == Found{2, 3});
  CHECK(stacks_of(graph_of([](Graph& g, ValueId x) {
          x = layers::lstm(g, x, "a", {.hidden = 6, .bidirectional = false});
          x = layers::lstm(g, x, "b", {.hidden = 7, .bidirectional = false});
          return layers::lstm(g, x, "c", {.hidden = 7, .bidirectional = false});
        })) == Found{1, 2});
}

TEST_CASE("stacks: what others read of a layer is there in time") {
  Graph g;
  ValueId x = layers::input_frames(g, "features", 5);
  const ValueId a = layers::lstm(g, x, "a", {.hidden = 6, .bidirectional = false});
  const ValueId early = layers::tanh(g, a);  // before b: a is by itself
  const ValueId b = layers::lstm(g, a, "b", {.hidden = 6, .bidirectional = false});
  const ValueId c = layers::lstm(g, b, "c", {.hidden = 6, .bidirectional = false});
  const ValueId late = layers::add(g, early, b);  // after c
  append_backward(g,
                  layers::ctc_loss(g, layers::linear(g, layers::add(g, late, c), "out", classes)));
  CHECK(stacks_of(g) == std::vector<int64_t>{1, 2});
  check_order(g);
}

TEST_CASE("stacks: gradients from the top, those of weights behind them") {
  Graph g;
  ValueId x = layers::input_frames(g, "features", 5);
  x = layers::lstm(g, x, "encoder", {.hidden = 6, .layers = 4, .bidirectional = false});
  append_backward(g, layers::ctc_loss(g, layers::linear(g, x, "out", classes)));
  stack_lstm_layers(g);
  check_order(g);
  REQUIRE(count(g, "lstm_stack_backward") == 1);
  CHECK(count(g, "lstm_backward") == 0);
  CHECK(count(g, "lstm_weight_grad") == 4);
  const auto stack = std::find_if(g.nodes.begin(), g.nodes.end(),
                                  [](const Node& n) { return n.op == "lstm_stack_backward"; });
  CHECK(stack->attributes.integer("layers") == 4);
  // Each layer's dgates lie where its gates were.
  ThreadPool pool(1);
  const Context context{Backend::cpu, &cpu_device(), nullptr, &pool};
  const MemoryLayout memory = lay_out_memory(g, context, {{20, 9, 3}, 8, 4}, Reuse::by_liveness);
  for (size_t l = 0; l < 4; ++l) {
    const auto gates = static_cast<size_t>(stack->inputs[10 * l + 1]);
    const auto dgates = static_cast<size_t>(stack->outputs[5 * l]);
    CHECK(memory.value_offset[gates] != no_offset);
    CHECK(memory.value_offset[gates] == memory.value_offset[dgates]);
  }
}

TEST_CASE("simulated GPU: layers of a stack at once give the bits of one after the other",
          "[slow]") {
  for (DType compute : {DType::f32, DType::bf16}) {
    const Preferred forward("lstm_forward", "cluster_split");
    const Preferred backward("lstm_backward", "cluster_split");
    const Trained one_by_one = train(DeviceKind::sim, compute);
    CHECK(one_by_one.stacks == 0);
    const Preferred stack("lstm_stack_forward", "wavefront");
    const Preferred stack_backward("lstm_stack_backward", "wavefront");
    const Trained at_once = train(DeviceKind::sim, compute);
    CHECK(at_once.stacks == 2);
    CHECK(at_once.cuttable);
    CHECK(at_once.losses == one_by_one.losses);
    CHECK(at_once.prediction == one_by_one.prediction);
    CHECK(at_once.weights == one_by_one.weights);
    CHECK(std::isfinite(at_once.losses.back()));
    CHECK(at_once.losses.back() < at_once.losses[2]);
  }
  CHECK(preferred_in_vain().empty());
}

TEST_CASE("CPUs keep layers by themselves") {
  const Preferred stack("lstm_stack_forward", "wavefront");
  CHECK(count(session_of(DeviceKind::cpu, DType::f32).rank_model().executed_graph(),
              "lstm_stack") == 0);
}
