// The trainer on ranks of simulated GPUs that share each sequence, and on one that takes it in
// chunks.
#include <cmath>

#include "comm/group/staged_group.h"
#include "comm/in_process/run_ranks.h"
#include "kernels/base/dispatch.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

// The variant of ctc whose arithmetic is that of shards on devices, while it lives.
struct LogSpace {
  LogSpace() { prefer_variant("ctc", "log_space"); }
  ~LogSpace() { prefer_variant("ctc", ""); }
};

using More = std::function<void(TrainerOptions&)>;

RankOutcome attempt(int ranks, const Config& config, StartFrom start = StartFrom::scratch,
                    const More& more = {}) {
  return run_ranks_and_collect(ranks, [&](int, Transport& transport) {
    const auto group = make_ring_group(transport);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> nowhere(std::fopen("/dev/null", "w"),
                                                                  std::fclose);
    TrainerOptions o;
    o.start = start;
    o.device = DeviceKind::sim;
    o.group = ranks > 1 ? group.get() : nullptr;
    o.transport = ranks > 1 ? &transport : nullptr;
    o.devices = [&transport](const std::vector<int>& members, uint16_t id) {
      GroupOptions g;
      g.members = members;
      g.id = id;
      return make_staged_group(sim_device(), make_ring_group(transport, g),
                               std::chrono::seconds(60));
    };
    const auto sums = o.devices({}, 1);
    o.sums = sums.get();
    o.out = nowhere.get();
    if (more) more(o);
    train(config, o);
  });
}

std::vector<float> trained(int ranks, const Config& config, StartFrom start = StartFrom::scratch) {
  require_success(attempt(ranks, config, start));
  return stored(newest(config.training.checkpoint_dir), "");
}

Config shards_config(const TrainingCorpus& corpus, const std::string& name, int shards,
                     int64_t steps) {
  Config c = corpus.config(name);
  c.data.dev.clear();
  c.model.layers = 2;
  c.training.max_steps = steps;
  c.optimizer.clip_norm = 0.5;
  c.parallel.sequence = shards;
  return c;
}

double control_of_devices(const TrainingCorpus& corpus, const std::vector<float>& one,
                          int64_t steps) {
  return control_of(one, {3, 5}, [&](int parts) {
    Config c = shards_config(corpus, str("control", parts), 1, steps);
    sum_in_parts(c, parts);
    return trained(1, c);
  });
}

std::string cause_of(const RankOutcome& outcome) {
  if (outcome.first_failed < 0) return "";
  return message_of(outcome.errors.at(static_cast<size_t>(outcome.first_failed)));
}

}  // namespace

TEST_CASE("simulated devices that share sequences end as one does, but for the order of sums",
          "[slow]") {
  const LogSpace same_arithmetic;
  const TrainingCorpus corpus(60, 2);
  constexpr int64_t steps = 6;
  const std::vector<float> one = trained(1, shards_config(corpus, "one", 1, steps));
  const double control = control_of_devices(corpus, one, steps);
  const std::pair<int, int> worlds[] = {{2, 2}, {3, 3}, {4, 2}};  // ranks, shards
  for (const auto& [ranks, shards] : worlds) {
    Config c = shards_config(corpus, str(ranks, "of", shards), shards, steps);
    if (ranks == 4) c.parallel.micro_batches = 3;  // a wave, some of it empty
    const double difference = distance(trained(ranks, c), one);
    INFO(ranks << " ranks, " << shards << " to a sequence: " << difference << "; " << control);
    CHECK(difference <= 2 * control);
    CHECK(difference > 0);  // they did something else
  }
  // They go on where they stood, to the same bits; and so does a cpu, nearly.
  trained(2, shards_config(corpus, "parts", 2, steps / 2));
  CHECK(trained(2, shards_config(corpus, "parts", 2, steps), StartFrom::checkpoint) ==
        stored(newest(corpus.folder.path("2of2")), ""));
  trained(2, shards_config(corpus, "moved", 2, steps / 2));
  const Config moved = shards_config(corpus, "moved", 1, steps);
  require_success(train_on(1, moved, StartFrom::checkpoint));
  CHECK(distance(stored(newest(moved.training.checkpoint_dir), ""), one) <= 2e-4);
}

TEST_CASE("stages over simulated devices that share sequences end as one device does", "[slow]") {
  const LogSpace same_arithmetic;
  const TrainingCorpus corpus(60, 2);
  constexpr int64_t steps = 4;
  const std::vector<float> one = trained(1, shards_config(corpus, "one", 1, steps));
  const double control = control_of_devices(corpus, one, steps);
  const auto staged = [&](const std::string& name, ScheduleKind schedule, bool divided) {
    Config c = shards_config(corpus, name, 2, steps);
    c.parallel.pipeline = 2;
    c.parallel.placement = "1,2";
    c.parallel.micro_batches = 2;
    c.parallel.schedule = schedule;
    c.parallel.divide_optimizer = divided;
    return distance(trained(4, c), one);
  };
  INFO("control " << control);
  CHECK(staged("1f1b", ScheduleKind::one_f_one_b, false) <= 2 * control);
  CHECK(staged("zero_bubble", ScheduleKind::zero_bubble, true) <= 2 * control);
}

TEST_CASE("data that one shard's device cannot get end all of them with the cause", "[slow]") {
  for (int pipeline : {1, 2}) {
    TrainingCorpus corpus(40, 2);
    Config c = shards_config(corpus, "unreadable", 2, 0);
    c.parallel.pipeline = pipeline;
    c.parallel.timeout_seconds = 600;  // they must not wait for it
    const std::string bad = corpus.spoil_longest();
    CHECK_THAT(cause_of(attempt(2 * pipeline, c)), Contains(bad));
    CHECK(list_checkpoints(c.training.checkpoint_dir).size() == 1);
  }
}

TEST_CASE("an update of simulated devices that share sequences is drawn with its computations",
          "[slow]") {
  const TrainingCorpus corpus(20, 2);
  const std::string picture = corpus.folder.path("update.svg");
  require_success(attempt(2, shards_config(corpus, "drawn", 2, 2), StartFrom::scratch,
                          [&](TrainerOptions& o) { o.timeline = picture; }));
  CHECK_THAT(bytes_of(picture), Contains("2 shards of each sequence"));
}

TEST_CASE("training in chunks on a simulated device is that on a cpu", "[slow]") {
  const TrainingCorpus corpus(40, 9);
  const auto config = [&](const std::string& name, int frames) {
    Config c = corpus.config(name);
    c.model.bidirectional = false;
    c.training.tbptt = frames;
    c.training.max_steps = 6;
    c.training.accumulation = 2;
    c.data.batch_frames = 200;
    return c;
  };
  const Config cpu = config("cpu", 5);
  require_success(train_on(1, cpu));
  const auto want = stored(newest(cpu.training.checkpoint_dir), "");
  const auto sim = trained(1, config("sim", 5));
  CHECK(distance(sim, want) <= 1e-4);
  CHECK(distance(trained(1, config("whole", 0)), want) > 1e-3);
  CHECK(distance(trained(2, config("ranks", 5)), want) <= 1e-4);
}

TEST_CASE("what shards and chunks on devices do not go with is said in a sentence") {
  const TrainingCorpus corpus(20, 2);
  const auto refused = [&](const Config& c, int ranks, const More& more = {}) {
    return cause_of(attempt(ranks, c, StartFrom::scratch, more));
  };
  const More lockstep = [](TrainerOptions& o) { o.lockstep = true; };
  const Config shards = shards_config(corpus, "refused", 2, 2);
  CHECK_THAT(refused(shards, 2, lockstep),
             Contains("parallel.sequence and --lockstep-ref do not go together"));
  Config chunks = shards_config(corpus, "refused", 1, 2);
  chunks.training.tbptt = 5;
  CHECK_THAT(refused(chunks, 1), Contains("need unidirectional layers"));
  chunks.model.bidirectional = false;
  CHECK_THAT(refused(chunks, 1, lockstep),
             Contains("--lockstep-ref and training.tbptt do not go together: it compares whole"));
  chunks.parallel.sequence = 2;
  CHECK_THAT(refused(chunks, 2),
             Contains("parallel.sequence and training.tbptt do not go together"));
}
