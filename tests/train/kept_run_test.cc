// Runs that go on from what their ranks kept in memory, wherever ranks were lost: with the bits of
// a run that nobody disturbed.
#include "engine/train/state/kept_run.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "engine/parallel/elastic_protocol.h"
#include "engine/train/state/elastic_progress.h"
#include "tests/catch.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

// These runs save often, and no power is cut.
const TemporaryFolder& runs() {
  static const TemporaryFolder folder;
  return folder;
}

// Everything that a rank keeps besides weights: moments, a moving average, the best models so far.
Config config_of(const TrainingCorpus& corpus, const std::string& name) {
  Config c = corpus.config(name);
  static int number = 0;
  c.training.checkpoint_dir = runs().path(name + std::to_string(++number));
  c.parallel.deterministic = Deterministic::world_invariant;
  c.parallel.batch_parts = 4;
  c.optimizer.kind = OptimizerOptions::adamw;
  c.optimizer.learning_rate = 0.01;
  c.optimizer.ema_decay = 0.9;
  c.training.average_best = 2;
  c.training.accumulation = 2;
  c.training.max_steps = 24;
  c.training.validate_every_steps = 5;
  c.training.checkpoint_every_steps = 3;
  return c;
}

// Of the newest generation and the best model: the tensors, and where the run stands but for its
// clock.
std::vector<std::string> results(const std::string& directory) {
  const std::filesystem::path generation = newest(directory);
  std::vector<std::string> all{bytes_of(generation / "optimizer.safetensors")};
  for (const auto& path :
       {generation / "model.safetensors", std::filesystem::path(directory) / "model.safetensors"}) {
    const SafetensorsFile file(path.string());
    for (const StoredTensor& t : file.tensors()) {
      all.emplace_back(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
    }
  }
  TrainingState state = read_training_state(open_checkpoint(generation));
  state.seconds = 0;
  all.push_back(state.to_json());
  return all;
}

// The one that has come furthest first.
void sort(std::vector<KeptRun>& ranks) {
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const KeptRun& a, const KeptRun& b) { return a.progress() > b.progress(); });
}

using Interference = std::function<void(int rank, TrainerOptions& options)>;

// As ranks with what each has kept so far.
RankOutcome go_on(std::vector<KeptRun>& ranks, const Config& config,
                  const Interference& interfere = {}) {
  return train_on(static_cast<int>(ranks.size()), config, StartFrom::checkpoint_if_any,
                  [&](int rank, Config&, TrainerOptions& o) {
                    o.kept = &ranks[static_cast<size_t>(rank)];
                    if (interfere) interfere(rank, o);
                  });
}

// Ends a rank without a word, wherever it is asked whether to stop for the n-th time: in an update,
// or in a validation.
Interference dies(int victim, int at) {
  const auto asked = std::make_shared<int>(0);
  return [=](int rank, TrainerOptions& o) {
    if (rank != victim) return;
    o.stop = [=]() -> bool {
      if (++*asked == at) throw CommError(CommErrorKind::aborted, rank, "dead");
      return false;
    };
  };
}

// Where the n-th validation has its result, all ranks lose each other.
class BreaksOff final : public TrainingObserver {
 public:
  explicit BreaksOff(int at) : at_(at) {}
  void validated(const Validation&) override {
    if (--at_ == 0) throw CommError(CommErrorKind::aborted, 0, "broken off");
  }

 private:
  int at_;
};

// Comes to an end after so many updates, as where others wait.
Interference regroups_after(int updates) {
  const auto asked = std::make_shared<int>(0);
  return [=](int rank, TrainerOptions& o) {
    // Once before the first update.
    if (rank == 0) o.regroup = [=] { return (*asked)++ == updates; };
  };
}

}  // namespace

TEST_CASE("ranks that are left go on from memory, wherever one was lost", "[slow]") {
  const TrainingCorpus corpus(60, 9);
  const Config whole = config_of(corpus, "whole");
  require_success(train_on(1, whole));
  const auto expected = results(whole.training.checkpoint_dir);
  int went_on = 0, from_validation = 0;
  for (int at = 2; at < 60; at += 3) {
    const int victim = at % 3;
    INFO("rank " << victim << " dies when it is asked for the " << at << "th time");
    const Config c = config_of(corpus, "lost" + std::to_string(at));
    std::vector<KeptRun> ranks(3);
    const RankOutcome lost = go_on(ranks, c, dies(victim, at));
    if (!lost.errors[static_cast<size_t>(victim)]) continue;  // the run was over before
    CHECK_THAT(message_of(lost.errors[static_cast<size_t>(victim)]), Contains("dead"));
    ranks.erase(ranks.begin() + victim);
    sort(ranks);
    REQUIRE(ranks[0].holds_state);
    ++went_on;
    from_validation += ranks[0].next == NextAct::validation ? 1 : 0;
    // Checkpoints play no part.
    for (const CheckpointInfo& g : list_checkpoints(c.training.checkpoint_dir)) {
      const auto path = checkpoint_path(c.training.checkpoint_dir, g.generation);
      if (!g.score) std::filesystem::remove(path / "optimizer.safetensors");
    }
    ranks.emplace_back();  // and one that has just come
    require_success(go_on(ranks, c));
    CHECK(results(c.training.checkpoint_dir) == expected);
  }
  CHECK(went_on > 10);
  CHECK(from_validation > 0);
}

TEST_CASE("a validation that was broken off when it had its result counts once", "[slow]") {
  const TrainingCorpus corpus(60, 9);
  // Of a model that gets better, and of one that stays as it was: of that each validation counts as
  // one more without progress.
  for (const double rate : {0.01, 1e-20}) {
    const auto config = [&](const std::string& name) {
      Config c = config_of(corpus, name);
      c.optimizer.learning_rate = rate;
      return c;
    };
    const Config whole = config("whole");
    require_success(train_on(1, whole));
    const auto expected = results(whole.training.checkpoint_dir);
    for (const int at : {1, 2, 4}) {
      INFO("validation " << at << " at a learning rate of " << rate);
      const Config c = config("validation" + std::to_string(at));
      std::vector<KeptRun> ranks(2);
      std::vector<BreaksOff> observers(2, BreaksOff(at));
      go_on(ranks, c, [&](int rank, TrainerOptions& o) {
        o.observer = &observers[static_cast<size_t>(rank)];
      });
      for (const KeptRun& r : ranks) {
        REQUIRE(r.holds_state);
        CHECK(r.next == NextAct::validation);
        CHECK(std::isinf(r.state.best_loss) == (at == 1));  // of what was before it
      }
      require_success(go_on(ranks, c));
      CHECK(results(c.training.checkpoint_dir) == expected);
    }
  }
}

TEST_CASE("a rank that is an update behind takes the state of the one ahead", "[slow]") {
  const TrainingCorpus corpus(60, 9);
  const Config whole = config_of(corpus, "whole");
  require_success(train_on(1, whole));
  const auto expected = results(whole.training.checkpoint_dir);
  for (const bool ahead_is_lost : {false, true}) {
    const Config c = config_of(corpus, ahead_is_lost ? "lost" : "there");
    std::vector<KeptRun> ranks(2);
    require_success(go_on(ranks, c, regroups_after(8)));
    REQUIRE(ranks[0].state.step == 8);
    REQUIRE(ranks[1].progress() == ranks[0].progress());
    const KeptRun behind = ranks[1];
    std::vector<KeptRun> ahead{ranks[0]};
    require_success(go_on(ahead, c, regroups_after(1)));
    REQUIRE(ahead[0].state.step == 9);
    CHECK(ahead[0].progress() > behind.progress());
    ranks = {behind};
    if (!ahead_is_lost) ranks.insert(ranks.begin(), ahead[0]);
    const auto saved = [&] {
      const auto all = list_checkpoints(c.training.checkpoint_dir);
      return std::count_if(all.begin(), all.end(), [](const auto& g) { return g.step == 9; });
    };
    CHECK(saved() == 1);
    if (ahead_is_lost) {  // that update is made again, its checkpoint is not
      require_success(go_on(ranks, c, regroups_after(1)));
      CHECK(ranks[0].progress() == ahead[0].progress());
      CHECK(saved() == 1);
    }
    require_success(go_on(ranks, c));
    CHECK(results(c.training.checkpoint_dir) == expected);
  }
}

// A store that was killed while it removed them leaves more than it keeps.
TEST_CASE("an average of the best does not depend on older checkpoints that are as good",
          "[slow]") {
  const TrainingCorpus corpus(60, 9);
  const auto average = [&](int keep_best) {
    Config c = config_of(corpus, "keeps" + std::to_string(keep_best));
    c.training.keep_best = keep_best;
    c.training.max_steps = 60;
    require_success(train_on(1, c));
    return best(c.training.checkpoint_dir);
  };
  CHECK(average(0) == average(20));
}

TEST_CASE("where ranks may be lost, the result must not depend on their number") {
  const TrainingCorpus corpus;
  Config c = config_of(corpus, "refused");
  c.parallel.deterministic = Deterministic::same_world;
  std::vector<KeptRun> ranks(2);
  const RankOutcome outcome = go_on(ranks, c);
  CHECK_THAT(message_of(outcome.errors[0]), Contains("world_invariant"));
  CHECK_FALSE(std::filesystem::exists(c.training.checkpoint_dir));
}

TEST_CASE("what an elastic launcher and its ranks tell each other is read as it was written") {
  using namespace elastic;
  const Arrival a =
      parse_arrival(encode(Arrival{3, {120, 2}, 0.25, "rank 1 is lost: reset by peer"}));
  CHECK(a.round == 3);
  CHECK(a.progress == Progress{120, 2});
  CHECK(a.patience == 0.25);
  CHECK(a.why == "rank 1 is lost: reset by peer");
  CHECK(parse_arrival(encode(Arrival{1, {}, 300, ""})).progress.step == -1);
  const Seat s = parse_seat(encode(Seat{7, 2, 3}));
  CHECK(s.generation == 7);
  CHECK(s.rank == 2);
  CHECK(s.size == 3);
  for (const char* bad : {"", "1", "1 0", "0 0 1", "1 3 3", "1 -1 3", "1 0 1 ", "1 0 x"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_seat(bad), InputError);
  }
  for (const char* bad :
       {"", "0 1 0 1 ", "1 -2 0 1 ", "1 1 0 -1 ", "1 1 0 nan ", "1 1 0 1", "1 1"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_arrival(bad), InputError);
  }
  // What counts first is the update, then what belongs to it.
  CHECK(Progress{5, 0} > Progress{4, 2});
  CHECK(Progress{5, 1} > Progress{5, 0});
  CHECK(Progress{0, 0} > Progress{});
}

TEST_CASE("all ranks go on with what rank 0 kept: what is next, and the score that goes with it",
          "[elastic]") {
  for (const bool has_score : {true, false}) {
    std::vector<KeptRun> kept(3);
    kept[0].holds_state = true;
    kept[0].next = NextAct::checkpoint;
    if (has_score) kept[0].score = Score(0.25, 3.5);
    std::vector<std::optional<Score>> scores(kept.size());
    std::vector<char> agrees(kept.size(), 0);
    run_ranks(3, [&](int rank, Transport& transport) {
      const auto group = make_ring_group(transport);
      const auto at = static_cast<size_t>(rank);
      ElasticProgress progress(&kept[at]);
      progress.agree(Ranks(*group, std::chrono::seconds(60)), {}, true);
      scores[at] = progress.score();
      agrees[at] = progress.from_memory() && progress.next() == NextAct::checkpoint;
    });
    for (size_t rank = 0; rank < kept.size(); ++rank) {
      INFO("rank " << rank);
      CHECK(agrees[rank]);
      REQUIRE(scores[rank].has_value() == has_score);
      if (has_score) CHECK((scores[rank]->metric == 0.25 && scores[rank]->loss == 3.5));
    }
  }
}
