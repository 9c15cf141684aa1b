// The graph, its layout in memory, bound graphs: structure and contracts.
#include <algorithm>
#include <set>

#include "engine/graph/bucket.h"
#include "engine/graph/memory_layout.h"
#include "engine/steps/lockstep.h"
#include "kernels/base/cpu/parallel.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;

ValueId small_model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "lstm",
                   {.hidden = 20, .layers = 2, .bidirectional = true, .dropout = 0.2});
  return layers::ctc_loss(g, layers::linear(g, layers::tanh(g, x), "out", classes));
}

struct Runner {
  Graph graph;
  ValueId loss;
  Stream stream = cpu_device().make_stream();
  ThreadPool pool;
  Context context;
  std::unique_ptr<Parameters> parameters;

  explicit Runner(DType compute = DType::f32, int threads = 2) : pool(threads) {
    graph.compute = compute;
    loss = small_model(graph);
    append_backward(graph, loss);
    context = {Backend::cpu, &cpu_device(), &stream, &pool};
    parameters = std::make_unique<Parameters>(graph, cpu_device());
    parameters->initialize(1);
  }
  std::vector<float> gradients_after(const BatchView& batch, const BatchCapacity& capacity,
                                     Reuse reuse) {
    BoundGraph bound(graph, context, capacity, *parameters, reuse);
    const TensorView g = parameters->gradients();
    std::fill_n(g.as<float>(), g.numel(), 0.0f);
    bound.load(batch);
    bound.run();
    return {g.as<float>(), g.as<float>() + g.numel()};
  }
};

// Pairs of values that are alive at the same node and share bytes, in-place pairs aside.
int overlapping_pairs(const Graph& g, const MemoryLayout& memory, const BatchCapacity& capacity) {
  const auto bytes = [&](ValueId id) {
    return static_cast<size_t>(value_elements(g, capacity, g.shape(id))) *
           size_of(g.value(id).dtype);
  };
  int overlaps = 0;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& node = g.nodes[i];
    // Everything that a later node reads and an earlier one (or this one) wrote is alive here.
    std::vector<ValueId> alive;
    for (size_t v = 0; v < g.values.size(); ++v) {
      const auto id = static_cast<ValueId>(v);
      if (!memory.wanted(id)) continue;
      bool before = false, after = false;
      for (size_t k = 0; k < g.nodes.size(); ++k) {
        const auto& out = g.nodes[k].outputs;
        const auto& in = g.nodes[k].inputs;
        if (k < i && std::find(out.begin(), out.end(), id) != out.end()) before = true;
        if (k > i && std::find(in.begin(), in.end(), id) != in.end()) after = true;
      }
      if (before && after) alive.push_back(id);
    }
    for (ValueId id : node.outputs) {
      if (id != no_value && memory.wanted(id)) alive.push_back(id);
    }
    for (size_t a = 0; a < alive.size(); ++a) {
      for (size_t b = a + 1; b < alive.size(); ++b) {
        const size_t x = memory.value_offset[static_cast<size_t>(alive[a])];
        const size_t y = memory.value_offset[static_cast<size_t>(alive[b])];
        if (x < y + bytes(alive[b]) && y < x + bytes(alive[a])) ++overlaps;
      }
    }
  }
  return overlaps;
}

}  // namespace

TEST_CASE("the layout reuses memory and never lets live values overlap") {
  Runner r;
  const BatchCapacity capacity{{500, 60, 10}, 12, 90};
  const MemoryLayout reuse = lay_out_memory(r.graph, r.context, capacity);
  const MemoryLayout none = lay_out_memory(r.graph, r.context, capacity, Reuse::never);
  CHECK(overlapping_pairs(r.graph, reuse, capacity) == 0);
  CHECK(reuse.arena_bytes < none.arena_bytes);
  CHECK(none.arena_bytes >= none.sum_of_values);
}

TEST_CASE("gradients do not depend on memory reuse, capacity or threads") {
  Runner r;
  RandomBatch batch({40, 31, 31, 17, 3, 1}, classes, 4);
  const BatchView view = batch.view(r.graph, classes, 5);
  const BatchCapacity exact = view.extent();
  BatchCapacity larger = exact;
  larger.packed.rows += 37;
  larger.packed.frames += 9;
  larger.packed.sequences += 4;
  larger.max_label_length += 11;
  larger.labels += 70;
  const auto want = r.gradients_after(view, exact, Reuse::never);
  CHECK(r.gradients_after(view, exact, Reuse::by_liveness) == want);
  CHECK(r.gradients_after(view, larger, Reuse::by_liveness) == want);
  Runner single(DType::f32, 1), many(DType::f32, 3);
  CHECK(single.gradients_after(view, exact, Reuse::by_liveness) == want);
  CHECK(many.gradients_after(view, larger, Reuse::by_liveness) == want);
  double norm = 0;
  for (float g : want) norm += static_cast<double>(g) * static_cast<double>(g);
  CHECK(norm > 0);
}

TEST_CASE("kernels and references agree node by node") {
  for (DType compute : {DType::f32}) {
    Runner r(compute);
    RandomBatch batch({40, 31, 31, 17, 3, 1}, classes, 4);
    const BatchView view = batch.view(r.graph, classes, 5);
    BoundGraph bound(r.graph, r.context, view.extent(), *r.parameters);
    Lockstep lockstep(bound, *r.parameters);
    lockstep.load(view);
    lockstep.run();
    CHECK(lockstep.values_compared() > 20);
  }
}

TEST_CASE("a batch that exceeds the capacity, or lacks an input, is refused") {
  Runner r;
  RandomBatch batch({9, 4}, classes, 4);
  BatchView view = batch.view(r.graph, classes, 5);
  BatchCapacity small = view.extent();
  small.packed.rows -= 1;
  BoundGraph tight(r.graph, r.context, small, *r.parameters);
  CHECK_THROWS_WITH(tight.load(view), Catch::Contains("exceeds the capacity of"));
  BoundGraph bound(r.graph, r.context, view.extent(), *r.parameters);
  view.inputs = {};
  CHECK_THROWS_WITH(bound.load(view), Catch::Contains("lacks input 'features'"));
}

// A batch whose texts were forgotten would train the model to say nothing.
TEST_CASE("a batch without label offsets is refused where a loss reads them") {
  Runner r;
  RandomBatch batch({9, 4}, classes, 4);
  const BatchView with = batch.view(r.graph, classes, 5);
  BoundGraph bound(r.graph, r.context, with.extent(), *r.parameters);
  BatchView without = with;
  without.label_offsets = {};
  const char* const refusal =
      "a batch of 2 sequences has no label offsets, and ctc reads them; expected 3 (two equal ones "
      "for an empty text)";
  CHECK_THROWS_WITH(bound.load(without), refusal);
  without.labels = {};
  CHECK_THROWS_AS(bound.load(without), InputError);
  // Two empty texts, said explicitly.
  const std::vector<int32_t> none(3, 0);
  without.label_offsets = none;
  bound.load(without);
  bound.run();
  CHECK(std::isfinite(bound.view(r.loss).as<float>()[0]));
}

TEST_CASE("a batch's bucket holds it, is not much longer, and is one of few") {
  const BatchCapacity most{{30000, 2000, 300}, 90, 9000};
  std::set<int32_t> frames, sequences;
  for (int32_t t = 1; t <= 2000; ++t) {
    const int32_t n = std::min(300, 30000 / t);
    const BatchCapacity extent{{int64_t{t} * n, t, n}, 5, 7};
    const BatchCapacity bucket = bucket_of(extent, most);
    INFO(t << " frames, " << n << " sequences");
    REQUIRE(bucket.holds(extent));
    REQUIRE(most.holds(bucket));
    REQUIRE(bucket.packed.frames <= std::max(16, t * 3 / 2));
    REQUIRE(bucket.packed.sequences <= std::max(4, 2 * n));
    frames.insert(bucket.packed.frames);
    sequences.insert(bucket.packed.sequences);
  }
  CHECK(frames.size() == 15);  // 16, 24, 32, 48, ... 1536, and the longest
  CHECK(sequences == std::set<int32_t>{16, 32, 64, 128, 256, 300});
}

TEST_CASE("what nobody reads is not computed and has no memory") {
  Graph g;
  g.training = false;
  const ValueId x = layers::input_frames(g, "features", 6);
  const auto lstm = layers::lstm_layer(g, x, "lstm", {.hidden = 8});
  const ValueId logits = layers::linear(g, lstm.y, "out", classes);
  layers::ctc_loss(g, logits);
  g.keep(logits);
  Runner r;
  const MemoryLayout memory = lay_out_memory(g, r.context, {{100, 20, 5}, 4, 20});
  CHECK(memory.wanted(logits));
  CHECK_FALSE(memory.needed.back());  // the loss
  CHECK_FALSE(memory.wanted(lstm.final_state.h));
}

TEST_CASE("graphs that differ have different hashes") {
  Graph a, b, c;
  small_model(a);
  small_model(b);
  CHECK(a.hash() == b.hash());
  layers::input_frames(c, "features", 6);
  CHECK(a.hash() != c.hash());
  b.nodes.back().stage = 1;
  CHECK(a.hash() != b.hash());
}

TEST_CASE("layers refuse what does not fit") {
  Graph g;
  const ValueId x = layers::input_frames(g, "features", 6);
  CHECK_THROWS_WITH(layers::input_frames(g, "features", 6), Catch::Contains("already"));
  CHECK_THROWS_WITH(layers::lstm(g, x, "l", {.hidden = 0}), Catch::Contains("hidden is 0"));
  CHECK_THROWS_WITH(layers::dropout(g, x, "d", 1.0), Catch::Contains("expected [0, 1)"));
  CHECK_THROWS_WITH(layers::ctc_loss(g, x, {.blank = 6}), Catch::Contains("blank 6 of 6"));
  CHECK_THROWS_WITH(layers::add(g, x, layers::linear(g, x, "w", 3)), Catch::Contains("add"));
  CHECK_THROWS_WITH(append_backward(g, x), Catch::Contains("does not depend"));
}
