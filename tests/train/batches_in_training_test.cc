// Which utterances each update of a training run has, as docs/data.md and docs/training.md tell it.

#include "engine/train/training_batches.h"

#include "tests/train/observed_run.h"

#include "tests/catch.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

using Batches = std::vector<std::set<size_t>>;

// The updates of each epoch, by what the log says of where each ended.
std::vector<Batches> by_epoch(const ObservedRun& run) {
  REQUIRE(static_cast<int64_t>(run.steps.size()) == run.updates());
  std::vector<Batches> epochs(1);
  for (int64_t step = 1; step <= run.updates(); ++step) {
    const double end = run.steps.at(static_cast<size_t>(step - 1)).at("epoch");
    CHECK(std::ceil(end) == static_cast<double>(epochs.size()));
    epochs.back().push_back(run.moved(step));
    if (end == std::floor(end)) epochs.emplace_back();
  }
  CHECK(epochs.back().empty());  // the last one is whole
  epochs.pop_back();
  return epochs;
}

int frames_of(const ColumnCorpus& corpus, const std::set<size_t>& batch) {
  int frames = 0;
  for (size_t i : batch) frames += corpus.train[i].frames;
  return frames;
}

bool short_to_long(const ColumnCorpus& corpus, const Batches& batches) {
  int longest = 0;
  for (const auto& batch : batches) {
    int longest_here = 0;
    for (size_t i : batch) {
      if (corpus.train[i].frames < longest) return false;
      longest_here = std::max(longest_here, corpus.train[i].frames);
    }
    longest = longest_here;
  }
  return true;
}

// How often each utterance counted in an update of `draws` in all, by how far it moved.
std::vector<double> times_drawn(const ColumnCorpus& corpus, const ObservedRun& run, int64_t step,
                                double lr, double draws) {
  const Weights& w = run.weights.at(static_cast<size_t>(step - 1));
  const Weights& after = run.weights.at(static_cast<size_t>(step));
  std::vector<double> times;
  for (size_t i = 0; i < corpus.size(); ++i) {
    const double error = static_cast<double>(w[i]) + w.back() - corpus.train[i].target;
    times.push_back((static_cast<double>(w[i]) - after[i]) * draws / (lr * 2 * error));
  }
  return times;
}

}  // namespace

TEST_CASE("each epoch has every utterance once, in batches of at most batch_frames", "[slow]") {
  const ColumnCorpus corpus;
  for (bool sorted : {false, true}) {
    Config c = corpus.config(sorted ? "sorted" : "shuffled");
    c.data.sorta_grad = sorted;
    c.training.epochs = 4;
    const auto epochs = by_epoch(observe(corpus, c));
    CHECK(epochs.size() == 4);
    for (const Batches& batches : epochs) {
      std::multiset<size_t> seen;
      for (const auto& batch : batches) {
        seen.insert(batch.begin(), batch.end());
        CHECK(frames_of(corpus, batch) <= c.data.batch_frames);
      }
      CHECK(seen.size() == corpus.size());
      CHECK(std::set<size_t>(seen.begin(), seen.end()).size() == corpus.size());
      CHECK(batches.size() <= 7);  // 90 frames: half full on the average
    }
  }
}

TEST_CASE("batches come in another order in each epoch, and the seed decides it", "[slow]") {
  const ColumnCorpus corpus;
  const auto run = [&](const std::string& name, uint64_t seed) {
    Config c = corpus.config(name);
    c.data.sorta_grad = false;
    c.training.epochs = 4;
    c.training.seed = seed;
    return by_epoch(observe(corpus, c));
  };
  const auto epochs = run("one", 1);
  const auto as_set = [](const Batches& b) {
    return std::set<std::set<size_t>>(b.begin(), b.end());
  };
  int other_batches = 0;
  for (size_t e = 1; e < epochs.size(); ++e) {
    for (size_t d = 0; d < e; ++d) {
      CHECK(epochs[e] != epochs[d]);
      other_batches += as_set(epochs[e]) != as_set(epochs[d]);
    }
  }
  CHECK(other_batches > 0);  // not the same batches in another order only
  CHECK(run("again", 1) == epochs);
  CHECK(run("two", 2) != epochs);
}

TEST_CASE("dropout's key is another one for each seed, epoch and batch of the epoch") {
  std::set<uint64_t> keys;
  size_t wanted = 0;
  Config c;
  for (const uint64_t seed : {0, 1, 2, 1000}) {
    c.training.seed = seed;
    for (const uint64_t epoch : {0, 1, 2, 50}) {
      for (const int64_t step : {0, 1, 2, 3, 700}) {
        HostBatch batch;
        batch.epoch = epoch;
        batch.step = step;
        batch.utterances = {step % 2, 5};
        keys.insert(step_seed(c, batch));
        ++wanted;
        const uint64_t key = step_seed(c, batch);
        batch.utterances = {7};  // of a part of it
        CHECK(step_seed(c, batch) == key);
      }
    }
  }
  CHECK(keys.size() == wanted);
}

TEST_CASE("sorta_grad: the first epoch, and only that, goes from short to long", "[slow]") {
  const ColumnCorpus corpus;
  Config c = corpus.config("sorted");
  const auto sorted = by_epoch(observe(corpus, c));
  CHECK(short_to_long(corpus, sorted.at(0)));
  CHECK_FALSE(short_to_long(corpus, sorted.at(1)));
  CHECK_FALSE(short_to_long(corpus, sorted.at(2)));
  c = corpus.config("shuffled");
  c.data.sorta_grad = false;
  CHECK_FALSE(short_to_long(corpus, by_epoch(observe(corpus, c)).at(0)));
}

TEST_CASE("batches do not depend on the number of ranks, nor on threads that read ahead",
          "[slow]") {
  const ColumnCorpus corpus;
  const ObservedRun one = observe(corpus, corpus.config("one"));
  for (int ranks : {2, 3}) {
    const ObservedRun more = observe(corpus, corpus.config("ranks" + std::to_string(ranks)), ranks);
    CHECK(more.moved() == one.moved());
    for (size_t step = 0; step < one.weights.size(); ++step) {
      check_close(more.weights.at(step), {one.weights[step].begin(), one.weights[step].end()});
    }
  }
  Config threads = corpus.config("threads");
  threads.data.prefetch_threads = 2;
  threads.data.prefetch_batches = 1;
  threads.training.threads = 3;
  CHECK(observe(corpus, threads).weights == one.weights);
}

TEST_CASE("an update has `accumulation` batches, the last of an epoch what is left", "[slow]") {
  const ColumnCorpus corpus;
  const auto single = by_epoch(observe(corpus, corpus.config("single")));
  bool has_rest = false;
  for (size_t accumulation : {2u, 3u}) {
    Config c = corpus.config("accumulated" + std::to_string(accumulation));
    c.training.accumulation = static_cast<int>(accumulation);
    const ObservedRun run = observe(corpus, c);
    const auto epochs = by_epoch(run);
    REQUIRE(epochs.size() == single.size());
    size_t step = 0;
    // What the learning rate counts by: every epoch as the first, the last update of one included.
    const size_t each = (single[0].size() + accumulation - 1) / accumulation;
    has_rest |= single[0].size() % accumulation != 0;
    CHECK(read_training_state(open_checkpoint(newest(run.directory))).expected_steps ==
          static_cast<int64_t>(each * epochs.size()));
    for (size_t e = 0; e < epochs.size(); ++e) {
      Batches wanted;
      for (size_t b = 0; b < single[e].size(); ++b) {
        if (b % accumulation == 0) wanted.emplace_back();
        wanted.back().insert(single[e][b].begin(), single[e][b].end());
      }
      CHECK(epochs[e] == wanted);
      for (size_t u = 1; u <= wanted.size(); ++u) {
        const auto batches = static_cast<double>(std::min(u * accumulation, single[e].size()));
        const double end = static_cast<double>(e) + batches / static_cast<double>(single[e].size());
        CHECK(run.steps.at(step++).at("epoch") == Approx(end));
      }
    }
  }
  CHECK(has_rest);
}

TEST_CASE("training ends after its epochs, or after max_steps updates", "[slow]") {
  const ColumnCorpus corpus;
  Config c = corpus.config("epochs");
  c.training.epochs = 2;
  const ObservedRun whole = observe(corpus, c);
  CHECK(by_epoch(whole).size() == 2);
  CHECK(log_events(whole.directory, "end").at(0).at("step") == whole.updates());
  c = corpus.config("steps");
  c.training.max_steps = whole.updates() - 2;
  CHECK(observe(corpus, c).updates() == whole.updates() - 2);
  c = corpus.config("more_steps");
  c.training.epochs = 2;
  c.training.max_steps = whole.updates() + 1;
  CHECK(observe(corpus, c).updates() == whole.updates());
}

TEST_CASE("a resumed run has the batches that were left, from the middle of an epoch and its end",
          "[slow]") {
  const ColumnCorpus corpus;
  const ObservedRun whole = observe(corpus, corpus.config("whole"));
  const auto in_first = static_cast<int64_t>(by_epoch(whole).at(0).size());
  for (int64_t cut : {int64_t{2}, in_first, in_first + 1}) {
    Config c = corpus.config("cut" + std::to_string(cut));
    c.training.max_steps = cut;
    observe(corpus, c);
    c.training.max_steps = 0;
    const ObservedRun run = observe(corpus, c, 1, StartFrom::checkpoint);
    CHECK(run.moved() == whole.moved());
    CHECK(run.weights == whole.weights);
    CHECK(values_of(run.steps, "epoch") == values_of(whole.steps, "epoch"));
    CHECK(values_of(run.steps, "loss") == values_of(whole.steps, "loss"));
  }
}

TEST_CASE("weighted: each epoch draws in proportion to the manifest's weights") {
  auto utterances = ColumnCorpus::utterances(6);
  const std::vector<double> weights = {0, 1, 3, 0.5, 2, 1.5};  // 8 in all
  for (size_t i = 0; i < weights.size(); ++i) {
    utterances[i].more = "\"often\": " + std::to_string(weights[i]);
  }
  const ColumnCorpus corpus(utterances);
  Config c = corpus.config("weighted");
  c.data.sampling = Sampling::weighted;
  c.data.weight_field = "often";
  c.data.draws_per_epoch = 20;
  c.data.batch_frames = 1000;  // an epoch is a batch
  c.training.epochs = 8;
  const ObservedRun run = observe(corpus, c);
  REQUIRE(run.updates() == 8);
  std::set<std::vector<int64_t>> epochs;
  for (int64_t step = 1; step <= 8; ++step) {
    const auto times = times_drawn(corpus, run, step, c.optimizer.learning_rate, 20);
    std::vector<int64_t> rounded;
    for (size_t i = 0; i < times.size(); ++i) {
      const double expected = 20 * weights[i] / 8;
      rounded.push_back(std::llround(times[i]));
      CHECK(times[i] == Approx(static_cast<double>(rounded[i])).margin(1e-3));
      CHECK(static_cast<double>(rounded[i]) >= std::floor(expected));
      CHECK(static_cast<double>(rounded[i]) <= std::ceil(expected));
    }
    epochs.insert(rounded);
  }
  CHECK(epochs.size() > 1);
}

TEST_CASE("class_balanced: each epoch draws every class of the field equally often") {
  auto utterances = ColumnCorpus::utterances(6);
  for (size_t i = 0; i < utterances.size(); ++i) {
    utterances[i].more = std::string("\"speaker\": \"") + (i < 1 ? "a" : i < 3 ? "b" : "c") + "\"";
  }
  const ColumnCorpus corpus(utterances);
  Config c = corpus.config("balanced");
  c.data.sampling = Sampling::class_balanced;
  c.data.class_field = "speaker";
  c.data.batch_frames = 1000;
  c.training.epochs = 4;
  const ObservedRun run = observe(corpus, c);
  REQUIRE(run.updates() == 4);
  for (int64_t step = 1; step <= 4; ++step) {
    // As many draws as there are utterances, two of each class.
    const auto times = times_drawn(corpus, run, step, c.optimizer.learning_rate, 6);
    CHECK(times[0] == Approx(2).margin(1e-3));
    CHECK(times[1] == Approx(1).margin(1e-3));
    CHECK(times[2] == Approx(1).margin(1e-3));
    CHECK(times[3] + times[4] + times[5] == Approx(2).margin(1e-3));
  }
}

TEST_CASE("max_frames leaves longer utterances out of training, by name, and not of validation") {
  const ColumnCorpus corpus;
  Config c = corpus.with_dev("limited");
  c.data.max_frames = 10;
  const ObservedRun run = observe(corpus, c);
  std::set<size_t> wanted, found;
  size_t longer = 0;
  const auto left_out = log_events(run.directory, "left_out");
  for (size_t i = 0; i < corpus.size(); ++i) {
    const int frames = corpus.train[i].frames;
    if (frames <= 10) {
      wanted.insert(i);
      continue;
    }
    const std::string where = corpus.folder.path("train.jsonl:") + std::to_string(i + 1);
    REQUIRE(longer < left_out.size());
    CHECK(left_out[longer].at("where") == where);
    CHECK_THAT(left_out[longer].at("what").get<std::string>(),
               Contains("has " + std::to_string(frames) + " frames, at most 10"));
    ++longer;
  }
  CHECK(longer == 3);
  CHECK(left_out.size() == longer);
  for (const auto& batch : run.moved()) found.insert(batch.begin(), batch.end());
  CHECK(found == wanted);
  CHECK(log_events(run.directory, "start").at(0).at("utterances") == wanted.size());
  std::vector<ColumnUtterance> dev = corpus.train;
  std::vector<size_t> all;
  for (size_t i = 0; i < dev.size(); ++i) {
    dev[i].target += 0.25;
    all.push_back(i);
  }
  const auto validation = log_events(run.directory, "validation").at(0);
  const Weights& then = run.weights.at(validation.at("step").get<size_t>());
  CHECK(validation.at("loss") == Approx(column_loss(then, dev, all)));
}
