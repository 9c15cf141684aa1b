// Pipelines on devices that exchange their memory: over NCCL's stand-in, whose operations are
// asynchronous and in stream order, and by way of the host in stream order.
#include <thread>

#include "comm/group/staged_group.h"
#include "comm/nccl/nccl_group.h"
#include "comm/store/memory_store.h"
#include "engine/rank_model.h"
#include "engine/reduce/device_arithmetic.h"
#include "kernels/simt/sim/scheduler.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/comm/nccl_stand_in.h"
#include "tests/engine/gradient_check.h"
#include "tests/rank_check.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;

namespace {

// A transport for memory of the host: devices' is not its to read.
class HostMemoryOnly final : public Transport {
 public:
  explicit HostMemoryOnly(Transport& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) override {
    check(data.data());
    return inner_.send(to, tag, data, deadline);
  }
  Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) override {
    check(data.data());
    return inner_.recv(from, tag, data, deadline);
  }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

 private:
  static void check(const std::byte* data) {
    RONDO_CHECK(!is_sim_memory(data), "the transport of hosts got memory of a device");
  }
  Transport& inner_;
};

enum class By : uint8_t {
  host,    // each boundary by way of the host, which waits
  staged,  // by way of the host, in stream order
  nccl,
};

DeviceGroupMaker maker(By by, Transport& transport, Store& store) {
  if (by == By::host) return {};
  return [by, &transport, &store](const std::vector<int>& members, uint16_t id) {
    if (by == By::staged) {
      GroupOptions g;
      g.members = members;
      g.id = id;
      g.message_bytes = 4096;
      return make_staged_group(sim_device(), make_ring_group(transport, g),
                               std::chrono::seconds(20));
    }
    NcclOptions o;
    o.nccl = &nccl_stand_in();
    o.device = &sim_device();
    o.arithmetic = device_arithmetic(sim_device());
    o.rank = static_cast<int>(std::find(members.begin(), members.end(), transport.rank()) -
                              members.begin());
    o.world_size = static_cast<int>(members.size());
    o.store = &store;
    o.name = str("group-", id);
    for (int m : members) o.name += str("-", m);
    o.timeout = std::chrono::seconds(20);
    o.message_bytes = 4096;
    o.algorithm = NcclAlgorithm::ring;  // whose bits are those of the host
    return make_nccl_group(o);
  };
}

constexpr int32_t classes = 5;
constexpr int updates = 2, parts = 4;

Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "a", {.hidden = 5, .layers = 2, .bidirectional = true, .dropout = 0.1});
  x = layers::lstm(g, x, "b", {.hidden = 7});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// Ragged micro-batches, one of them empty.
struct Data {
  std::vector<RandomBatch> batches;
  std::vector<BatchView> views;
  BatchCapacity capacity;
  int filled[updates] = {};  // micro-batches of each update that are not empty

  Data() {
    Graph g;
    model(g);
    batches.reserve(updates * parts);
    for (int i = 0; i < updates * parts; ++i) {
      std::vector<int32_t> lengths = {6 - i % 3, 4, 2 + i % 2};
      if (i == 5) lengths.clear();
      batches.emplace_back(lengths, classes, static_cast<unsigned>(i));
      if (!lengths.empty()) ++filled[static_cast<size_t>(i / parts)];
      views.push_back(batches.back().view(g, classes, static_cast<unsigned>(i)));
      views.back().step_seed = static_cast<uint64_t>(i);
      capacity = BatchCapacity::merge(capacity, views.back().extent());
    }
  }
};

struct Setting {
  int data, pipeline;
  ScheduleKind schedule;
  const char* placement;
  Wire wire = Wire::exact;
  bool divide_optimizer = false;
  bool timeline = false;
};

struct Trained {
  std::vector<double> losses;
  std::vector<float> weights, average, prediction;
  bool operator==(const Trained&) const = default;
};

SessionOptions options() {
  SessionOptions o;
  o.device = DeviceKind::sim;
  o.threads = 1;
  o.seed = 4;
  o.optimizer.kind = OptimizerOptions::adamw;
  o.optimizer.learning_rate = 0.02;
  o.optimizer.clip_norm = 0.5;
  o.optimizer.ema_decay = 0.9;
  return o;
}

// In the middle of each rank's training, before and after the passes of an update.
using Look = std::function<void(const Ranks& world, int update, bool after)>;

// The device's timeline has computations one after the other, everything within the batch.
void check_timeline(const RankModel& trainer) {
  double end = 0;
  int computations = 0;
  for (const TimedAction& t : trainer.timeline()) {
    RANK_CHECK(t.end >= t.start);
    const bool computes =
        t.action.kind == ActionKind::forward || t.action.kind == ActionKind::backward;
    if (!computes) continue;
    RANK_CHECK(t.start >= end);
    RANK_CHECK(t.end > t.start);
    end = t.end;
    ++computations;
  }
  RANK_CHECK(computations > 0);
}

Trained train_rank(const Data& data, const std::vector<BatchView>& views, const Setting& s,
                   Transport& transport, const DeviceGroupMaker& devices, const Look& look) {
  const auto group = make_ring_group(transport);
  const Ranks world(*group, std::chrono::seconds(20));
  RankGrid grid(transport, {s.data, s.pipeline}, std::chrono::seconds(20), devices);
  SplitSettings p;
  p.schedule = s.schedule;
  p.micro_batches = parts / s.data;
  p.placement = s.placement;
  p.bucket_bytes = 700;
  p.divide_optimizer = s.divide_optimizer;
  p.options.wire = s.wire;
  p.options.timeline = s.timeline;
  p.options.timeout = std::chrono::seconds(20);
  RankModel trainer(model, options(), p, world, grid, data.capacity);
  Trained t;
  for (int update = 0; update < updates; ++update) {
    const auto from = views.begin() + update * parts + grid.replica() * p.micro_batches;
    if (look) look(world, update, false);
    trainer.accumulate(std::vector<BatchView>(from, from + p.micro_batches), true);
    if (look) look(world, update, true);
    t.losses.push_back(trainer.update().mean_loss());
  }
  if (s.timeline) check_timeline(trainer);
  t.prediction = trainer.evaluate_and_predict(views[0]);
  t.weights = trainer.gather("");
  t.average = trainer.gather("average");
  return t;
}

Trained trained(const Data& data, const Setting& s, By by, const Look& look = {}) {
  Trained result;
  const auto table = make_memory_table();
  run_ranks(s.data * s.pipeline, [&](int rank, Transport& any) {
    HostMemoryOnly transport(any);
    const auto store = make_memory_store(table);
    const Trained t =
        train_rank(data, data.views, s, transport, maker(by, transport, *store), look);
    if (rank == 0) result = t;
  });
  return result;
}

// Nothing of NCCL's contract was broken.
void check_stand_in() {
  const StandInRecord record = stand_in_record();
  for (const std::string& m : record.misuses) UNSCOPED_INFO("misuse: " << m);
  CHECK(record.misuses.empty());
  CHECK(record.communicators > 0);
  CHECK(record.destroyed == record.communicators);
}

const Setting plain = {1, 2, ScheduleKind::one_f_one_b, "2,2"};
const Setting replicas = {2, 2, ScheduleKind::one_f_one_b, "2,2"};

}  // namespace

TEST_CASE("stages over NCCL end with the bits of stages by way of the host", "[nccl]") {
  const Data data;
  const Setting settings[] = {
      plain,
      replicas,
      {1, 2, ScheduleKind::one_f_one_b, "1,3"},
      {1, 3, ScheduleKind::zero_bubble, "1,1,2"},
      {1, 2, ScheduleKind::one_f_one_b, "3,1", Wire::bf16},
  };
  // The first stage may finish before the second begins: what it sends must wait.
  const Look second_is_late = [](const Ranks& world, int, bool after) {
    if (world.rank() == 1 && !after) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  uint64_t seed = 1;
  for (const Setting& s : settings) {
    INFO(s.data << " x " << s.pipeline << ", " << name_of(s.schedule));
    const Trained host = trained(data, s, By::host);
    // Streams lag, lead or are mixed as the seed says.
    for (int run = 0; run < 2; ++run) {
      set_sim_options({.seed = seed++});
      reset_stand_in();
      const bool late = s.placement[0] == '1' && s.pipeline == 2;
      CHECK(trained(data, s, By::nccl, late ? second_is_late : Look()) == host);
      check_stand_in();
    }
    set_sim_options({});
  }
}

TEST_CASE("stages by way of the host in stream order end with the same bits, and a timeline",
          "[nccl]") {
  const Data data;
  Setting s = {1, 3, ScheduleKind::one_f_one_b, "1,1,2"};
  const Trained host = trained(data, s, By::host);
  s.timeline = true;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    set_sim_options({.seed = seed});
    CHECK(trained(data, s, By::staged) == host);
  }
  set_sim_options({});
}

TEST_CASE("an optimiser divided over a stage's devices does not change a bit", "[nccl]") {
  const Data data;
  Setting s = replicas;
  const Trained whole = trained(data, s, By::staged);
  s.divide_optimizer = true;
  reset_stand_in();
  CHECK(trained(data, s, By::nccl) == whole);
  check_stand_in();
  CHECK(trained(data, s, By::staged) == whole);
}

TEST_CASE("between stages over NCCL nothing goes by way of the host, which waits for no stream",
          "[nccl]") {
  const Data data;
  for (const Setting& s : {plain, replicas}) {
    INFO(s.data << " x " << s.pipeline);
    reset_stand_in();
    SimCounters before;
    int messages_before = 0;
    trained(data, s, By::nccl, [&](const Ranks& world, int update, bool after) {
      if (update < updates - 1) return;
      world.group()->barrier().wait();  // nobody copies anything now
      world.at_first([&] {
        const SimCounters now = sim_counters();
        const int messages = stand_in_record().messages;
        if (!after) {
          before = now;
          messages_before = messages;
          return;
        }
        const int filled = data.filled[update];
        // Losses of each micro-batch; batches on both stages, features on the first.
        CHECK(now.copies_to_host - before.copies_to_host == filled);
        CHECK(now.copies_from_host - before.copies_from_host == 3 * filled);
        CHECK(now.stream_waits == before.stream_waits);
        CHECK(now.allocations == before.allocations);
        // An activation up and a gradient down, each sent and received. With replicas, gradients of
        // weights are on their way as well.
        const int of_weights = messages - messages_before - 4 * filled;
        CHECK((s.data > 1 ? of_weights > 0 : of_weights == 0));
      });
    });
    check_stand_in();
  }
}

TEST_CASE("a stage that fails or leaves in the middle of a step ends its neighbours", "[nccl]") {
  const Data data;
  for (const bool leaves : {false, true}) {
    INFO("leaves: " << leaves);
    reset_stand_in();
    const auto table = make_memory_table();
    PackedHost wrong = *data.views[parts + 2].layout;
    wrong.lengths.back() += 1;
    const auto began = CommClock::now();
    const RankOutcome outcome = run_ranks_and_collect(2, [&](int rank, Transport& transport) {
      const auto store = make_memory_store(table);
      std::vector<BatchView> views = data.views;
      if (rank == 1 && !leaves) views[parts + 2].layout = &wrong;
      try {
        train_rank(data, views, plain, transport, maker(By::nccl, transport, *store),
                   [&](const Ranks&, int update, bool after) {
                     if (rank == 1 && leaves && update == 1 && !after) throw std::string("leave");
                   });
      } catch (const std::string&) {
      }
    });
    const std::string first = message_of(outcome.errors[0]), second = message_of(outcome.errors[1]);
    CHECK_THAT(first, Catch::Matchers::Contains("rank 1"));
    CHECK((second == "") == leaves);
    if (!leaves) CHECK_THAT(first, Catch::Matchers::Contains(second));
    CHECK(CommClock::now() - began < std::chrono::seconds(15));
    CHECK(stand_in_record().misuses.empty());
  }
}
