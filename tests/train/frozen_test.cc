// training.freeze_before: layers that keep the weights they began with, however a run is laid out.

#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

// Three LSTM layers, the first two of which are frozen; what would move weights without a gradient
// (decay, momentum, averages) is on.
Config fine_tuning(const TrainingCorpus& corpus, const std::string& name) {
  Config c = corpus.config(name);
  c.model.layers = 3;
  c.model.bidirectional = false;
  c.training.max_steps = 10;
  c.optimizer.ema_decay = 0.9;
  c.optimizer.clip_norm = 0.5;
  c.optimizer.kind = OptimizerOptions::adamw;
  c.optimizer.weight_decay = 0.1;
  c.optimizer.learning_rate = 0.01;
  c.training.init_from = corpus.folder.path("origin/model.safetensors");
  c.training.freeze_before = "lstm4";
  return c;
}

std::string train_origin(const TrainingCorpus& corpus) {
  Config c = fine_tuning(corpus, "origin");
  c.training.init_from.clear();
  c.training.freeze_before.clear();
  require_success(train_on(1, c));
  return c.training.init_from;
}

// The weights of the best model and of the newest checkpoint, against those of the model that the
// run began with: the first ones are of the frozen layers.
void check_frozen(const TrainingCorpus& corpus, const Config& config) {
  const SafetensorsFile origin(corpus.folder.path("origin/model.safetensors"));
  int64_t frozen = 0;
  for (const StoredTensor& t : origin.tensors()) {
    if (t.name.starts_with("lstm0.") || t.name.starts_with("lstm2.")) frozen += t.numel();
  }
  REQUIRE(frozen > 0);
  const std::vector<float> begun = best(corpus.folder.path("origin"));
  for (const std::vector<float>& tuned :
       {best(config.training.checkpoint_dir), stored(newest(config.training.checkpoint_dir), "")}) {
    REQUIRE(tuned.size() == begun.size());
    CHECK(std::equal(tuned.begin(), tuned.begin() + frozen, begun.begin()));
    CHECK(std::mismatch(tuned.begin() + frozen, tuned.end(), begun.begin() + frozen,
                        [](float a, float b) { return a != b; })
              .first == tuned.end());
  }
}

}  // namespace

TEST_CASE("frozen layers keep their weights to the bit, and all others learn") {
  const TrainingCorpus corpus;
  train_origin(corpus);
  Config config = fine_tuning(corpus, "run");
  SECTION("AdamW") {}
  SECTION("Adam, whose decay is in the gradient") {
    config.optimizer.kind = OptimizerOptions::adam;
  }
  SECTION("SGD") { config.optimizer.kind = OptimizerOptions::sgd; }
  SECTION("chunks of time") { config.training.tbptt = 5; }
  SECTION("bf16") { config.training.dtype = DType::bf16; }
  require_success(train_on(1, config));
  check_frozen(corpus, config);
  config.training.max_steps = 15;
  require_success(train_on(1, config, StartFrom::checkpoint));
  check_frozen(corpus, config);
}

TEST_CASE("frozen layers stay frozen on several ranks, which train what one rank would", "[slow]") {
  const TrainingCorpus corpus;
  train_origin(corpus);
  const auto tuning = [&](const std::string& name) {
    Config c = fine_tuning(corpus, name);
    c.optimizer.kind = OptimizerOptions::sgd;
    return c;
  };
  Config one = tuning("one");
  require_success(train_on(1, one));
  const std::vector<float> expected = best(one.training.checkpoint_dir);
  struct Layout {
    const char* name;
    int ranks;
    std::function<void(Config&)> set;
  };
  const Layout layout = GENERATE(values<Layout>({
      {"replicas", 4, [](Config&) {}},
      {"divided", 4, [](Config& c) { c.parallel.divide_optimizer = true; }},
      {"the same on any number", 4,
       [](Config& c) {
         c.parallel.deterministic = Deterministic::world_invariant;
         c.parallel.batch_parts = 4;
       }},
      {"a stage that is frozen as a whole", 2,
       [](Config& c) {
         c.parallel.pipeline = 2;
         c.parallel.micro_batches = 4;
       }},
      {"stages of replicas, divided", 4,
       [](Config& c) {
         c.parallel.pipeline = 2;
         c.parallel.micro_batches = 2;
         c.parallel.divide_optimizer = true;
       }},
      {"pieces of sequences", 2, [](Config& c) { c.parallel.sequence = 2; }},
  }));
  INFO(layout.name);
  Config config = tuning("run");
  layout.set(config);
  require_success(train_on(layout.ranks, config));
  check_frozen(corpus, config);
  const std::vector<float> found = best(config.training.checkpoint_dir);
  REQUIRE(found.size() == expected.size());
  // Sums in another order.
  const double norm = distance(expected, std::vector<float>(expected.size()));
  CHECK(distance(found, expected) <= 1e-5 * norm);
}

TEST_CASE("what cannot be frozen is said with what can") {
  const TrainingCorpus corpus;
  train_origin(corpus);
  Config config = fine_tuning(corpus, "run");
  SECTION("no such layer") {
    config.training.freeze_before = "lstm3";
    CHECK_THAT(message_of(train_on(1, config).errors.at(0)),
               Contains("training.freeze_before is 'lstm3', expected one of the layers lstm0.0, "
                        "lstm2.0, lstm4.0, output"));
  }
  SECTION("no model to begin with") {
    config.training.init_from.clear();
    CHECK_THAT(message_of(train_on(1, config).errors.at(0)),
               Contains("training.init_from (--init-from) is empty"));
  }
}
