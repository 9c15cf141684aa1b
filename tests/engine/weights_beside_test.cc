// Weight gradients on a second stream of the simulated GPU, which runs streams in any order that
// events allow: the bits of one stream, whatever runs first.
#include <algorithm>
#include <utility>

#include "engine/graph/planner.h"
#include "engine/session.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/engine/small_model.h"

using namespace rondo;
using rondo::test::weights_of;

namespace {

const ModelFunction model = rondo::test::small_model(8);

struct Batches : rondo::test::SmallBatches {
  explicit Batches(int n) : SmallBatches(n, {12, 9, 5}) {}
};

SessionOptions options(bool beside, DeviceKind device = DeviceKind::sim,
                       DType compute = DType::f32) {
  SessionOptions o;
  o.device = device;
  o.threads = 2;
  o.compute = compute;
  o.optimizer.learning_rate = 1e-2;
  o.optimizer.clip_norm = 5;
  o.weights_beside = beside;
  return o;
}

// Weights after updates of one batch, of two batches, and of batches that get longer, with up to
// two batches and updates in flight.
std::vector<float> trained(const SessionOptions& o, const Batches& batches) {
  Session session(model, o);
  const auto settle = [&](size_t left) {
    while (session.in_flight() > left) session.collect();
  };
  for (int i = 0; i < 9; ++i) {
    const auto next = i % 3 == 0 ? Session::Next::anything : Session::Next::update;
    if (i % 2 == 0) session.enqueue(batches.views[static_cast<size_t>(i) % 2]);
    session.enqueue(batches.views[static_cast<size_t>(i) / 3], next);
    session.enqueue_update();
    settle(2);
  }
  settle(0);
  return weights_of(session);
}

struct Bytes {
  size_t begin, end;
  bool meets(const Bytes& other) const { return begin < other.end && other.begin < end; }
};

// Where values of a node lie in the arena, and its scratch.
std::vector<Bytes> places(const Graph& g, const MemoryPlan& plan, const BatchCapacity& capacity,
                          const std::vector<ValueId>& ids, size_t node) {
  std::vector<Bytes> found;
  for (ValueId id : ids) {
    if (id == no_value || !plan.wanted(id)) continue;
    const size_t at = plan.value_offset[static_cast<size_t>(id)];
    found.push_back({at, at + static_cast<size_t>(value_elements(g, capacity, g.shape(id))) *
                                  size_of(g.value(id).dtype)});
  }
  if (plan.workspace_bytes[node] > 0) {
    const size_t at = plan.workspace_offset[node];
    found.push_back({at, at + plan.workspace_bytes[node]});
  }
  return found;
}

// How often a later node of the pass writes what a node of `beside` reads, or its scratch.
int clashes(const Graph& g, const MemoryPlan& plan, const BatchCapacity& capacity,
            const std::vector<bool>& beside) {
  int found = 0;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (!beside[i]) continue;
    for (const Bytes& kept : places(g, plan, capacity, g.nodes[i].inputs, i)) {
      for (size_t later = i + 1; later < g.nodes.size(); ++later) {
        if (!plan.needed[later] || beside[later]) continue;
        for (const Bytes& written : places(g, plan, capacity, g.nodes[later].outputs, later)) {
          found += kept.meets(written) ? 1 : 0;
        }
      }
    }
  }
  return found;
}

// So deep that the backward pass finds room in what the layers above have left.
Outputs deep_model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 40);
  x = layers::lstm(g, x, "encoder", {.hidden = 32, .layers = 4, .dropout = 0.1});
  x = layers::lstm(g, x, "upper", {.hidden = 48, .layers = 2, .bidirectional = true});
  const ValueId logits = layers::linear(g, x, "out", rondo::test::small_classes);
  return {.loss = layers::ctc_loss(g, logits), .prediction = logits};
}

}  // namespace

TEST_CASE("weight gradients beside the backward pass have the bits of one stream") {
  const Batches batches(3);
  for (const DType compute : {DType::f32, DType::bf16}) {
    const std::vector<float> want = trained(options(false, DeviceKind::sim, compute), batches);
    for (uint64_t seed = 1; seed <= 8; ++seed) {  // which stream runs ahead, and which lags
      set_sim_options({SimOrder::forward, seed});
      INFO(name_of(compute) << ", seed " << seed);
      CHECK(trained(options(true, DeviceKind::sim, compute), batches) == want);
    }
    set_sim_options({});
  }
}

TEST_CASE(
    "a step with weight gradients beside is a launch of the pass, one of each group, the update") {
  const Batches batches(1);
  Session session(model, options(true));
  session.reserve(batches.capacity());
  for (int i = 0; i < 2; ++i) session.train_step(batches.views[0]);
  const SimCounters before = sim_counters();
  session.train_step(batches.views[0]);
  const SimCounters after = sim_counters();
  // Groups: the output layer's and those of two layers of LSTMs, between which gradients flow.
  CHECK(after.launches - before.launches == 1 + 3 + 1);
  CHECK(after.allocations == before.allocations);
  CHECK(after.stream_waits == before.stream_waits);
}

TEST_CASE("on a CPU, whose streams run work at once, the option changes nothing") {
  const Batches batches(2);
  Session a(model, options(true, DeviceKind::cpu)), b(model, options(false, DeviceKind::cpu));
  for (const BatchView& v : batches.views) a.train_step(v), b.train_step(v);
  CHECK(weights_of(a) == weights_of(b));
  CHECK(a.predict_memory(batches.capacity()).activations ==
        b.predict_memory(batches.capacity()).activations);
}

TEST_CASE(
    "what weight gradients read, and their scratch, stay as they are to the end of the plan") {
  Graph g;
  append_backward(g, deep_model(g).loss);
  Stream stream = sim_device().make_stream();
  const Context context{Backend::sim, &sim_device(), &stream, nullptr};
  const BatchCapacity capacity{{500, 60, 10}, 12, 90};
  const MemoryPlan plan = plan_memory(g, context, capacity, Reuse::weights_beside);
  const MemoryPlan one_stream = plan_memory(g, context, capacity);
  CHECK(std::count(one_stream.beside.begin(), one_stream.beside.end(), true) == 0);
  CHECK(std::count(plan.beside.begin(), plan.beside.end(), true) == 4 + 2 + 1);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (plan.beside[i]) CHECK(g.nodes[i].phase == Phase::weight_gradient);
  }
  CHECK(clashes(g, plan, capacity, plan.beside) == 0);
  CHECK(clashes(g, one_stream, capacity, plan.beside) > 0);  // else this test could not fail
  CHECK(plan.arena_bytes >= one_stream.arena_bytes);
  CHECK(plan.arena_bytes < plan_memory(g, context, capacity, Reuse::never).arena_bytes);
}

TEST_CASE("a weight whose gradient another node makes too waits for its turn") {
  Graph g;
  const Outputs outputs = model(g);
  append_backward(g, outputs.loss);
  Stream stream = sim_device().make_stream();
  const Context context{Backend::sim, &sim_device(), &stream, nullptr};
  const BatchCapacity capacity{{50, 6, 10}, 12, 90};
  const auto last = std::find_if(g.nodes.rbegin(), g.nodes.rend(),
                                 [](const Node& n) { return n.phase == Phase::weight_gradient; });
  const auto at = static_cast<size_t>(g.nodes.rend() - last) - 1;
  REQUIRE(plan_memory(g, context, capacity, Reuse::weights_beside).beside[at]);
  // Something of the backward pass adds to one of its gradients.
  Node adds = g.nodes[at];
  adds.phase = Phase::backward;
  g.nodes.push_back(adds);
  CHECK_FALSE(plan_memory(g, context, capacity, Reuse::weights_beside).beside[at]);
  // Something reads it.
  g.nodes.pop_back();
  const ValueId gradient = g.nodes[at].outputs.front();
  g.nodes.push_back(
      {"accumulate", {gradient, gradient}, {gradient}, {}, Phase::backward, 0, no_value});
  CHECK_FALSE(plan_memory(g, context, capacity, Reuse::weights_beside).beside[at]);
}
