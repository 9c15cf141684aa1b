// Ranks that share each sequence train as one rank does; so do chunks on one.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>

#include "comm/run_ranks.h"
#include "engine/io/checkpoint.h"
#include "engine/train/trainer.h"
#include "tests/engine/wide_ctc.h"
#include "tests/train/training_corpus.h"

using namespace rondo;
using Catch::Matchers::Contains;
using rondo::test::TrainingCorpus;
using rondo::test::WideCtc;

namespace {

// What went wrong first, or nothing.
std::string train_on(int ranks, const Config& config) {
  const RankOutcome outcome = run_ranks_and_collect(ranks, [&](int, Transport& transport) {
    const auto group = make_ring_group(transport);
    TrainerOptions o;
    o.group = ranks > 1 ? group.get() : nullptr;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> nowhere(std::fopen("/dev/null", "w"),
                                                                  std::fclose);
    o.out = nowhere.get();
    train(config, o);
  });
  if (outcome.first_failed < 0) return "";
  try {
    std::rethrow_exception(outcome.errors.at(static_cast<size_t>(outcome.first_failed)));
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::vector<double> weights_of(const Config& config) {
  const std::string& directory = config.training.checkpoint_dir;
  const SafetensorsFile file(
      (checkpoint_path(directory, list_checkpoints(directory).back().generation) /
       "model.safetensors")
          .string());
  std::vector<double> all;
  for (const StoredTensor& tensor : file.tensors()) {
    for (float w : tensor.as<float>()) all.push_back(static_cast<double>(w));
  }
  return all;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("ranks that share sequences end as one rank does, but for the order of sums") {
  const WideCtc same_arithmetic;
  const TrainingCorpus corpus(160, 2);
  const auto trained = [&](const std::string& name, int ranks, int shards, int parts,
                           int micro_batches = 0) {
    Config c = corpus.config(name);
    c.parallel.micro_batches = micro_batches;
    c.data.dev.clear();
    c.training.max_steps = 100;
    c.parallel.sequence = shards;
    if (parts > 0) {
      c.parallel.deterministic = Deterministic::world_invariant;
      c.parallel.virtual_shards = parts;
    }
    CHECK(train_on(ranks, c) == "");
    return weights_of(c);
  };
  const std::vector<double> one = trained("one", 1, 1, 0);
  // The control: one rank, the same batches, their utterances summed in other orders.
  double control = 0;
  for (int parts : {2, 3, 5, 8}) {
    const auto other = trained("control" + std::to_string(parts), 1, 1, parts);
    control = std::max(control, distance(one, other));
  }
  CHECK(control > 0);
  CHECK(control < 1e-3);
  const std::pair<int, int> worlds[] = {{2, 2}, {4, 4}, {4, 2}};  // ranks, shards
  for (const auto& [ranks, shards] : worlds) {
    const double difference =
        distance(one, trained(str("sequence", ranks, "of", shards), ranks, shards, 0));
    INFO(ranks << " ranks, " << shards << " to a sequence: " << difference << "; " << control);
    CHECK(difference <= 2 * control);
    CHECK(difference > 0);  // they did something else
  }
  // Micro-batches fill the wave, and are empty where a batch has few sequences.
  CHECK(distance(one, trained("wave", 4, 2, 0, 3)) <= 2 * control);
}

TEST_CASE("data that one of the ranks of a sequence cannot read end all of them") {
  TrainingCorpus corpus(60, 2);
  Config c = corpus.config("unreadable");
  c.data.dev.clear();
  c.parallel.sequence = 2;
  c.parallel.timeout_seconds = 600;  // they must not wait for it
  const std::string bad = corpus.spoil_longest();
  CHECK_THAT(train_on(2, c), Contains(bad));
  CHECK(list_checkpoints(c.training.checkpoint_dir).size() == 1);
}

TEST_CASE("training in chunks: one chunk is the whole, several are not") {
  const TrainingCorpus corpus(160, 9);
  const auto config = [&](const std::string& name, int frames) {
    Config c = corpus.config(name);
    c.model.bidirectional = false;
    c.training.tbptt = frames;
    c.training.max_steps = 60;
    c.data.batch_frames = 400;
    return c;
  };
  const Config whole = config("whole", 0), large = config("large", 1000),
               small = config("small", 5);
  for (const Config* c : {&whole, &large, &small}) CHECK(train_on(1, *c) == "");
  // CTC's variants differ in rounding.
  CHECK(distance(weights_of(whole), weights_of(large)) < 1e-3);
  CHECK(distance(weights_of(whole), weights_of(small)) > 1e-3);
}

namespace {

LayerConfig conv_layer(int kernel, ConvContext context) {
  LayerConfig layer;
  layer.type = LayerType::conv;
  layer.channels = 8;
  layer.kernel = kernel;
  layer.context = context;
  return layer;
}

ModelConfig conv_lstm(int kernel, ConvContext context) {
  LayerConfig lstm;
  lstm.hidden = 8;
  lstm.bidirectional = false;
  ModelConfig model;
  model.layer = {conv_layer(kernel, context), lstm, conv_layer(2, context)};
  return model;
}

}  // namespace

TEST_CASE("ranks that share sequences exchange what convolutions read of their neighbours") {
  const WideCtc same_arithmetic;
  const TrainingCorpus corpus(160, 2);
  const auto trained = [&](const std::string& name, int ranks, int micro_batches, int parts) {
    Config c = corpus.config(name);
    c.model = conv_lstm(3, ConvContext::both);
    c.parallel.micro_batches = micro_batches;
    c.data.dev.clear();
    c.training.max_steps = 60;
    c.parallel.sequence = ranks;
    if (parts > 0) {
      c.parallel.deterministic = Deterministic::world_invariant;
      c.parallel.virtual_shards = parts;
    }
    CHECK(train_on(ranks, c) == "");
    return weights_of(c);
  };
  const std::vector<double> one = trained("one", 1, 0, 0);
  double control = 0;
  for (int parts : {2, 3, 5, 8}) {
    control = std::max(control, distance(one, trained(str("control", parts), 1, 0, parts)));
  }
  CHECK(control > 0);
  CHECK(control < 1e-3);
  for (const auto& [ranks, micro_batches] : {std::pair{2, 0}, {2, 3}, {3, 0}}) {
    const double difference =
        distance(one, trained(str("sequence", ranks, "x", micro_batches), ranks, micro_batches, 0));
    INFO(ranks << " shards: " << difference << "; " << control);
    CHECK(difference <= 2 * control);
    CHECK(difference > 0);
  }
}

TEST_CASE("chunks of a model with convolutions of the past: the whole, or nearly") {
  const TrainingCorpus corpus(160, 9);
  const auto config = [&](const std::string& name, int frames) {
    Config c = corpus.config(name);
    c.model = conv_lstm(3, ConvContext::past);
    c.training.tbptt = frames;
    c.training.max_steps = 40;
    c.data.batch_frames = 400;
    return c;
  };
  const Config whole = config("whole", 0), large = config("large", 1000),
               small = config("small", 5);
  for (const Config* c : {&whole, &large, &small}) CHECK(train_on(1, *c) == "");
  CHECK(distance(weights_of(whole), weights_of(large)) < 1e-3);
  CHECK(distance(weights_of(whole), weights_of(small)) > 1e-3);
}

TEST_CASE("convolutions that reach beyond a shard, or ahead of a chunk, are refused") {
  const TrainingCorpus corpus(20, 2);
  Config c = corpus.config("short");
  c.model = conv_lstm(61, ConvContext::both);
  c.parallel.sequence = 2;
  CHECK_THAT(train_on(2, c), Contains("parallel.sequence=2: the longest utterance of ") &&
                                 Contains("each shard needs 30 at least"));
  CHECK(list_checkpoints(c.training.checkpoint_dir).empty());
  c = corpus.config("ahead");
  c.model = conv_lstm(3, ConvContext::both);
  c.training.tbptt = 5;
  CHECK_THAT(train_on(1, c), Contains("need convolutions of the past: conv0 reads 1 frame ahead"));
}

TEST_CASE("settings of shards and chunks that do not fit are refused") {
  const TrainingCorpus corpus(20, 2);
  Config c = corpus.config("odd");
  c.parallel.sequence = 2;
  CHECK_THAT(train_on(3, c), Contains("parallel.sequence is 2, which does not divide the 3 ranks"));
  c = corpus.config("chunks");
  c.training.tbptt = 5;
  CHECK_THAT(train_on(1, c), Contains("need unidirectional layers"));
  c = corpus.config("both");
  c.training.tbptt = 5;
  c.model.bidirectional = false;
  c.parallel.sequence = 2;
  CHECK_THAT(train_on(2, c), Contains("parallel.sequence and training.tbptt do not go together"));
}
