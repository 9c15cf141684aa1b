// Training on several ranks gives what one rank gives, and ends with a cause when it cannot.
#include "engine/reduce/ranks.h"

#include "tests/catch.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

TEST_CASE("any number of ranks ends as one rank does, but for the order of sums") {
  const TrainingCorpus corpus(160, 2);
  const auto trained = [&](const std::string& name, int ranks, int parts) {
    Config c = corpus.config(name);
    c.data.dev.clear();
    if (parts > 0) {
      c.parallel.deterministic = Deterministic::world_invariant;
      c.parallel.batch_parts = parts;
    }
    require_success(train_on(ranks, c));
    CHECK(list_checkpoints(c.training.checkpoint_dir).back().step == 50);
    return weights_of(c.training.checkpoint_dir);
  };
  const std::vector<float> one = trained("one", 1, 0);
  // The control: one rank, the same batches, their utterances summed in other orders. How far two
  // of these runs end from each other is what the order of sums does.
  std::vector<std::vector<float>> orders{one};
  for (int parts = 2; parts <= 12; ++parts) {
    orders.push_back(trained("control" + std::to_string(parts), 1, parts));
  }
  double control = 0;
  for (const auto& a : orders) {
    for (const auto& b : orders) control = std::max(control, distance(a, b));
  }
  CHECK(control > 0);
  for (int ranks = 2; ranks <= 4; ++ranks) {
    const double difference = distance(one, trained("ranks" + std::to_string(ranks), ranks, 0));
    INFO(ranks << " ranks: " << difference << ", other orders of sums: " << control);
    CHECK(difference <= control);
    CHECK(difference > 0);  // or nothing would have been compared
  }
}

TEST_CASE("world_invariant: the same bits from any number of ranks, with everything switched on",
          "[slow]") {
  const TrainingCorpus corpus(120, 9);
  const auto trained = [&](int ranks) {
    Config c = corpus.config("ranks" + std::to_string(ranks));
    c.parallel.deterministic = Deterministic::world_invariant;
    c.parallel.batch_parts = 5;
    c.training.accumulation = 3;
    c.optimizer.ema_decay = 0.9;
    c.training.average_best = 2;
    c.optimizer.kind = OptimizerOptions::adamw;
    c.optimizer.learning_rate = 0.01;
    require_success(train_on(ranks, c));
    const std::filesystem::path directory = c.training.checkpoint_dir;
    const std::filesystem::path generation = newest(directory.string());
    std::vector<std::string> files{bytes_of(generation / "optimizer.safetensors")};
    for (const auto& path : {generation / "model.safetensors", directory / "model.safetensors"}) {
      const SafetensorsFile file(path.string());
      for (const StoredTensor& tensor : file.tensors()) {
        files.emplace_back(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
      }
    }
    return files;
  };
  const auto one = trained(1);
  for (int ranks = 2; ranks <= 5; ++ranks) {
    INFO(ranks << " ranks");
    CHECK(one == trained(ranks));
  }
}

TEST_CASE("a run goes on with another number of ranks where it stood", "[slow]") {
  const TrainingCorpus corpus(150, 2);
  const auto config = [&](const std::string& name, int64_t steps) {
    Config c = corpus.config(name);
    c.parallel.deterministic = Deterministic::world_invariant;
    c.parallel.batch_parts = 4;
    c.optimizer.kind = OptimizerOptions::adamw;
    c.optimizer.learning_rate = 0.01;
    c.data.dev.clear();
    c.training.max_steps = steps;
    return c;
  };
  require_success(train_on(1, config("whole", 45)));
  require_success(train_on(2, config("parts", 17)));
  require_success(train_on(3, config("parts", 31), StartFrom::checkpoint));
  require_success(train_on(1, config("parts", 38), StartFrom::checkpoint));
  require_success(train_on(4, config("parts", 45), StartFrom::checkpoint));
  CHECK(weights_of(corpus.folder.path("whole")) == weights_of(corpus.folder.path("parts")));
}

TEST_CASE("bad data on one rank stop all of them after the last good update") {
  TrainingCorpus corpus;
  const std::string bad = corpus.spoil_longest();
  Config c = corpus.config("bad");
  c.training.max_steps = 0;
  c.training.validate_every_steps = 0;
  c.data.dev.clear();
  const RankOutcome outcome = train_on(3, c);
  int named = -1;
  for (int rank = 0; rank < 3; ++rank) {
    try {
      std::rethrow_exception(outcome.errors.at(static_cast<size_t>(rank)));
    } catch (const PeerFailed&) {
    } catch (const InputError&) {
      CHECK(named == -1);
      named = rank;
    }
  }
  REQUIRE(named >= 0);
  for (const auto& e : outcome.errors) CHECK_THAT(message_of(e), Contains(bad));
  const auto other = outcome.errors[static_cast<size_t>((named + 1) % 3)];
  CHECK_THAT(message_of(other), Contains("rank " + std::to_string(named) + ": "));
  CHECK_THROWS_WITH(rethrow_cause(outcome), Contains("rank " + std::to_string(named) + ": "));
  // The first epoch is from short to long: only its last update is missing.
  const auto kept = list_checkpoints(c.training.checkpoint_dir);
  REQUIRE(kept.size() == 1);
  CHECK(kept.back().step >= 10);
}

TEST_CASE("ranks that were given different things refuse to start") {
  const TrainingCorpus corpus;
  const auto refusal = [&](const Prepare& prepare) {
    const RankOutcome outcome = train_on(3, corpus.config("refused"), StartFrom::scratch, prepare);
    for (const auto& e : outcome.errors) CHECK(e);
    CHECK_FALSE(std::filesystem::exists(corpus.folder.path("refused/checkpoint-000000001")));
    return message_of(outcome.errors.at(0));
  };
  CHECK_THAT(refusal([](int rank, Config& c, TrainerOptions&) {
               if (rank == 2) c.optimizer.learning_rate = 0.25;
             }),
             Contains("rank 2: its settings are not those of rank 0") &&
                 Contains("optimizer.lr: 0.1 -> 0.25"));
  CHECK_THAT(
      refusal([](int rank, Config&, TrainerOptions& o) { o.version = rank == 1 ? "1.1" : "1.0"; }),
      Contains("rank 1: is version 1.1 of the program, rank 0 version 1.0"));
  CHECK_THAT(refusal([&](int rank, Config& c, TrainerOptions&) {
               if (rank == 1) c.data.train = c.data.dev;
             }),
             Contains("rank 1: ") && Contains("utterances that can be used, that of rank 0 "));
}

TEST_CASE("a disk that refuses rank 0 stops all ranks") {
  const TrainingCorpus corpus;
  const std::string file = corpus.folder.write("file", "in the way");
  Config c = corpus.config("file/run");
  const RankOutcome outcome = train_on(2, c);
  for (const auto& e : outcome.errors) CHECK_THAT(message_of(e), Contains(file));
  CHECK_THAT(message_of(outcome.errors.at(1)), Contains("rank 0: "));
}

TEST_CASE("ranks without a share of any batch take part") {
  const TrainingCorpus corpus(3, 2);
  Config c = corpus.config("few");
  c.data.batch_frames = 30;  // one utterance each
  c.training.max_steps = 6;
  require_success(train_on(4, c));
  CHECK(list_checkpoints(c.training.checkpoint_dir).back().step == 6);
}
