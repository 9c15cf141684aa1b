// Sequences cut in time over ranks give what one rank gives.
#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>

#include "comm/in_process.h"
#include "comm/process_group.h"
#include "comm/run_ranks.h"
#include "engine/parallel/chunked_training.h"
#include "engine/parallel/sequence.h"
#include "engine/session.h"
#include "kernels/ctc/ctc.h"
#include "kernels/ops.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;
constexpr auto patience = std::chrono::seconds(60);

Outputs unidirectional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::stack_frames(g, x, 2);
  x = layers::lstm(g, x, "encoder",
                   {.hidden = 19, .layers = 3, .dropout = 0.3, .layer_norm = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

Outputs bidirectional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "lower", {.hidden = 16, .layers = 2, .bidirectional = true});
  x = layers::stack_frames(g, x, 3);
  x = layers::dropout(g, x, "dropout", 0.2);
  x = layers::lstm(g, x, "upper", {.hidden = 12, .bidirectional = true, .projection = 7});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// Convolutions of the past alone, at three levels' frames, reaching over more than a short chunk.
Outputs causal(Graph& g) {
  constexpr auto past = ConvContext::past;
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::tanh(g, layers::conv(g, x, "front", {.channels = 9, .kernel = 4, .context = past}));
  x = layers::conv(g, x, "half", {.channels = 7, .kernel = 3, .stride = 2, .context = past});
  x = layers::lstm(g, x, "encoder", {.hidden = 8});
  x = layers::conv(g, x, "wide", {.channels = 6, .kernel = 3, .dilation = 2, .context = past});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// Of both sides at the input, at another level, ahead, and with gaps; two of them in a row.
Outputs convolutional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::relu(g, layers::conv(g, x, "front", {.channels = 9, .kernel = 4}));
  x = layers::tanh(g, layers::conv(g, x, "half", {.channels = 10, .kernel = 5, .stride = 2}));
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .bidirectional = true});
  x = layers::conv(g, x, "ahead", {.channels = 7, .kernel = 3, .context = ConvContext::future});
  x = layers::dropout(g, x, "dropout", 0.2);
  x = layers::conv(g, x, "wide", {.channels = 6, .kernel = 2, .dilation = 2});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

Outputs framewise(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .bidirectional = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::cross_entropy(g, logits, "targets"), logits};
}

template <bool last>
Outputs pooled(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::stack_frames(g, x, 2);
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .bidirectional = true});
  x = last ? layers::last_frame(g, x) : layers::mean_pool(g, x);
  x = layers::dropout(g, layers::tanh(g, layers::linear(g, x, "head", 7)), "dropout", 0.2);
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::cross_entropy(g, logits, "targets"), logits};
}

struct Result {
  std::vector<double> losses;  // by batch and sequence
  std::vector<double> gradients;
  LossTotals totals;
};

// The gradients of one Parameters, without padding of the flat array mattering: it is zero.
std::vector<double> gradients_of(const Parameters& p) {
  const TensorView g = p.gradients();
  std::vector<double> out(static_cast<size_t>(g.numel()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = g.dtype == DType::f64 ? g.as<double>()[i] : static_cast<double>(g.as<float>()[i]);
  }
  return out;
}

struct Setup {
  Outputs outputs;  // before the graph, whose making sets it
  Graph graph;
  Stream stream = cpu_device().make_stream();
  ThreadPool pool{1};
  Context context;
  Parameters parameters;

  Setup(const ModelFunction& model, DType compute)
      : graph(training_graph(model, compute, outputs)),
        context{compute == DType::f64 ? Backend::ref : Backend::cpu, &cpu_device(), &stream, &pool},
        parameters(graph, cpu_device()) {
    parameters.initialize(4);
    const TensorView g = parameters.gradients();
    std::memset(g.data, 0, g.bytes());
  }

 private:
  static Graph training_graph(const ModelFunction& model, DType compute, Outputs& outputs) {
    Graph g;
    g.compute = compute;
    outputs = model(g);
    g.keep(outputs.loss);
    append_backward(g, outputs.loss);
    return g;
  }
};

// The whole batches, one after the other, without sharding.
Result run_whole(const ModelFunction& model, DType compute, const std::vector<BatchView>& batches) {
  Setup s(model, compute);
  Result r;
  for (const BatchView& batch : batches) {
    Plan plan(s.graph, s.context, batch.extent(), s.parameters);
    plan.load(batch);
    plan.run();
    const auto n = static_cast<size_t>(plan.live_rows(s.graph.shape(s.outputs.loss)));
    const TensorView loss = plan.view(s.outputs.loss);
    for (size_t i = 0; i < n; ++i) {
      r.losses.push_back(compute == DType::f64 ? loss.as<double>()[i]
                                               : static_cast<double>(loss.as<float>()[i]));
      if (std::isfinite(r.losses.back())) r.totals.loss += r.losses.back();
    }
  }
  r.gradients = gradients_of(s.parameters);
  return r;
}

Result run_sharded(const ModelFunction& model, DType compute, int ranks,
                   const std::vector<BatchView>& batches, int rounds = 1) {
  std::mutex mutex;
  Result r;
  run_ranks(ranks, [&](int rank, Transport& transport) {
    Setup s(model, compute);
    const auto group = make_ring_group(transport);
    SequenceRank sequence(s.graph, s.outputs.loss, s.context, *group, {0, ranks}, s.parameters);
    for (int round = 0; round < rounds; ++round) {
      const TensorView g = s.parameters.gradients();
      std::memset(g.data, 0, g.bytes());
      sequence.run(batches, patience);
    }
    const std::lock_guard lock(mutex);
    const std::vector<double> mine = gradients_of(s.parameters);
    r.gradients.resize(mine.size());
    for (size_t i = 0; i < mine.size(); ++i) r.gradients[i] += mine[i];
    r.totals.loss += sequence.totals().loss;
    r.totals.sequences += sequence.totals().sequences;
    r.totals.frames += sequence.totals().frames;
    r.totals.infeasible += sequence.totals().infeasible;
    if (rank > 0) return;
    for (size_t m = 0; m < batches.size(); ++m) {
      r.losses.insert(r.losses.end(), sequence.losses(m).begin(), sequence.losses(m).end());
    }
  });
  return r;
}

double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    if (!(d <= worst)) worst = std::isnan(d) ? INFINITY : d;
  }
  return worst;
}

// The cpu variant of ctc whose arithmetic is that of chunks, for the whole test.
class WideCtc {
 public:
  WideCtc() {
    for (const char* name : {"wide_avx512", "wide_avx2", "wide_generic"}) {
      for (const Variant& v : ctc_variants()) {
        if (std::string(v.name) != name || (v.accepts && !v.accepts({}, nullptr))) continue;
        prefer_variant("ctc", name);
        return;
      }
    }
  }
  ~WideCtc() { prefer_variant("ctc", ""); }
};

Graph shape_of(const ModelFunction& model, DType compute) {
  Graph g;
  g.compute = compute;
  model(g);
  return g;
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
        ModelFunction(convolutional), ModelFunction(pooled<false>), ModelFunction(pooled<true>)}) {
    const Graph shape = shape_of(model, DType::f64);
    // Of the second, some shards own nothing of some sequences, of the third nothing at all.
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
                                     ModelFunction(convolutional)}) {
    const Graph shape = shape_of(model, DType::f32);
    RandomBatch batch({64, 50, 37, 9}, classes, 1, 6);
    const std::vector<BatchView> together = {batch.view(shape, classes, 3)};
    std::vector<FrameRange> nothing;
    for (int32_t length : batch.layout.lengths) nothing.push_back({length, length});
    std::vector<BatchPart> parts;
    for (size_t n = 0; n < nothing.size(); ++n) {
      std::vector<FrameRange> one = nothing;
      one[n].begin = 0;
      parts.emplace_back(together[0], shape, one, 1);
    }
    std::vector<BatchView> alone;
    for (const BatchPart& part : parts) alone.push_back(part.view());
    const Result want = run_whole(model, DType::f32, together);
    const Result control = run_whole(model, DType::f32, alone);
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

namespace {

Result run_chunked(const ModelFunction& model, DType compute, int32_t chunk_frames,
                   StateGradients states, const std::vector<BatchView>& batches,
                   size_t* arena = nullptr) {
  Setup s(model, compute);
  ChunkedTraining chunked(s.graph, s.outputs.loss, s.context, s.parameters, chunk_frames, states);
  Result r;
  for (const BatchView& batch : batches) {
    chunked.run(batch);
    r.losses.insert(r.losses.end(), chunked.losses().begin(), chunked.losses().end());
    r.totals.loss += chunked.totals().loss;
    r.totals.frames += chunked.totals().frames;
  }
  r.gradients = gradients_of(s.parameters);
  if (arena) *arena = chunked.arena_bytes();
  return r;
}

Outputs two_layers(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "encoder", {.hidden = 7, .layers = 2});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

}  // namespace

TEST_CASE("chunks one after the other give the gradient of the whole when states carry gradients") {
  const ModelFunction model = GENERATE(ModelFunction(unidirectional), ModelFunction(causal));
  const Graph shape = shape_of(model, DType::f64);
  RandomBatch first({23, 20, 12}, classes, 1, 2), second({31, 4, 1}, classes, 2, 2);
  const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                          second.view(shape, classes, 4)};
  const Result want = run_whole(model, DType::f64, batches);
  for (int32_t chunk : {1, 6, 10, 400}) {
    CAPTURE(chunk);
    const Result got = run_chunked(model, DType::f64, chunk, StateGradients::carried, batches);
    CHECK(worst_difference(got.gradients, want.gradients) <= 1e-12);
    CHECK(worst_difference(got.losses, want.losses) <= 1e-12);
    CHECK(got.totals.frames == 23 + 20 + 12 + 31 + 4 + 1);
    const Result cut = run_chunked(model, DType::f64, chunk, StateGradients::cut, batches);
    CHECK(worst_difference(cut.losses, want.losses) <= 1e-12);
    if (chunk < 31) CHECK(worst_difference(cut.gradients, want.gradients) > 1e-6);
    if (chunk > 31) CHECK(worst_difference(cut.gradients, want.gradients) <= 1e-12);
  }
}

// The definition: the gradient of the loss with the states at each cut held constant, which is what
// finite differences of a model give whose states there do not move with the weights.
TEST_CASE("cut gradients are those of a model whose states at the cuts are constants") {
  const Graph shape = shape_of(two_layers, DType::f64);
  RandomBatch batch({14, 9}, classes, 1);
  const std::vector<BatchView> batches = {batch.view(shape, classes, 3)};
  constexpr int32_t chunk = 5;
  const Result got = run_chunked(two_layers, DType::f64, chunk, StateGradients::cut, batches);

  // Loss as a function of the weights, the states at the cuts as given.
  Setup s(two_layers, DType::f64);
  ChunkGraph graph = shard_graph(s.graph, s.outputs.loss, 7);
  BatchCapacity capacity = batches[0].extent();
  ChunkRunner runner(graph, s.context, capacity, s.parameters);
  std::vector<BatchPart> parts;
  for (int32_t begin = 0; begin < 14; begin += chunk) {
    std::vector<FrameRange> ranges;
    for (int32_t length : batch.layout.lengths) {
      ranges.push_back({std::min(begin, length), std::min(begin + chunk, length)});
    }
    parts.emplace_back(batches[0], graph.graph, ranges, 1);
  }
  const auto run = [&](const std::vector<Border>* constants, std::vector<Border>* record) {
    Border border;
    std::vector<Border> left;
    for (size_t k = 0; k < parts.size(); ++k) {
      if (constants && k > 0) {
        for (size_t i = 0; i < 4; ++i) border[i] = (*constants)[k][i];  // not CTC's alpha
      }
      left.push_back(border);
      runner.forward(parts[k].view(), border);
    }
    if (record) *record = left;
    Border back;
    for (size_t k = parts.size(); k-- > 0;) {
      Border again = left[k];
      runner.forward(parts[k].view(), again);
      runner.backward(back, StateGradients::cut);
    }
    double loss[2];
    runner.plan().read(s.outputs.loss, loss, sizeof loss);
    return loss[0] + loss[1];
  };
  std::vector<Border> states;
  run(nullptr, &states);
  const TensorView weights = s.parameters.weights();
  double worst = 0;
  int compared = 0;
  for (const auto& e : s.parameters.entries()) {
    for (int64_t i = 0; i < e.numel(); i += 5) {
      double& w = weights.as<double>()[e.offset + i];
      const double saved = w, step = 1e-5;
      w = saved + step;
      const double up = run(&states, nullptr);
      w = saved - step;
      const double down = run(&states, nullptr);
      w = saved;
      const double exact = got.gradients[static_cast<size_t>(e.offset + i)];
      worst = std::max(worst, std::abs((up - down) / (2 * step) - exact) / (1 + std::abs(exact)));
      ++compared;
    }
  }
  CHECK(compared > 100);
  CHECK(worst <= 1e-8);
}

TEST_CASE("memory of chunks is that of one, however long the recording") {
  const Graph shape = shape_of(two_layers, DType::f32);
  const auto arena = [&](int32_t frames, int32_t chunk) {
    RandomBatch batch({frames}, classes, 1);
    batch.labels.resize(20);  // CTC's columns are as long as the labels
    batch.label_offsets = {0, 20};
    size_t bytes = 0;
    run_chunked(two_layers, DType::f32, chunk, StateGradients::cut, {batch.view(shape, classes, 3)},
                &bytes);
    return static_cast<double>(bytes);
  };
  CHECK(arena(4000, 500) <= 0.15 * arena(4000, 4000));
  CHECK(arena(8000, 500) <= 1.05 * arena(4000, 500));
}

TEST_CASE("chunks one after the other need unidirectional layers") {
  Setup s(bidirectional, DType::f32);
  CHECK_THROWS_WITH(
      ChunkedTraining(s.graph, s.outputs.loss, s.context, s.parameters, 10, StateGradients::cut),
      Catch::Contains("need unidirectional layers"));
}
