// Weighted and class-weighted sampling in training: the manifest's fields, any number of ranks.
#include <fstream>

#include "tests/catch.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

// Adds fields, JSON as written, to the lines of the training manifest; line counts from 1.
void add_fields(const TrainingCorpus& corpus, const std::function<std::string(int)>& fields) {
  std::ifstream in(corpus.folder.path("train.jsonl"));
  std::string manifest, text;
  for (int line = 1; std::getline(in, text); ++line) {
    const std::string more = fields(line);
    text.pop_back();
    manifest += text + (more.empty() ? "" : ", " + more) + "}\n";
  }
  corpus.folder.write("train.jsonl", manifest);
}

Config weighted(const TrainingCorpus& corpus, const std::string& name) {
  Config c = corpus.config(name);
  c.data.dev.clear();
  c.data.sampling = Sampling::weighted;
  c.training.max_steps = 30;
  c.parallel.deterministic = Deterministic::world_invariant;
  c.parallel.batch_parts = 3;
  return c;
}

std::string refusal(const Config& config) {
  const std::string message = message_of(train_on(1, config).errors.at(0));
  CHECK_FALSE(std::filesystem::exists(config.training.checkpoint_dir + "/checkpoint-000000001"));
  return message;
}

}  // namespace

TEST_CASE("weighted draws are the same for any number of ranks, and when a run goes on", "[slow]") {
  const TrainingCorpus corpus(60, 2);
  add_fields(corpus, [](int line) {
    return "\"weight\": " + std::to_string(line % 4) + ", \"speaker\": \"s" +
           std::to_string(line % 7 == 0) + "\"";
  });
  for (Sampling sampling : {Sampling::weighted, Sampling::class_balanced}) {
    const std::string name = sampling == Sampling::weighted ? "weighted" : "classes";
    const auto config = [&](const std::string& directory, int64_t steps) {
      Config c = weighted(corpus, name + directory);
      c.data.sampling = sampling;
      c.data.class_field = "speaker";
      c.data.draws_per_epoch = 47;
      c.training.max_steps = steps;
      return c;
    };
    require_success(train_on(1, config("whole", 30)));
    const auto whole = weights_of(corpus.folder.path(name + "whole"));
    require_success(train_on(3, config("three", 30)));
    CHECK(whole == weights_of(corpus.folder.path(name + "three")));
    require_success(train_on(2, config("parts", 11)));
    require_success(train_on(1, config("parts", 30), StartFrom::checkpoint));
    CHECK(whole == weights_of(corpus.folder.path(name + "parts")));
    Config once = config("once", 30);
    once.data.sampling = Sampling::once;
    require_success(train_on(1, once));
    CHECK(whole != weights_of(once.training.checkpoint_dir));
  }
}

TEST_CASE("an utterance of weight 0 is never read") {
  TrainingCorpus corpus;
  const std::string bad = corpus.spoil_longest();
  std::string number = bad.substr(5, bad.find('.') - 5);
  add_fields(corpus, [&](int line) {
    return std::string("\"w\": ") + (line == std::stoi(number) + 1 ? "0" : "1");
  });
  Config c = weighted(corpus, "run");
  c.data.weight_field = "w";
  require_success(train_on(1, c));
}

TEST_CASE("manifests without usable weights or classes are refused by line") {
  const TrainingCorpus corpus;
  const Config c = weighted(corpus, "refused");
  CHECK_THAT(refusal(c), Contains("train.jsonl:1: has no field \"weight\" with its weight"));
  Config classes = c;
  classes.data.sampling = Sampling::class_balanced;
  CHECK_THAT(refusal(classes), Contains("train.jsonl:1: has no field \"label\" with its class"));
  const auto with = [&](const std::string& value) {
    const TrainingCorpus other;
    add_fields(other, [&](int line) { return "\"weight\": " + (line == 3 ? value : "0"); });
    Config mine = weighted(other, "refused");
    mine.data.class_field = "weight";
    const std::string weight = refusal(mine);
    mine.data.sampling = Sampling::class_balanced;
    return value == "[1]" ? weight + refusal(mine) : weight;
  };
  // Words will do, also under the name of a field that has numbers where classes are the task.
  const TrainingCorpus words;
  add_fields(words, [](int line) { return str("\"label\": \"", line % 2 ? "odd" : "even", "\""); });
  Config named = weighted(words, "run");
  named.data.sampling = Sampling::class_balanced;
  require_success(train_on(1, named));
  for (const char* value : {"-1", "\"2\"", "1e101", "true"}) {
    CHECK_THAT(with(value), Contains("train.jsonl:3: the weight \"weight\" is ") &&
                                Contains("expected a number from 0 to 1e+100"));
  }
  CHECK_THAT(with("[1]"),
             Contains("train.jsonl:3: the class \"weight\" is [1], expected a string"));
  CHECK_THAT(with("0"), Contains("train.jsonl: no utterance has a \"weight\" above 0"));
}

// The program reads them itself; they are fields all the same.
TEST_CASE("weights and classes may be any field of a manifest") {
  const std::string all =
      "\"duration\": 1.5, \"channel\": 2, \"label\": 3, \"target\": [4], \"speaker\": 5, "
      "\"id\": 6, \"mine\": 7";
  for (const char* field : {"duration", "channel", "label", "target", "speaker", "id", "mine"}) {
    INFO(field);
    const TrainingCorpus corpus;
    add_fields(corpus, [&](int) { return all; });
    Config c = weighted(corpus, "weighted");
    c.data.weight_field = field;
    c.training.max_steps = 2;
    require_success(train_on(1, c));
    c = weighted(corpus, "balanced");
    c.data.sampling = Sampling::class_balanced;
    c.data.class_field = field;
    c.training.max_steps = 2;
    require_success(train_on(1, c));
  }
  const TrainingCorpus corpus;
  Config c = weighted(corpus, "balanced");
  c.data.sampling = Sampling::class_balanced;
  c.training.max_steps = 2;
  for (const char* field : {"features_filepath", "text"}) {
    c.data.class_field = field;
    c.training.checkpoint_dir += field;
    require_success(train_on(1, c));
  }
}
