// Whole models on the simulated GPU beside the CPU: the same batches, step by step, give the same
// losses and weights but for rounding.
#include <cmath>

#include "engine/session.h"
#include "kernels/base/dispatch.h"
#include "kernels/lstm/lstm.h"
#include "kernels/simt/sim/scheduler.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;

// Speech recognition in small: every sequence op between features and CTC.
Outputs transcriber(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::stack_frames(g, x, 2);
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .layers = 2, .bidirectional = true});
  x = layers::layer_norm(g, x, "norm");
  x = layers::dropout(g, x, "dropout", 0.2);
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// Convolutions in front of a layer of the LSTM, and behind it.
Outputs convolver(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::relu(g, layers::conv(g, x, "front", {.channels = 10, .kernel = 5, .stride = 2}));
  x = layers::lstm(g, x, "encoder", {.hidden = 8});
  x = layers::conv(g, x, "ahead", {.channels = 7, .kernel = 3, .context = ConvContext::future});
  const ValueId logits = layers::linear(g, layers::tanh(g, x), "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// Lines of text in small.
Outputs reader(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::relu(
      g, layers::conv2d(g, x, "front", {.channels = 5, .kernel_height = 3, .kernel_width = 5}));
  x = layers::dropout(g, x, "dropout", 0.2, layers::DropoutOver::channels);
  x = layers::group_norm(g, x, "norm", 5);
  x = layers::pool2d(g, x, "pool", Pooling2d::greatest, 2, 2);
  x = layers::conv2d(g, x, "depthwise", {.channels = 5, .kernel_height = 3, .groups = 5});
  x = layers::conv2d(g, x, "second", {.channels = 4, .kernel_height = 2, .kernel_width = 3});
  x = layers::pool2d(g, x, "mean", Pooling2d::mean, 2, 1);
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .backward = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// With LSTMs along the height, and pooling that drops frames.
template <bool summarize>
Outputs reader_of_columns(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::conv2d(g, x, "front", {.channels = 3, .kernel_height = 3, .kernel_width = 3});
  x = layers::pool2d(g, x, "pool", Pooling2d::greatest, 1, 2, true);
  x = layers::lstm_height(g, x, "down",
                          {.hidden = 5, .bidirectional = !summarize, .summarize = summarize});
  const ValueId logits =
      layers::linear(g, layers::lstm(g, x, "along", {.hidden = 8}), "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// One class per sequence: pooling, activations, a residual, cross-entropy.
Outputs classifier(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  const ValueId hidden = layers::tanh(g, layers::linear(g, x, "in", 12));
  x = layers::add(g, hidden, layers::gelu(g, layers::linear(g, hidden, "residual", 12)));
  x = layers::mean_pool(g, layers::dropout(g, x, "dropout", 0.1));
  const ValueId logits = layers::linear(g, layers::sigmoid(g, x), "out", classes);
  return {layers::cross_entropy(g, logits, "class"), logits};
}

// A value per sequence from its last frame.
Outputs regressor(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::last_frame(g, layers::lstm(g, x, "encoder", {.hidden = 9}));
  const ValueId y = layers::linear(g, x, "out", 2);
  return {layers::mean_squared_error(g, y, "wanted"), y};
}

SessionOptions options(DeviceKind device, DType compute, OptimizerOptions::Kind kind) {
  SessionOptions o;
  o.device = device;
  o.compute = compute;
  o.threads = 2;
  o.optimizer.kind = kind;
  o.optimizer.learning_rate = kind == OptimizerOptions::sgd ? 0.05 : 5e-3;
  o.optimizer.momentum = 0.9;
  o.optimizer.weight_decay = 0.01;
  o.optimizer.clip_norm = 1;
  o.optimizer.ema_decay = 0.9;
  return o;
}

// How far two devices may drift apart, relative to losses and norms, and in the norm of all weights
// relative to how far training moved them: where a gradient is all rounding, Adam takes a whole
// step to either side, so single weights tell little.
struct Drift {
  double result, weights;
};

constexpr Drift drift_of(DType compute) {
  return compute == DType::f32 ? Drift{1e-5, 3e-5} : Drift{4e-3, 5e-2};
}

// |got - want| / |want - start| over all weights.
double relative_drift(const std::vector<float>& start, const TensorView& want,
                      const TensorView& got) {
  double difference = 0, movement = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    difference += std::pow(static_cast<double>(got.as<float>()[i]) - want.as<float>()[i], 2);
    movement += std::pow(static_cast<double>(want.as<float>()[i]) - start[i], 2);
  }
  return std::sqrt(difference / movement);
}

void train_side_by_side(const ModelFunction& model, int subsampling, DType compute,
                        OptimizerOptions::Kind kind) {
  const Drift allowed = drift_of(compute);
  Graph g;
  g.compute = compute;
  model(g);
  Session cpu(model, options(DeviceKind::cpu, compute, kind));
  Session sim(model, options(DeviceKind::sim, compute, kind));
  const std::vector<std::vector<int32_t>> lengths = {{14, 9, 9, 3}, {11, 10}, {6, 5, 4, 2, 1}};
  std::vector<RandomBatch> batches;
  BatchCapacity capacity;
  for (unsigned i = 0; i < lengths.size(); ++i) {
    batches.emplace_back(lengths[i], classes, i, subsampling);
    capacity = BatchCapacity::merge(capacity, batches.back().view(g, classes, i).extent());
  }
  cpu.reserve(capacity);
  sim.reserve(capacity);
  const TensorView weights = cpu.parameters().weights();
  const std::vector<float> start(weights.as<float>(), weights.as<float>() + weights.numel());
  for (unsigned step = 0; step < 6; ++step) {
    const unsigned i = step % 3;
    BatchView batch = batches[i].view(g, classes, i);
    batch.step_seed = step;
    const StepResult want = cpu.train_step(batch), got = sim.train_step(batch);
    INFO("step " << step << ": loss " << got.loss << " for " << want.loss << ", gradient norm "
                 << got.gradient_norm << " for " << want.gradient_norm);
    CHECK(std::abs(got.loss - want.loss) <= allowed.result * (1 + std::abs(want.loss)));
    CHECK(std::abs(got.gradient_norm - want.gradient_norm) <=
          allowed.result * (1 + want.gradient_norm));
    CHECK(got.sequences == want.sequences);
    CHECK(got.skipped == want.skipped);
  }
  CHECK(relative_drift(start, cpu.parameters().weights(), sim.parameters().weights()) <=
        allowed.weights);
}

// Prefers a variant of the LSTM's time loops while it lives.
struct PreferredLstm {
  explicit PreferredLstm(const char* name) {
    prefer_variant("lstm_forward", name);
    prefer_variant("lstm_backward", name);
  }
  ~PreferredLstm() {
    prefer_variant("lstm_forward", "");
    prefer_variant("lstm_backward", "");
  }
  PreferredLstm(const PreferredLstm&) = delete;
  PreferredLstm& operator=(const PreferredLstm&) = delete;
};

// The variants that the simulated GPU would take for the transcriber's LSTM.
std::string chosen_lstm(DType compute) {
  Stream stream = sim_device().make_stream();
  const Context context{Backend::sim, &sim_device(), &stream, nullptr};
  LstmForwardArgs forward;
  LstmBackwardArgs backward;
  forward.dims = backward.dims = {2, 12, 8, 0};
  forward.layout.capacity = backward.layout.capacity = {17, 7, 4};
  forward.x.dtype = backward.dy.dtype = compute;
  return str(select_variant(context, "lstm_forward", &forward).name, " ",
             select_variant(context, "lstm_backward", &backward).name);
}

}  // namespace

TEST_CASE("simulated GPU: a CTC model trains as on the CPU", "[slow]") {
  for (SimOrder order : {SimOrder::forward, SimOrder::shuffled}) {
    set_sim_options({order, 3});
    train_side_by_side(transcriber, 2, DType::f32, OptimizerOptions::adamw);
  }
  set_sim_options({});
}

// Sums round differently, and some activation then falls to the other side of a tie, 2^-8 away.
TEST_CASE("simulated GPU: a CTC model trains as on the CPU, in bf16", "[slow]") {
  train_side_by_side(transcriber, 2, DType::bf16, OptimizerOptions::adamw);
}

TEST_CASE("simulated GPU: a model with convolutions trains as on the CPU", "[slow]") {
  train_side_by_side(convolver, 2, DType::f32, OptimizerOptions::adamw);
  train_side_by_side(convolver, 2, DType::bf16, OptimizerOptions::adamw);
}

TEST_CASE("simulated GPU: a model for images trains as on the CPU", "[slow]") {
  train_side_by_side(reader, 2, DType::f32, OptimizerOptions::adamw);
  train_side_by_side(reader, 2, DType::bf16, OptimizerOptions::adamw);
}

TEST_CASE("simulated GPU: models with LSTMs along the height train as on the CPU", "[slow]") {
  // In f32 by plain steps: some gradients are so small that Adam's division shows their rounding.
  train_side_by_side(reader_of_columns<true>, 2, DType::f32, OptimizerOptions::sgd);
  train_side_by_side(reader_of_columns<false>, 2, DType::f32, OptimizerOptions::sgd);
  train_side_by_side(reader_of_columns<true>, 2, DType::bf16, OptimizerOptions::adamw);
}

TEST_CASE("simulated GPU: a classifier and a regressor train as on the CPU") {
  train_side_by_side(classifier, 1, DType::f32, OptimizerOptions::adam);
  train_side_by_side(classifier, 1, DType::f32, OptimizerOptions::sgd);
  train_side_by_side(regressor, 1, DType::f32, OptimizerOptions::sgd);
}

TEST_CASE("simulated GPU: a CTC model trains through every variant of the LSTM", "[slow]") {
#if defined(__SANITIZE_THREAD__)
  WARN(
      "skipped under the thread sanitizer, which takes gigabytes and an hour for so many GPU "
      "threads "
      "at once: it watches the host's code in the cases above, the simulator's own race detector "
      "watches these kernels");
  return;
#endif
  CHECK(chosen_lstm(DType::bf16) == "portable portable");
  {
    const PreferredLstm preferred("grid_cluster");
    CHECK(chosen_lstm(DType::bf16) == "grid_cluster grid_cluster");
    CHECK(chosen_lstm(DType::f32) == "portable portable");
    train_side_by_side(transcriber, 2, DType::bf16, OptimizerOptions::adamw);
  }
  for (const char* variant : {"cluster_split", "grid"}) {
    const PreferredLstm preferred(variant);
    for (DType compute : {DType::f32, DType::bf16}) {
      CHECK(chosen_lstm(compute) == str(variant, " ", variant));
      train_side_by_side(transcriber, 2, compute, OptimizerOptions::adamw);
    }
  }
}
