// Session: training steps, accumulation, memory, files.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "engine/session.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"
#include "tests/engine/allocation_counter.h"
#include "tests/engine/small_model.h"

using namespace rondo;
using rondo::test::RandomBatch;
using rondo::test::weights_of;

namespace {

constexpr int32_t classes = rondo::test::small_classes;
const ModelFunction model = rondo::test::small_model(24);

SessionOptions options(DType compute = DType::f32) {
  SessionOptions o;
  o.threads = 2;
  o.compute = compute;
  o.optimizer.learning_rate = 5e-3;
  o.optimizer.clip_norm = 5;
  return o;
}

struct Batches : rondo::test::SmallBatches {
  explicit Batches(int n) : SmallBatches(n, {30, 25, 25, 9}) {}
};

}  // namespace

TEST_CASE("training lowers the loss, in f32 and bf16", "[slow]") {
  for (DType compute : {DType::f32, DType::bf16}) {
    Batches batches(3);
    Session session(model, options(compute));
    session.reserve(batches.capacity());
    double first = 0, last = 0;
    for (int epoch = 0; epoch < 60; ++epoch) {
      double sum = 0;
      for (const BatchView& b : batches.views) sum += session.train_step(b).mean_loss();
      (epoch ? last : first) = sum;
    }
    CHECK(last < 0.25 * first);
    CHECK(session.optimizer().steps() == 180);
  }
}

TEST_CASE("the gradients above frozen layers are those of a model without any") {
  Batches batches(1);
  const ModelFunction frozen = [](Graph& g) {
    const Outputs outputs = model(g);
    freeze_before(g, "encoder.1", "the test");
    return outputs;
  };
  Session whole(model, options()), part(frozen, options());
  const StepResult of_whole = whole.train_step(batches.views[0]);
  const StepResult of_part = part.train_step(batches.views[0]);
  CHECK(of_part.loss == of_whole.loss);
  CHECK(of_part.gradient_norm < of_whole.gradient_norm);
  CHECK(part.training_graph().nodes.size() < whole.training_graph().nodes.size());
  const Parameters& p = part.parameters();
  const auto bits = [](const TensorView& view) {
    const auto* at = static_cast<const std::byte*>(view.data);
    return std::vector<std::byte>(at, at + view.bytes());
  };
  for (const Parameters::Entry& e : p.entries()) {
    INFO(e.name);
    CHECK(e.frozen == e.name.starts_with("encoder.0."));
    CHECK(e.frozen == (e.offset < p.frozen_size()));
    const TensorView gradient = p.gradient(e.name);
    if (e.frozen) {
      CHECK(bits(gradient) == std::vector<std::byte>(gradient.bytes()));
    } else {
      CHECK(bits(gradient) == bits(whole.parameters().gradient(e.name)));
    }
  }
}

namespace {

// Every kind of layer that has weights, with another number of inputs for each.
Outputs every_layer(Graph& g) {
  const ValueId pixels = layers::input_frames(g, "features", 12);
  const layers::Conv2dOptions image{.channels = 8, .kernel_height = 3, .kernel_width = 5};
  ValueId x = layers::conv2d(g, pixels, "conv2d", image);
  x = layers::conv2d(g, x, "grouped", {.channels = 8, .kernel_height = 3, .groups = 4});
  x = layers::conv(g, x, "conv", {.channels = 20, .kernel = 3});
  x = layers::group_norm(g, x, "groups", 4);
  const layers::LstmOptions both{
      .hidden = 16, .layers = 2, .bidirectional = true, .projection = 9, .layer_norm = true};
  x = layers::lstm(g, x, "lstm", both);
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {.loss = layers::ctc_loss(g, logits), .prediction = logits};
}

bool is_matrix(const std::string& name) {
  return name.find(".weight") != std::string::npos && name.find("norm") == std::string::npos &&
         !name.starts_with("groups");
}

std::map<std::string, std::vector<double>> initial_weights(uint64_t seed) {
  SessionOptions o = options();
  o.seed = seed;
  const Session session(every_layer, o);
  std::map<std::string, std::vector<double>> all;
  for (const Parameters::Entry& e : session.parameters().entries()) {
    const TensorView w = session.parameters().weight(e.name);
    all[e.name].assign(w.as<float>(), w.as<float>() + w.numel());
  }
  return all;
}

}  // namespace

TEST_CASE("weights begin uniform within 1 / sqrt(inputs), and forget gates with 1") {
  // What each output of a matrix is summed over; of an LSTM's recurrent weights, its cells.
  const std::map<std::string, double> inputs = {
      {"conv2d.weight", 3 * 5}, {"grouped.weight", 2 * 3}, {"conv.weight", 3 * 8 * 12},
      {"lstm.0.weight_ih", 20}, {"lstm.0.weight_hh", 16},  {"lstm.0.weight_hr", 16},
      {"lstm.1.weight_ih", 18}, {"lstm.1.weight_hh", 16},  {"lstm.1.weight_hr", 16},
      {"out.weight", 18}};
  const auto weights = initial_weights(3);
  std::set<std::vector<double>> beginnings;
  size_t matrices = 0;
  for (const auto& [name, values] : weights) {
    INFO(name);
    if (is_matrix(name)) {
      const size_t reverse = name.find("_reverse");
      const double bound = 1 / std::sqrt(inputs.at(name.substr(0, reverse)));
      double sum = 0, squares = 0;
      for (const double v : values) {
        sum += v / bound;
        squares += v * v / bound / bound;
      }
      const auto n = static_cast<double>(values.size());
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      CHECK(*most <= bound * (1 + 1e-6));
      CHECK(*least >= -bound * (1 + 1e-6));
      // Of n uniform values: six times what chance does to their mean and to that of their squares.
      CHECK(std::abs(sum / n) < 6 / std::sqrt(3 * n));
      CHECK(std::abs(squares / n - 1.0 / 3) < 6 * 0.3 / std::sqrt(n));
      std::vector<double> first(values.begin(), values.begin() + 8);
      for (double& v : first) v = std::round(1e4 * v / bound);
      CHECK(beginnings.insert(first).second);  // no two alike
      ++matrices;
      continue;
    }
    const bool of_lstm = name.starts_with("lstm.") && name.find("norm") == std::string::npos;
    const bool scales = name.find(".weight") != std::string::npos;
    const size_t gate = values.size() / 4;  // input, forget, cell, output
    for (size_t i = 0; i < values.size(); ++i) {
      const bool forgets = of_lstm && i / gate == 1;
      if (values[i] != (scales || forgets ? 1 : 0)) FAIL_CHECK("element " << i);
    }
  }
  CHECK(matrices == 4 + 2 * 2 * 3);
  CHECK(initial_weights(3) == weights);
  for (const auto& [name, values] : initial_weights(4))
    CHECK((values != weights.at(name)) == is_matrix(name));
}

TEST_CASE("dropout's mask is another one in each layer and each step, and the same for a seed") {
  // The mean of so many ones, of which two masks of a half keep a quarter, each as 4: 1, and 2
  // where both are the same.
  const ModelFunction model_of_masks = [](Graph& g) {
    ValueId x = layers::input_frames(g, "features", 4);
    x = layers::dropout(g, layers::dropout(g, x, "one", 0.5), "two", 0.5);
    x = layers::linear(g, layers::mean_pool(g, x), "out", 1);
    return Outputs{layers::mean_squared_error(g, x, "targets"), x};
  };
  const std::vector<int32_t> lengths = {1500, 1500};
  const PackedHost layout = build_packed(lengths, std::vector<uint64_t>{5, 6});
  const std::vector<float> ones(3000 * 4, 1.0f), targets(2, 0.0f);
  const BatchView::Input inputs[] = {{"features", ones.data(), ones.size() * sizeof(float)},
                                     {"targets", targets.data(), targets.size() * sizeof(float)}};
  const auto means = [&](uint64_t step_seed) {
    Session session(model_of_masks, options());
    std::ranges::fill(std::span(session.parameters().weight("out.weight").as<float>(), 4), 0.25f);
    BatchView view;
    view.layout = &layout;
    view.inputs = inputs;
    view.step_seed = step_seed;
    const StepResult& r = session.train_step(view);
    std::vector<double> each;
    for (const float loss : r.losses) each.push_back(std::sqrt(static_cast<double>(loss)));
    return each;
  };
  std::set<double> seen;
  for (const uint64_t step : {0, 1, 2}) {
    const std::vector<double> found = means(step);
    REQUIRE(found.size() == 2);
    CHECK(means(step) == found);
    for (const double mean : found) {
      CHECK(mean == Approx(1).margin(0.15));
      CHECK(seen.insert(mean).second);  // of two utterances too
    }
  }
}

TEST_CASE("a training step allocates nothing") {
  Batches batches(4);
  Session session(model, options());
  session.reserve(batches.capacity());
  session.train_step(batches.views[0]);
  const int64_t before = allocation_count();
  for (int i = 0; i < 8; ++i) session.train_step(batches.views[static_cast<size_t>(i) % 4]);
  CHECK(allocation_count() - before == 0);
}

TEST_CASE("the same seed gives the same bits; threads do not matter") {
  Batches batches(3);
  std::vector<std::vector<float>> results;
  for (int threads : {1, 2, 3}) {
    SessionOptions o = options();
    o.threads = threads;
    Session session(model, o);
    for (const BatchView& b : batches.views) session.train_step(b);
    results.push_back(weights_of(session));
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}

TEST_CASE("a non-finite gradient skips the step and is counted") {
  Batches batches(1);
  Session session(model, options());
  const std::vector<float> before = weights_of(session);
  BatchView bad = batches.views[0];
  std::vector<float> features(batches.storage[0].narrow["features"]);
  features[3] = std::numeric_limits<float>::quiet_NaN();
  const BatchView::Input input{"features", features.data(), features.size() * 4};
  bad.inputs = {&input, 1};
  const StepResult& r = session.train_step(bad);
  CHECK(r.skipped);
  CHECK(r.nonfinite == 1);
  CHECK(weights_of(session) == before);
  CHECK_FALSE(session.train_step(batches.views[0]).skipped);
}

TEST_CASE("a batch that lacks its layout, data or label offsets is an error") {
  Batches batches(1);
  for (const int32_t tbptt : {0, 8}) {
    SessionOptions o = options();
    o.tbptt = tbptt;
    const auto one_way = [](Graph& g) {
      ValueId x = layers::input_frames(g, "features", 6);
      x = layers::lstm(g, x, "encoder", {.hidden = 8});
      const ValueId logits = layers::linear(g, x, "out", classes);
      return Outputs{.loss = layers::ctc_loss(g, logits), .prediction = logits};
    };
    Session session(one_way, o);
    const auto refused = [&](const BatchView& batch, const char* why) {
      CHECK_THROWS_WITH(session.train_step(batch), Catch::Contains(why));
      CHECK_THROWS_WITH(session.evaluate(batch), Catch::Contains(why));
    };
    BatchView batch = batches.views[0];
    batch.layout = nullptr;
    refused(batch, "a batch needs a layout");
    CHECK_THROWS_WITH(session.predict(batch), Catch::Contains("a batch needs a layout"));
    CHECK_THROWS_WITH(batch.extent(), Catch::Contains("a batch needs a layout"));
    batch = batches.views[0];
    std::vector<BatchView::Input> inputs(batch.inputs.begin(), batch.inputs.end());
    inputs[0].data = nullptr;
    batch.inputs = inputs;
    refused(batch, "input 'features' has ");
    CHECK_THROWS_WITH(session.predict(batch), Catch::Contains(" bytes at no address"));
    batch = batches.views[0];
    batch.labels = {};
    batch.label_offsets = {};
    refused(batch, "has no label offsets");
    CHECK_NOTHROW(session.predict(batch));
    CHECK_NOTHROW(session.train_step(batches.views[0]));
  }
}

TEST_CASE("an infeasible sequence has infinite loss, no gradient, and is not counted") {
  RandomBatch feasible({20, 10}, classes, 3, 2), with_bad({20, 10}, classes, 3, 2);
  // The second sequence gets more labels than its 5 frames allow.
  with_bad.labels.resize(static_cast<size_t>(with_bad.label_offsets[1]));
  for (int i = 0; i < 9; ++i) with_bad.labels.push_back(1 + i % 2);
  with_bad.label_offsets[2] = static_cast<int32_t>(with_bad.labels.size());
  Graph g;
  model(g);
  Session session(model, options());
  const StepResult r = session.evaluate(with_bad.view(g, classes, 1));
  CHECK(r.infeasible == 1);
  CHECK(std::isinf(r.losses[1]));
  const double mean = r.mean_loss();
  const StepResult& clean = session.evaluate(feasible.view(g, classes, 1));
  CHECK(mean == Approx(static_cast<double>(clean.losses[0])));
  CHECK(session.train_step(with_bad.view(g, classes, 1)).skipped == false);
}

TEST_CASE("a saved model predicts the same; another model's file is refused") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path("model.safetensors");
  Batches batches(1);
  Session session(model, options());
  session.train_step(batches.views[0]);
  session.save(path.string(), {{"note", "hello"}});
  SessionOptions other_seed = options();
  other_seed.seed = 99;
  Session restored(model, other_seed);
  CHECK(weights_of(restored) != weights_of(session));
  restored.load(path.string());
  CHECK(restored.predict(batches.views[0]) == session.predict(batches.views[0]));
  CHECK(session.prediction_shape().cols == classes);
  CHECK(session.subsampling() == 2);

  Session different([](Graph& g) {
    const ValueId x = layers::linear(g, layers::input_frames(g, "features", 6), "out", classes);
    return Outputs{layers::ctc_loss(g, x), x};
  });
  CHECK_THROWS_WITH(different.load(path.string()), Catch::Contains("out.weight"));
}

TEST_CASE("lockstep training compares every kernel with its reference") {
  for (DType compute : {DType::f32, DType::bf16}) {
    Batches batches(1);
    SessionOptions o = options(compute);
    o.lockstep = true;
    Session session(model, o);
    CHECK_NOTHROW(session.train_step(batches.views[0]));
  }
}

TEST_CASE("memory is predicted before it is allocated") {
  Batches batches(2);
  Session session(model, options());
  const auto predicted = session.predict_memory(batches.capacity());
  CHECK(predicted.weights == static_cast<size_t>(session.parameters().flat_size()) * 4);
  CHECK(predicted.gradients == predicted.weights);
  CHECK(predicted.optimizer >= 2 * predicted.weights);
  CHECK(predicted.activations > 0);
  const auto twice = [&] {
    BatchCapacity c = batches.capacity();
    c.packed.rows *= 2;
    return session.predict_memory(c);
  }();
  CHECK(twice.activations > predicted.activations);
}
