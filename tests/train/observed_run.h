// Training seen from outside: a model so simple that a test can compute each of its updates, and
// runs that leave the weights of every step behind.
//
// Utterance i of the training data has ones in column i and zeros elsewhere, and one number as its
// target. The model is linear in the mean of the frames, so it answers utterance i with weight[i] +
// bias: which weights a step moves says which utterances it had, and how far says with which
// learning rate, divisor and rule.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/train/model/build_model.h"
#include "engine/train/state/training_state.h"
#include "tests/train/train_on.h"

namespace rondo::test {

// Weights of the columns, then the bias.
using Weights = std::vector<float>;

struct ColumnUtterance {
  int frames = 1;
  double target = 0;
  std::string more = {};  // fields of its line, as JSON
};

class ColumnCorpus {
 public:
  TemporaryFolder folder;
  std::vector<ColumnUtterance> train;

  // Lengths and targets that all differ; the first epoch from short to long is not the order of the
  // manifest.
  explicit ColumnCorpus(int count = 12) : ColumnCorpus(utterances(count)) {}

  explicit ColumnCorpus(std::vector<ColumnUtterance> utterances) : train(std::move(utterances)) {
    write("train", train);
    std::vector<ColumnUtterance> dev = train, test = train;
    for (ColumnUtterance& u : dev) u.target += 0.25;
    for (ColumnUtterance& u : test) u.target -= 1.5;
    write("dev", dev);
    write("test", test);
  }

  static std::vector<ColumnUtterance> utterances(int count) {
    std::vector<ColumnUtterance> all;
    for (int i = 0; i < count; ++i) {
      ColumnUtterance u;
      u.frames = 2 + i * 5 % count;
      u.target = 3 + 0.5 * i;
      all.push_back(u);
    }
    return all;
  }

  size_t size() const { return train.size(); }

  // Plain descent, without anything that the test did not ask for: constant rate, batches of a few
  // utterances, the weights of each step kept.
  Config config(const std::string& directory) const {
    Config c;
    c.task = Task::regress;
    c.data.train = folder.path("train.jsonl");
    c.data.batch_frames = 24;
    c.data.prefetch_threads = 0;
    c.features.type = FeatureType::ready;
    c.features.cmvn = Cmvn::none;
    c.model.layers = 0;
    c.model.subsample = 1;
    c.model.dropout = 0;
    c.training.threads = 1;
    c.training.epochs = 3;
    c.optimizer.clip_norm = 0;
    c.training.checkpoint_dir = folder.path(directory);
    c.training.checkpoint_every_steps = 1;
    c.training.keep_last = 1000;
    c.training.log_every_steps = 1;
    c.lr.type = LearningRateType::constant;
    c.lr.warmup_steps = 0;
    c.optimizer.kind = OptimizerOptions::sgd;
    c.optimizer.momentum = 0;
    c.optimizer.weight_decay = 0;
    c.optimizer.learning_rate = 0.1;
    c.parallel.timeout_seconds = 20;
    return c;
  }
  Config with_dev(const std::string& directory) const {
    Config c = config(directory);
    c.data.dev = folder.path("dev.jsonl");
    return c;
  }

  // The lines of a manifest whose utterance i fills column i.
  void write(const std::string& part, const std::vector<ColumnUtterance>& utterances) const {
    std::string manifest;
    for (size_t i = 0; i < utterances.size(); ++i) {
      const ColumnUtterance& u = utterances[i];
      std::vector<float> values;
      for (int f = 0; f < u.frames; ++f) {
        for (size_t column = 0; column < size(); ++column)
          values.push_back(column == i ? 1.0f : 0.0f);
      }
      const std::string name = part + std::to_string(i) + ".npy";
      folder.write(name, npy_bytes(values, static_cast<int>(size())));
      manifest += nlohmann::json{{"features_filepath", name}, {"target", u.target}}.dump();
      if (!u.more.empty()) manifest.insert(manifest.size() - 1, ", " + u.more);
      manifest += "\n";
    }
    folder.write(part + ".jsonl", manifest);
  }
};

using Json = nlohmann::json;

// The lines of a run's log with such an event.
inline std::vector<Json> log_events(const std::string& directory, const std::string& event) {
  std::ifstream in(directory + "/log.jsonl");
  std::vector<Json> events;
  for (std::string line; std::getline(in, line);) {
    const Json j = Json::parse(line);
    if (j.at("event") == event) events.push_back(j);
  }
  return events;
}

inline std::vector<double> values_of(const std::vector<Json>& events, const std::string& field) {
  std::vector<double> values;
  for (const Json& e : events) values.push_back(e.at(field).get<double>());
  return values;
}

inline Weights initial_weights(const Config& config, const ModelSizes& sizes) {
  const Session session(build_model(config.model, config.task, sizes),
                        session_options(config, DeviceId{}));
  const TensorView w = session.parameters().weights();
  Weights all;
  for (const auto& e : session.parameters().entries()) {
    all.insert(all.end(), w.as<float>() + e.offset, w.as<float>() + e.offset + e.numel());
  }
  return all;
}

// The generation that was written after update number `step`.
inline std::filesystem::path generation_of_step(const std::string& directory, int64_t step) {
  for (const CheckpointInfo& c : list_checkpoints(directory)) {
    if (c.step == step) return checkpoint_path(directory, c.generation);
  }
  FAIL("no checkpoint of step " << step << " in " << directory);
  return {};
}

// Weights after each update, from its checkpoint; [0]: before the first.
struct ObservedRun {
  std::string directory;
  std::vector<Weights> weights;
  std::vector<Json> steps;

  int64_t updates() const { return static_cast<int64_t>(weights.size()) - 1; }

  // The utterances whose weights update `step` (from 1) moved.
  std::set<size_t> moved(int64_t step) const {
    const Weights &before = weights.at(static_cast<size_t>(step - 1)),
                  &after = weights.at(static_cast<size_t>(step));
    std::set<size_t> all;
    for (size_t i = 0; i + 1 < before.size(); ++i) {
      if (before[i] != after[i]) all.insert(i);
    }
    return all;
  }
  std::vector<std::set<size_t>> moved() const {
    std::vector<std::set<size_t>> all;
    for (int64_t step = 1; step <= updates(); ++step) all.push_back(moved(step));
    return all;
  }
  std::vector<float> slot(int64_t step, const std::string& name) const {
    return stored(generation_of_step(directory, step), name);
  }
};

inline ObservedRun observe(const Config& config, const ModelSizes& sizes, int ranks = 1,
                           StartFrom start = StartFrom::scratch) {
  require_success(train_on(ranks, config, start));
  ObservedRun run{config.training.checkpoint_dir, {initial_weights(config, sizes)}, {}};
  run.steps = log_events(run.directory, "step");
  const int64_t last = list_checkpoints(run.directory).back().step;
  for (int64_t step = 1; step <= last; ++step) {
    run.weights.push_back(stored(generation_of_step(run.directory, step), ""));
  }
  return run;
}

inline ObservedRun observe(const ColumnCorpus& corpus, const Config& config, int ranks = 1,
                           StartFrom start = StartFrom::scratch) {
  return observe(config, ModelSizes{static_cast<int64_t>(corpus.size()), 1}, ranks, start);
}

// The mean loss of utterances with these targets, and its gradient, by their definition.
inline double column_loss(const Weights& w, const std::vector<ColumnUtterance>& utterances,
                          const std::vector<size_t>& batch) {
  double sum = 0;
  for (size_t i : batch) {
    const double error = static_cast<double>(w[i]) + w.back() - utterances[i].target;
    sum += error * error;
  }
  return sum / static_cast<double>(batch.size());
}

inline std::vector<double> column_gradient(const Weights& w,
                                           const std::vector<ColumnUtterance>& utterances,
                                           const std::vector<size_t>& batch) {
  std::vector<double> gradient(w.size());
  for (size_t i : batch) {
    const double error = static_cast<double>(w[i]) + w.back() - utterances[i].target;
    const double share = 2 * error / static_cast<double>(batch.size());
    gradient[i] += share;
    gradient.back() += share;
  }
  return gradient;
}

template <class T>
std::vector<size_t> listed(const T& set) {
  return {set.begin(), set.end()};
}

// Within some roundings in single precision of values of order 10.
inline void check_close(const std::vector<float>& found, const std::vector<double>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("element " << i << ": " << found[i] << ", expected " << wanted[i]);
    CHECK(std::abs(found[i] - wanted[i]) <= 4e-6 * (1 + std::abs(wanted[i])));
  }
}

}  // namespace rondo::test
