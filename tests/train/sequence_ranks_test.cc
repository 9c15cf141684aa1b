// Ranks that share each sequence train as one rank does; so do chunks on one.

#include "tests/catch.h"
#include "tests/engine/wide_ctc.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

// What went wrong first, or nothing.
std::string cause_on(int ranks, const Config& config) {
  const RankOutcome outcome = train_on(ranks, config);
  if (outcome.first_failed < 0) return "";
  return message_of(outcome.errors.at(static_cast<size_t>(outcome.first_failed)));
}

std::vector<float> trained_on(int ranks, const Config& config) {
  require_success(train_on(ranks, config));
  return weights_of(config.training.checkpoint_dir);
}

// CTC's variants differ in rounding: that of chunks is another than the whole's.
void check_chunks(const Config& whole, const Config& large, const Config& small) {
  const auto weights = trained_on(1, whole);
  CHECK(distance(weights, trained_on(1, large)) < 1e-3);
  CHECK(distance(weights, trained_on(1, small)) > 1e-3);
}

}  // namespace

TEST_CASE("ranks that share sequences end as one rank does, but for the order of sums", "[slow]") {
  const WideCtc same_arithmetic;
  const TrainingCorpus corpus(160, 2);
  const auto trained = [&](const std::string& name, int ranks, int shards, int parts,
                           int micro_batches = 0) {
    Config c = corpus.config(name);
    c.parallel.micro_batches = micro_batches;
    c.data.dev.clear();
    c.training.max_steps = 100;
    c.parallel.sequence = shards;
    if (parts > 0) sum_in_parts(c, parts);
    return trained_on(ranks, c);
  };
  const std::vector<float> one = trained("one", 1, 1, 0);
  const double control = control_of(
      one, {2, 3, 5, 8}, [&](int parts) { return trained(str("control", parts), 1, 1, parts); });
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
  CHECK_THAT(cause_on(2, c), Contains(bad));
  CHECK(list_checkpoints(c.training.checkpoint_dir).size() == 1);
}

TEST_CASE("training in chunks: one chunk is the whole, several are not", "[slow]") {
  const TrainingCorpus corpus(160, 9);
  const auto config = [&](const std::string& name, int frames) {
    Config c = corpus.config(name);
    c.model.bidirectional = false;
    c.training.tbptt = frames;
    c.training.max_steps = 60;
    c.data.batch_frames = 400;
    return c;
  };
  check_chunks(config("whole", 0), config("large", 1000), config("small", 5));
}

namespace {

LayerConfig conv_layer(int kernel, ConvContext context) {
  return LayerConfig("conv").set("channels", 8).set("kernel", kernel).set("context", context);
}

ModelConfig conv_lstm(int kernel, ConvContext context) {
  const auto lstm = LayerConfig("lstm").set("hidden", 8).set("bidirectional", false);
  ModelConfig model;
  model.layer = {conv_layer(kernel, context), lstm, conv_layer(2, context)};
  return model;
}

}  // namespace

TEST_CASE("ranks that share sequences exchange what convolutions read of their neighbours",
          "[slow]") {
  const WideCtc same_arithmetic;
  const TrainingCorpus corpus(160, 2);
  const auto trained = [&](const std::string& name, int ranks, int micro_batches, int parts) {
    Config c = corpus.config(name);
    c.model = conv_lstm(3, ConvContext::both);
    c.parallel.micro_batches = micro_batches;
    c.data.dev.clear();
    c.training.max_steps = 60;
    c.parallel.sequence = ranks;
    if (parts > 0) sum_in_parts(c, parts);
    return trained_on(ranks, c);
  };
  const std::vector<float> one = trained("one", 1, 0, 0);
  const double control = control_of(
      one, {2, 3, 5, 8}, [&](int parts) { return trained(str("control", parts), 1, 0, parts); });
  for (const auto& [ranks, micro_batches] : {std::pair{2, 0}, {2, 3}, {3, 0}}) {
    const double difference =
        distance(one, trained(str("sequence", ranks, "x", micro_batches), ranks, micro_batches, 0));
    INFO(ranks << " shards: " << difference << "; " << control);
    CHECK(difference <= 2 * control);
    CHECK(difference > 0);
  }
}

TEST_CASE("chunks of a model with convolutions of the past: the whole, or nearly", "[slow]") {
  const TrainingCorpus corpus(160, 9);
  const auto config = [&](const std::string& name, int frames) {
    Config c = corpus.config(name);
    c.model = conv_lstm(3, ConvContext::past);
    c.training.tbptt = frames;
    c.training.max_steps = 40;
    c.data.batch_frames = 400;
    return c;
  };
  check_chunks(config("whole", 0), config("large", 1000), config("small", 5));
}

TEST_CASE("convolutions that reach beyond a shard, or ahead of a chunk, are refused") {
  const TrainingCorpus corpus(20, 2);
  Config c = corpus.config("short");
  c.model = conv_lstm(61, ConvContext::both);
  c.parallel.sequence = 2;
  CHECK_THAT(cause_on(2, c), Contains("parallel.sequence=2: the longest utterance of ") &&
                                 Contains("each shard needs 30 at least"));
  CHECK(list_checkpoints(c.training.checkpoint_dir).empty());
  c = corpus.config("ahead");
  c.model = conv_lstm(3, ConvContext::both);
  c.training.tbptt = 5;
  CHECK_THAT(cause_on(1, c), Contains("need convolutions of the past: conv0 reads 1 frame ahead"));
}

TEST_CASE("settings of shards and chunks that do not fit are refused") {
  const TrainingCorpus corpus(20, 2);
  Config c = corpus.config("odd");
  c.parallel.sequence = 2;
  CHECK_THAT(cause_on(3, c), Contains("parallel.sequence is 2, which does not divide the 3 ranks"));
  c = corpus.config("chunks");
  c.training.tbptt = 5;
  CHECK_THAT(cause_on(1, c), Contains("need unidirectional layers"));
  c = corpus.config("both");
  c.training.tbptt = 5;
  c.model.bidirectional = false;
  c.parallel.sequence = 2;
  CHECK_THAT(cause_on(2, c), Contains("parallel.sequence and training.tbptt do not go together"));
}
