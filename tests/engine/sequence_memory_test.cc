// What a rank holds of an hour's recording: 100,000 frames after subsampling, one sequence, over
// four processes and in one.
#include <filesystem>
#include <iostream>
#include <sstream>

#include "comm/gloo/gloo_transport.h"
#include "comm/group/process_group.h"
#include "engine/session.h"
#include "kernels/base/cpu/resident_memory.h"
#include "tests/catch.h"
#include "tests/comm/processes.h"
#include "tests/engine/gradient_check.h"
#include "tests/engine/sequence_rank.h"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr int32_t classes = 30, subsampling = 2, frames = 100000;
constexpr size_t label_count = 500;

Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 20);
  x = layers::stack_frames(g, x, subsampling);
  x = layers::lstm(g, x, "encoder", {.hidden = 32, .layers = 2, .bidirectional = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

struct Measured {
  size_t arena = 0, taken = 0;
  double loss = 0;
};

// One rank's part in one step.
Measured train(Transport& transport) {
  const auto group = make_ring_group(transport);
  const ShardRanks shards{0, transport.world_size()};
  Graph g;
  const Outputs outputs = model(g);
  append_backward(g, outputs.loss);
  Stream stream = cpu_device().make_stream();
  ThreadPool pool(1);
  const Context context{Backend::cpu, &cpu_device(), &stream, &pool};
  Parameters parameters(g, cpu_device());
  parameters.initialize(1);
  test::RandomBatch hour({frames * subsampling}, classes, 1), tiny({8, 8}, classes, 1, subsampling);
  hour.labels.resize(label_count);
  hour.label_offsets = {0, static_cast<int32_t>(label_count)};
  const std::vector<BatchView> warm_up = {tiny.view(g, classes, 1)},
                               batch = {hour.view(g, classes, 1)};
  SequenceRank(g, outputs.loss, context, *group, shards, parameters)
      .run(warm_up, std::chrono::seconds(60));
  const size_t before = resident_memory().bytes;
  SequenceRank sequence(g, outputs.loss, context, *group, shards, parameters);
  sequence.run(batch, std::chrono::seconds(300));
  return {sequence.arena_bytes(), resident_memory().peak - before, sequence.totals().loss};
}

std::vector<Measured> train_in_processes(int ranks) {
  std::string directory = (std::filesystem::temp_directory_path() / "rondo-XXXXXX").string();
  REQUIRE(mkdtemp(directory.data()) != nullptr);
  Processes processes(ranks, [&](int rank, const Processes::Say& say) {
    const auto store = make_file_store(directory);
    GlooOptions o;
    o.rank = rank;
    o.world_size = ranks;
    o.store = store.get();
    o.token = "secret";
    const auto transport = make_gloo_transport(o);
    const Measured m = train(*transport);
    std::ostringstream line;
    line.precision(17);
    line << "measured " << m.arena << ' ' << m.taken << ' ' << m.loss;
    say(line.str());
  });
  std::vector<Measured> all;
  for (int r = 0; r < ranks; ++r) {
    std::istringstream line(processes.line_starting(r, "measured"));
    Measured m;
    std::string word;
    line >> word >> m.arena >> m.taken >> m.loss;
    all.push_back(m);
  }
  std::filesystem::remove_all(directory);
  return all;
}

}  // namespace

TEST_CASE("each of four ranks holds at most 0.30 of what one holds for an hour's recording") {
  if (resident_memory().peak == 0) {
    WARN("skipped: /proc/self/status does not tell resident memory");
    return;
  }
  const Measured one = train_in_processes(1).front();
  const std::vector<Measured> four = train_in_processes(4);
  const auto mib = [](size_t bytes) { return static_cast<double>(bytes) / 1048576; };
  const auto ratio = [](size_t a, size_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  std::cout << "one rank: activations " << mib(one.arena) << " MiB, peak " << mib(one.taken)
            << " MiB above what was there before\n";
  for (const Measured& m : four) {
    std::cout << "of four: activations " << mib(m.arena) << " MiB (" << ratio(m.arena, one.arena)
              << "), peak " << mib(m.taken) << " MiB (" << ratio(m.taken, one.taken) << ")\n";
    CHECK(ratio(m.arena, one.arena) <= 0.30);
    CHECK(ratio(m.taken, one.taken) <= 0.30);
    CHECK(m.taken >= m.arena / 2);  // it was used
  }
  CHECK(four[0].loss == one.loss);
  CHECK(one.loss > 0);
}
