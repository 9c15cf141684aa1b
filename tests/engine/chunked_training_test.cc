// Sequences cut in time on one device, chunk after chunk.
#include <cmath>

#include "engine/cut/chunked_training.h"
#include "tests/catch.h"
#include "tests/engine/sequence_cases.h"

using namespace rondo;
using namespace rondo::test;

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
  r.gradients = s.gradients();
  if (arena) *arena = chunked.arena_bytes();
  return r;
}

// Convolutions of the past alone, at three levels' frames, reaching over more than a short chunk.
Outputs causal(Graph& g) {
  constexpr auto past = ConvContext::past;
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::gelu(g, layers::conv(g, x, "front", {.channels = 9, .kernel = 4, .context = past}));
  x = layers::conv(g, x, "half", {.channels = 7, .kernel = 3, .stride = 2, .context = past});
  x = layers::lstm(g, x, "encoder", {.hidden = 8});
  x = layers::conv(g, x, "wide", {.channels = 6, .kernel = 3, .dilation = 2, .context = past});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
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
  std::vector<BatchSlice> parts;
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
    runner.bound().read(s.outputs.loss, loss, sizeof loss);
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
