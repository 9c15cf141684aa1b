// A sequence whose labels cannot fit into its frames has no part in an update, wherever it is
// computed: the gradient is divided by the number of the others (docs/architecture.md, Session).
#include <cmath>
#include <mutex>

#include "comm/in_process/run_ranks.h"
#include "engine/rank_model.h"
#include "engine/reduce/bucket_sums.h"
#include "engine/reduce/sums.h"
#include "engine/reduce/tree_sums.h"
#include "engine/session.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"
#include "tests/rank_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;
constexpr size_t cols = 6;

Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", cols);
  x = layers::lstm(g, x, "lower", {.hidden = 10});
  x = layers::lstm(g, x, "upper", {.hidden = 8});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

SessionOptions options() {
  SessionOptions o;
  o.threads = 1;
  o.seed = 4;
  o.optimizer.kind = OptimizerOptions::sgd;
  o.optimizer.learning_rate = 0.5;
  o.optimizer.momentum = 0;
  o.optimizer.weight_decay = 0;
  o.optimizer.clip_norm = 0;
  return o;
}

// Batches of two sequences. `with` has a third, of 6 frames and 9 labels.
struct Batches {
  RandomBatch without, with, other;
  BatchView clean, infeasible, second;

  Batches()
      : without({20, 10}, classes, 3), with({20, 10, 6}, classes, 3), other({17, 3}, classes, 2) {
    Graph g;
    model(g);
    clean = without.view(g, classes, 1);
    second = other.view(g, classes, 5);
    with.labels = without.labels;
    with.label_offsets = without.label_offsets;
    for (int i = 0; i < 9; ++i) with.labels.push_back(1 + i % 2);
    with.label_offsets.push_back(static_cast<int32_t>(with.labels.size()));
    infeasible = with.view(g, classes, 1);
    // The two that they share have the same features.
    std::vector<float>&from = without.narrow.at("features"), &to = with.narrow.at("features");
    for (int32_t n : {0, 1}) {
      for (int32_t t = 0; t < without.layout.lengths[static_cast<size_t>(n)]; ++t) {
        std::copy_n(from.begin() + without.layout.row(t, n) * static_cast<int64_t>(cols), cols,
                    to.begin() + with.layout.row(t, n) * static_cast<int64_t>(cols));
      }
    }
  }
  Batches(const Batches&) = delete;  // the views are of its own memory
};

struct Updated {
  StepResult result;
  std::vector<float> weights;
};

Updated update_of(const SessionOptions& o, const std::vector<BatchView>& views) {
  Session session(model, o);
  for (const BatchView& view : views) session.accumulate(view);
  const StepResult result = session.update();
  const TensorView w = session.parameters().weights();
  return {result, {w.as<float>(), w.as<float>() + w.numel()}};
}

void check_same(const Updated& got, const Updated& want) {
  CHECK(got.result.infeasible == 1);
  CHECK(got.result.sequences == want.result.sequences + 1);
  CHECK_FALSE(got.result.skipped);
  CHECK(got.result.loss == Approx(want.result.loss).epsilon(1e-6));
  CHECK(got.result.mean_loss() == Approx(want.result.mean_loss()).epsilon(1e-6));
  CHECK(got.result.gradient_norm == Approx(want.result.gradient_norm).epsilon(1e-5));
  double worst = 0;
  REQUIRE(got.weights.size() == want.weights.size());
  for (size_t i = 0; i < want.weights.size(); ++i) {
    const double d = std::abs(static_cast<double>(got.weights[i]) - want.weights[i]);
    worst = d <= worst ? worst : d;  // NaN stays
  }
  CHECK(worst <= 1e-6);  // the order of sums
}

using MakeSums = std::function<std::unique_ptr<Sums>(ProcessGroup&, const Graph&, const Session&)>;

// One batch on each of two ranks.
Updated on_two_ranks(const std::vector<BatchView>& views, const MakeSums& make) {
  Updated update;
  std::mutex mutex;
  Graph graph;
  graph.training = true;
  append_backward(graph, model(graph).loss);
  run_ranks(2, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    Session session(model, options());
    const auto sums = make(*group, graph, session);
    session.set_sums(sums.get());
    sums->last_batch();
    session.accumulate(views[static_cast<size_t>(rank)]);
    if (auto* tree = dynamic_cast<TreeSums*>(sums.get())) {
      tree->take(rank);
    }
    const StepResult result = session.update();
    const TensorView w = session.parameters().weights();
    const std::lock_guard lock(mutex);
    update = {result, {w.as<float>(), w.as<float>() + w.numel()}};
  });
  return update;
}

}  // namespace

TEST_CASE("an infeasible sequence leaves the update as it is without it, alone and accumulated") {
  const Batches b;
  check_same(update_of(options(), {b.infeasible}), update_of(options(), {b.clean}));
  check_same(update_of(options(), {b.infeasible, b.second}),
             update_of(options(), {b.clean, b.second}));
  check_same(update_of(options(), {b.second, b.infeasible}),
             update_of(options(), {b.second, b.clean}));
  SessionOptions chunks = options();
  chunks.tbptt = 8;
  check_same(update_of(chunks, {b.infeasible, b.second}), update_of(chunks, {b.clean, b.second}));
}

TEST_CASE("an infeasible sequence is not in the divisor of several ranks") {
  const Batches b;
  const Updated want = update_of(options(), {b.clean, b.second});
  const std::vector<MakeSums> kinds = {
      [](ProcessGroup& group, const Graph&, const Session& session) {
        return std::make_unique<GroupSums>(group, session.parameters());
      },
      [](ProcessGroup& group, const Graph& graph, const Session& session) {
        return std::make_unique<BucketSums>(group, graph, session.parameters(), 2000);
      },
      [](ProcessGroup& group, const Graph&, const Session& session) {
        return std::make_unique<TreeSums>(group, 2, session.parameters(),
                                          *session.context().stream);
      }};
  for (const MakeSums& make : kinds) {
    check_same(on_two_ranks({b.infeasible, b.second}, make), want);
    check_same(on_two_ranks({b.second, b.infeasible}, make), want);
  }
}

TEST_CASE("an infeasible sequence is not in the divisor of a pipeline, nor of its replicas") {
  const Batches b;
  const std::vector<BatchView> all = {b.infeasible, b.second, b.clean, b.second};
  const BatchCapacity capacity = BatchCapacity::merge(b.infeasible.extent(), b.second.extent());
  for (int replicas : {1, 2}) {
    Updated update;
    std::mutex mutex;
    run_ranks(2 * replicas, [&](int rank, Transport& transport) {
      const auto group = make_ring_group(transport);
      const Ranks world(*group, std::chrono::seconds(20));
      RankGrid grid(transport, {replicas, 2, 1}, std::chrono::seconds(20));
      SplitSettings p;
      p.schedule = ScheduleKind::one_f_one_b;
      p.micro_batches = 2;
      p.placement = "1,2";
      RankModel trainer(model, options(), p, world, grid, capacity);
      const auto first = all.begin() + 2 * grid.replica();
      trainer.accumulate({first, first + 2}, true);
      const StepResult result = trainer.update();
      const std::vector<float> weights = trainer.gather("");
      const std::lock_guard lock(mutex);
      if (rank == 0) update = {result, weights};
    });
    std::vector<BatchView> without(all.begin(), all.begin() + 2 * replicas);
    without[0] = b.clean;
    check_same(update, update_of(options(), without));
  }
}
