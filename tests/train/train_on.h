// Runs train() as ranks in threads, and reads what it left.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "comm/in_process/run_ranks.h"
#include "engine/io/checkpoint.h"
#include "engine/train/model/build_model.h"
#include "engine/train/model/model_file.h"
#include "engine/train/model/stored_state.h"
#include "engine/train/state/read_weights.h"
#include "engine/train/trainer.h"
#include "tests/catch.h"
#include "tests/train/training_corpus.h"

namespace rondo::test {

// `prepare` may change what one rank is given.
using Prepare = std::function<void(int rank, Config&, TrainerOptions&)>;

inline RankOutcome train_on(int ranks, const Config& config, StartFrom start = StartFrom::scratch,
                            const Prepare& prepare = {}) {
  return run_ranks_and_collect(ranks, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    TrainerOptions o;
    o.start = start;
    o.group = ranks > 1 ? group.get() : nullptr;
    o.transport = ranks > 1 ? &transport : nullptr;
    Config mine = config;
    if (prepare) prepare(rank, mine, o);
    train(mine, o);
  });
}

inline std::string message_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

inline void require_success(const RankOutcome& outcome) {
  for (const auto& e : outcome.errors) REQUIRE(message_of(e) == "");
}

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  REQUIRE_FALSE(out.str().empty());
  return out.str();
}

inline std::filesystem::path newest(const std::string& directory) {
  return checkpoint_path(directory, list_checkpoints(directory).back().generation);
}

// Reads a generation, however many files it has: the weights (slot ""), or a slot of the
// optimiser's state, parameter after parameter in the order of the model's graph.
inline std::vector<float> stored(const std::filesystem::path& generation, const std::string& slot) {
  const StoredState state(open_checkpoint(generation));
  const auto d = ModelDescription::from_metadata(state.weights().metadata(), generation);
  Graph graph;
  build_model(d.config.model, d.config.task, d.sizes)(graph);
  int64_t flat_size = 0;
  const auto entries = Parameters::entries_of(graph, &flat_size);
  require_weights(state.weights(), entries);
  if (!slot.empty()) state.require(slot, entries, flat_size);
  std::vector<float> all;
  for (const auto& e : entries) {
    std::vector<float> values(static_cast<size_t>(e.numel()));
    if (slot.empty()) {
      weights_of(state.weights())(e, values);
    } else {
      state.read(slot, e, values);
    }
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// The best model's weights, in the order of stored().
inline std::vector<float> best(const std::string& directory) {
  const SafetensorsFile file(directory + "/model.safetensors");
  const auto d = ModelDescription::from_metadata(file.metadata(), directory);
  Graph graph;
  build_model(d.config.model, d.config.task, d.sizes)(graph);
  int64_t flat_size = 0;
  std::vector<float> all;
  for (const auto& e : Parameters::entries_of(graph, &flat_size)) {
    const auto values = file.at(e.name).as<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

inline std::vector<float> weights_of(const std::string& directory) {
  const SafetensorsFile file((newest(directory) / "model.safetensors").string());
  std::vector<float> all;
  for (const StoredTensor& tensor : file.tensors()) {
    const auto values = tensor.as<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  }
  return std::sqrt(sum);
}

// One rank sums in `parts` parts, which is another order.
inline void sum_in_parts(Config& config, int parts) {
  config.parallel.deterministic = Deterministic::world_invariant;
  config.parallel.batch_parts = parts;
}

// What the order of sums does to training: how far from `one` a rank ends that sums in other
// orders. trained(parts): its weights.
inline double control_of(const std::vector<float>& one, std::initializer_list<int> orders,
                         const std::function<std::vector<float>(int parts)>& trained) {
  double control = 0;
  for (int parts : orders) control = std::max(control, distance(trained(parts), one));
  CHECK(control > 0);
  CHECK(control < 1e-3);
  return control;
}

}  // namespace rondo::test
