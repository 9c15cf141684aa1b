// Sequences cut in time over ranks give what one rank gives.
#include <cmath>

#include "comm/group/process_group.h"
#include "comm/in_process/in_process.h"
#include "comm/in_process/run_ranks.h"
#include "engine/session.h"
#include "tests/catch.h"
#include "tests/engine/sequence_cases.h"
#include "tests/engine/wide_ctc.h"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr auto patience = std::chrono::seconds(60);

// Its convolutions read both sides at the input, at another level, ahead, and with gaps; two stand
// in a row.
Outputs convolutional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::relu(g, layers::conv(g, x, "front", {.channels = 9, .kernel = 4}));
  x = layers::gelu(g, layers::conv(g, x, "half", {.channels = 10, .kernel = 5, .stride = 2}));
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .bidirectional = true});
  x = layers::conv(g, x, "ahead", {.channels = 7, .kernel = 3, .context = ConvContext::future});
  x = layers::dropout(g, x, "dropout", 0.2);
  x = layers::conv(g, x, "wide", {.channels = 6, .kernel = 2, .dilation = 2});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// Images: windows that reach over cuts, before and behind pooling, and channels that are dropped in
// all parts alike.
Outputs images(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::conv2d(g, x, "front", {.channels = 4, .kernel_height = 3, .kernel_width = 5});
  x = layers::dropout(g, layers::relu(g, x), "dropout", 0.3, layers::DropoutOver::channels);
  x = layers::pool2d(g, x, "pool", Pooling2d::greatest, 2, 2);
  x = layers::conv2d(g, x, "wide",
                     {.channels = 3, .kernel_height = 2, .kernel_width = 4, .stride_height = 2});
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .bidirectional = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

}  // namespace

TEST_CASE("shards own all frames once, in whole blocks, and are even") {
  for (int32_t block : {1, 2, 6}) {
    for (int shards : {1, 2, 3, 5}) {
      for (int32_t length : {0, 1, 2, 7, 30, 61}) {
        int32_t at = 0, least = INT32_MAX, most = 0;
        for (int s = 0; s < shards; ++s) {
          const FrameRange r = shard_frames(length, block, s, shards);
          CHECK(r.begin == at);
          CHECK((r.begin % block == 0 || r.begin == length));
          at = r.end;
          least = std::min(least, r.size());
          most = std::max(most, r.size());
        }
        CHECK(at == length);
        CHECK(most - least < 2 * block);
      }
    }
  }
}

TEST_CASE("shards of layers that need frames of a neighbour own enough of them, or nothing") {
  for (int32_t block : {1, 2, 6}) {
    for (int32_t least : {2, 3}) {
      for (int shards : {1, 2, 3, 5}) {
        for (int32_t length : {0, 1, 2, 7, 13, 30, 61}) {
          CAPTURE(block, least, shards, length);
          const BatchCapacity capacity =
              shard_capacity({{length, length, 1}, 0, 0}, block, shards, least);
          int32_t at = 0;
          for (int s = 0; s < shards; ++s) {
            const FrameRange r = shard_frames(length, block, s, shards, least);
            CHECK(r.begin == at);
            CHECK((r.begin % block == 0 || r.begin == length));
            CHECK((r.size() == 0 || r.size() > (least - 1) * block || r.size() == length));
            CHECK((r.end == length || r.size() >= least * block));
            CHECK(r.size() <= capacity.packed.frames);
            CHECK(r.size() <= capacity.packed.rows);
            at = r.end;
          }
          CHECK(at == length);
          // As many parts as there can be.
          const int32_t blocks = (length + block - 1) / block;
          CHECK((shard_frames(length, block, shards - 1, shards, least).size() > 0) ==
                (shards == 1 ? length > 0 : blocks >= shards * least));
        }
      }
    }
  }
}

TEST_CASE("shards sum to the gradient and loss of one rank, in f64") {
  for (const ModelFunction& model :
       {ModelFunction(unidirectional), ModelFunction(bidirectional), ModelFunction(framewise),
        ModelFunction(convolutional), ModelFunction(images), ModelFunction(pooled<false>),
        ModelFunction(pooled<true>)}) {
    const Graph shape = shape_of(model, DType::f64);
    // Some shards own nothing of some sequences of the second batch, and nothing at all of the
    // third.
    RandomBatch first({23, 20, 12}, classes, 1, 6), second({17, 4, 1}, classes, 2, 6),
        third({2}, classes, 3, 6);
    const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                            second.view(shape, classes, 4),
                                            third.view(shape, classes, 5)};
    const Result want = run_whole(model, DType::f64, batches);
    for (int ranks : {1, 2, 3, 4}) {
      CAPTURE(ranks);
      const Result got = run_sharded(model, DType::f64, ranks, batches);
      CHECK(worst_difference(got.gradients, want.gradients) <= 1e-12);
      CHECK(std::abs(got.totals.loss - want.totals.loss) <= 1e-12 * want.totals.loss);
      CHECK(got.totals.sequences == 7);
      CHECK(got.totals.frames == 23 + 20 + 12 + 17 + 4 + 1 + 2);
    }
  }
}

// What a shard did while others did something else is seen in who waited for whom: the timelines.
TEST_CASE(
    "both directions begin at once, micro-batches fill the wave, weight gradients come last") {
  constexpr int ranks = 3, micro_batches = 3;
  for (const bool both : {false, true}) {
    const ModelFunction model = both ? ModelFunction(bidirectional) : ModelFunction(unidirectional);
    const Graph shape = shape_of(model, DType::f32);
    RandomBatch first({23, 20}, classes, 1, 6), second({21, 18}, classes, 2, 6),
        third({19}, classes, 3, 6);
    const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                            second.view(shape, classes, 4),
                                            third.view(shape, classes, 5)};
    std::vector<std::vector<TimedAction>> lines(ranks);
    std::vector<size_t> told(ranks), nodes(ranks);
    run_ranks(ranks, [&](int rank, Transport& transport) {
      Setup s(model, DType::f32);
      const auto group = make_ring_group(transport);
      SequenceRank sequence(s.graph, s.outputs.loss, s.context, *group, {0, ranks}, s.parameters);
      const auto r = static_cast<size_t>(rank);
      sequence.set_after_weight_gradient([&](size_t) { ++told[r]; });
      sequence.run(batches, patience);
      lines[r] = sequence.timeline();
      for (const Node& node : sequence.graph().nodes) {
        nodes[r] += node.phase == Phase::weight_gradient ? 1 : 0;
      }
    });
    for (int r = 0; r < ranks; ++r) {
      CAPTURE(both, r);
      const auto& line = lines[static_cast<size_t>(r)];
      const auto is = [](ActionKind kind, int m = -2) {
        return [=](const TimedAction& t) {
          return t.action.kind == kind && (m == -2 || t.action.micro_batch == m);
        };
      };
      const auto at = [&](auto wanted) { return std::find_if(line.begin(), line.end(), wanted); };
      CHECK(told[static_cast<size_t>(r)] == nodes[static_cast<size_t>(r)]);
      const auto weights = at(is(ActionKind::weight_backward));
      CHECK(weights != line.end());
      CHECK(std::all_of(weights, line.end(), is(ActionKind::weight_backward)));
      // What an end of the recordings hands on goes before anything is waited for, one micro-batch
      // after the other: of the first layer where there are two directions, at both ends; otherwise
      // the left end waits for nobody in three layers and CTC.
      const bool leads = r == 0 || (both && r == ranks - 1);
      const auto sent = std::count_if(line.begin(), at(is(ActionKind::recv_activation)),
                                      is(ActionKind::send_activation));
      CHECK(sent == (leads ? micro_batches * (both ? 1 : 4) : 0));
      if (r != 1) continue;
      // In the middle the first micro-batch is handed on before the second is there.
      CHECK(at(is(ActionKind::send_activation, 0)) < at(is(ActionKind::recv_activation, 1)));
      CHECK(at(is(ActionKind::send_gradient, 0)) < at(is(ActionKind::recv_gradient, 1)));
    }
  }
}

// f32: the forward pass of a frame does not depend on what else is in the batch, so losses agree
// exactly; weight gradients are sums over frames in another order. How much that may matter is
// measured first, on one rank: sequences one by one instead of all at once.
TEST_CASE("shards differ from one rank by the order of sums alone, in f32") {
  const WideCtc same_arithmetic;
  for (const ModelFunction& model : {ModelFunction(unidirectional), ModelFunction(bidirectional),
                                     ModelFunction(convolutional), ModelFunction(images)}) {
    const Graph shape = shape_of(model, DType::f32);
    RandomBatch batch({64, 50, 37, 9}, classes, 1, 6);
    const std::vector<BatchView> together = {batch.view(shape, classes, 3)};
    const Apart alone(together[0], shape);
    const Result want = run_whole(model, DType::f32, together);
    const Result control = run_whole(model, DType::f32, alone.views);
    const double tolerance = 4 * worst_difference(control.gradients, want.gradients);
    CHECK(tolerance > 0);
    CHECK(tolerance < 1e-4);
    for (int ranks : {2, 4}) {
      const Result got = run_sharded(model, DType::f32, ranks, together, 2);
      CAPTURE(ranks, tolerance);
      CHECK(worst_difference(got.gradients, want.gradients) <= tolerance);
      CHECK(got.losses == want.losses);
    }
  }
}

TEST_CASE("a sequence whose labels do not fit counts once and leaves the others alone") {
  const Graph shape = shape_of(unidirectional, DType::f64);
  RandomBatch batch({16, 12}, classes, 1, 2);
  batch.labels.assign(16, 1);  // eight times the same needs 15 of 8 frames
  batch.label_offsets = {0, 8, 16};
  const std::vector<BatchView> batches = {batch.view(shape, classes, 3)};
  for (int ranks : {1, 3}) {
    const Result got = run_sharded(unidirectional, DType::f64, ranks, batches);
    CHECK(got.totals.infeasible == 2);
    CHECK(got.totals.loss == 0);
    CHECK(*std::max_element(got.gradients.begin(), got.gradients.end()) == 0);
  }
}

TEST_CASE("models that cannot be cut in time are refused before anything runs") {
  const auto refused = [](const ModelFunction& model, const std::string& why) {
    Setup s(model, DType::f32);
    InProcessWorld world(1);
    const auto group = make_ring_group(world.transport(0));
    CHECK_THROWS_WITH(SequenceRank(s.graph, s.outputs.loss, s.context, *group, {}, s.parameters),
                      Catch::Contains(why));
  };
  refused(
      [](Graph& g) {
        const ValueId x = layers::input_frames(g, "features", 6);
        const auto first = layers::lstm_layer(g, x, "a", {.hidden = 4});
        const auto second = layers::lstm_layer(g, x, "b", {.hidden = 4}, first.final_state);
        const ValueId y = layers::linear(g, second.y, "out", 3);
        return Outputs{layers::ctc_loss(g, y), y};
      },
      "sets or reads the states");
  refused(
      [](Graph& g) {
        ValueId x = layers::input_frames(g, "features", 6);
        x = layers::linear(g, layers::lstm_height(g, x, "down", {.hidden = 4}), "out", 3);
        return Outputs{layers::ctc_loss(g, x), x};
      },
      "an LSTM along the height of images takes each column for a sequence by itself, so a model "
      "with it cannot be cut in time");
  refused(
      [](Graph& g) {
        ValueId x = layers::input_frames(g, "features", 6);
        x = layers::pool2d(g, x, "pool", Pooling2d::mean, 2, 2, true);
        x = layers::linear(g, x, "out", 3);
        return Outputs{layers::ctc_loss(g, x), x};
      },
      "(whole = true), so a model with it cannot be cut in time");
}

TEST_CASE("a shard that fails ends the others") {
  const Graph shape = shape_of(unidirectional, DType::f32);
  RandomBatch batch({16, 12}, classes, 1, 2);
  const std::vector<BatchView> batches = {batch.view(shape, classes, 3)};
  const RankOutcome outcome = run_ranks_and_collect(3, [&](int rank, Transport& transport) {
    Setup s(unidirectional, DType::f32);
    const auto group = make_ring_group(transport);
    SequenceRank sequence(s.graph, s.outputs.loss, s.context, *group, {0, 3}, s.parameters);
    if (rank == 1) throw Error("out of luck");
    sequence.run(batches, patience);
  });
  CHECK(outcome.first_failed == 1);
  CHECK(outcome.errors[0]);
  CHECK(outcome.errors[2]);
}
