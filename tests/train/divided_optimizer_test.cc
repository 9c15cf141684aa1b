// parallel.divide_optimizer: the weights of ranks that keep everything, and less memory.

#include "engine/layers/layers.h"
#include "engine/part_layout.h"
#include "tests/catch.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

Config config_of(const TrainingCorpus& corpus, const std::string& name, bool divided) {
  Config c = corpus.config(name);
  c.training.max_steps = 24;
  c.training.validate_every_steps = 10;
  c.optimizer.ema_decay = 0.9;
  c.optimizer.clip_norm = 0;
  c.optimizer.kind = OptimizerOptions::adamw;
  c.optimizer.learning_rate = 0.01;
  c.parallel.divide_optimizer = divided;
  return c;
}

void check_same(const std::string& one, const std::string& other) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const SafetensorsFile a((newest(one) / file).string()), b((newest(other) / file).string());
    REQUIRE(a.tensors().size() == b.tensors().size());
    for (const StoredTensor& t : a.tensors()) {
      INFO(file << " " << t.name);
      CHECK(std::ranges::equal(t.bytes, b.at(t.name).bytes));
    }
  }
  const SafetensorsFile a(one + "/model.safetensors"), b(other + "/model.safetensors");
  for (const StoredTensor& t : a.tensors()) {
    CHECK(std::ranges::equal(t.bytes, b.at(t.name).bytes));
  }
}

}  // namespace

TEST_CASE("a divided optimizer gives the bits of a whole one, for each number of ranks", "[slow]") {
  const TrainingCorpus corpus(90, 7);
  for (int ranks : {2, 3, 4}) {
    INFO(ranks << " ranks");
    const Config whole = config_of(corpus, str("whole", ranks), false);
    const Config divided = config_of(corpus, str("divided", ranks), true);
    require_success(train_on(ranks, whole));
    require_success(train_on(ranks, divided));
    check_same(whole.training.checkpoint_dir, divided.training.checkpoint_dir);
  }
}

TEST_CASE("with clipping, whole and divided differ by the rounding of the norm at most", "[slow]") {
  const TrainingCorpus corpus(90, 7);
  std::vector<std::vector<float>> weights;
  for (bool divided : {false, true}) {
    Config c = config_of(corpus, divided ? "divided" : "whole", divided);
    c.optimizer.clip_norm = 0.01;
    c.optimizer.ema_decay = 0;
    c.optimizer.kind = OptimizerOptions::sgd;
    require_success(train_on(3, c));
    weights.push_back(weights_of(c.training.checkpoint_dir));
  }
  // 24 updates, each of which may round a clipped gradient another way.
  const double norm = distance(weights[0], std::vector<float>(weights[0].size()));
  CHECK(distance(weights[0], weights[1]) <= 1e-6 * norm);
}

TEST_CASE("a divided run goes on with other numbers of ranks, divided or not", "[slow]") {
  const TrainingCorpus corpus(90, 7);
  for (bool divided : {false, true}) {
    const auto part = [&](int ranks, bool divide, int64_t steps, StartFrom start) {
      Config c = config_of(corpus, divided ? "divided" : "whole", divided && divide);
      c.training.max_steps = steps;
      require_success(train_on(ranks, c, start));
    };
    part(3, true, 7, StartFrom::scratch);
    part(2, true, 15, StartFrom::checkpoint);
    part(4, false, 20, StartFrom::checkpoint);
    part(1, true, 23, StartFrom::checkpoint);
    part(4, true, 30, StartFrom::checkpoint);
  }
  check_same(corpus.folder.path("whole"), corpus.folder.path("divided"));
}

TEST_CASE("a rank keeps its part of the optimizer's state") {
  const auto model = [](Graph& g) {
    ValueId x = layers::input_frames(g, "features", 40);
    x = layers::lstm(g, x, "encoder", {.hidden = 64, .layers = 2, .bidirectional = true});
    const ValueId y = layers::linear(g, x, "out", 30);
    return Outputs{layers::ctc_loss(g, y), y};
  };
  SessionOptions o;
  o.threads = 1;
  o.optimizer.kind = OptimizerOptions::adamw;
  o.optimizer.ema_decay = 0.9;
  const size_t whole = Session(model, o).optimizer().bytes();
  const size_t scalars = Update::state_bytes({}, 0) + sizeof(double);
  for (int count : {2, 4, 7}) {
    run_ranks(count, [&](int rank, Transport& transport) {
      const auto group = make_ring_group(transport);
      SessionOptions mine = o;
      mine.ranks = {.owners = group.get(), .own_sums = true};
      const size_t bytes = Session(model, mine).optimizer().bytes();
      // Three arrays in whole blocks, and a few numbers that are not divided.
      if (bytes > whole / static_cast<size_t>(count) + 3 * 4 * 256 + scalars || rank < 0) {
        throw Error(str(bytes, " of ", whole, " bytes on each of ", count, " ranks"));
      }
      if (bytes < whole / static_cast<size_t>(count)) throw Error("less than its part");
    });
  }
}

TEST_CASE("every element belongs to one part, and parts are as even as blocks allow") {
  for (int64_t size : {1, 255, 256, 257, 1024, 5000}) {
    for (int ranks : {2, 3, 5, 8}) {
      const PartLayout layout(size, ranks);
      std::vector<int> owners(static_cast<size_t>(size));
      for (int rank = 0; rank < ranks; ++rank) {
        int64_t end = 0;
        layout.for_blocks(rank, [&](int64_t at, int64_t place, int64_t n) {
          CHECK(place == end);
          end = place + PartLayout::block_elements;
          for (int64_t i = at; i < at + n; ++i) ++owners[static_cast<size_t>(i)];
        });
        CHECK(end <= layout.part());
      }
      CHECK(std::ranges::count(owners, 1) == size);
      CHECK(layout.part() * ranks < size + ranks * PartLayout::block_elements + 256);
    }
  }
}

TEST_CASE("a divided optimizer does not go with sums that hold for any number of ranks") {
  const TrainingCorpus corpus;
  Config c = config_of(corpus, "refused", true);
  c.parallel.deterministic = Deterministic::world_invariant;
  CHECK_THAT(message_of(train_on(2, c).errors.at(0)), Contains("do not go together"));
}
