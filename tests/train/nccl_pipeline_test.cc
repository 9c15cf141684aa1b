// Pipelines on devices that exchange their memory: over NCCL's stand-in, whose operations are
// asynchronous and in stream order, and by way of the host in stream order.
#include <catch2/catch.hpp>
#include <mutex>

#include "comm/memory_store.h"
#include "comm/nccl/nccl_group.h"
#include "comm/staged_group.h"
#include "engine/parallel/device_arithmetic.h"
#include "engine/parallel/pipeline_trainer.h"
#include "kernels/simt/scheduler.h"
#include "kernels/simt/sim_device.h"
#include "tests/comm/nccl_stand_in.h"
#include "tests/engine/gradient_check.h"
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
    return make_nccl_group(o);
  };
}

constexpr int32_t classes = 5;
constexpr int updates = 2, shards = 4;

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

  Data() {
    Graph g;
    model(g);
    batches.reserve(updates * shards);
    for (int i = 0; i < updates * shards; ++i) {
      std::vector<int32_t> lengths = {7 - i % 3, 5, 2 + i % 3};
      if (i == 5) lengths.clear();
      batches.emplace_back(lengths, classes, static_cast<unsigned>(i));
      views.push_back(batches.back().view(g, classes, static_cast<unsigned>(i)));
      views.back().step_seed = static_cast<uint64_t>(i);
      capacity = BatchCapacity::merge(capacity, views.back().extent());
    }
  }
};

struct Setting {
  int data, pipeline;
  ScheduleKind schedule;
  int chunks;
  const char* placement;
  Wire wire = Wire::exact;
  bool shard_optimizer = false;
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

// What happens between the copies of a batch of one rank; by rank.
using Inspect = std::function<void(int rank, PipelineTrainer& trainer)>;

Trained trained(const Data& data, const Setting& s, By by) {
  Trained result;
  std::mutex mutex;
  const auto table = make_memory_table();
  run_ranks(s.data * s.pipeline, [&](int rank, Transport& any) {
    HostMemoryOnly transport(any);
    const auto store = make_memory_store(table);
    const auto group = make_ring_group(transport);
    const Ranks world(*group, std::chrono::seconds(20));
    RankGrid grid(transport, {s.data, s.pipeline}, std::chrono::seconds(20),
                  maker(by, transport, *store));
    PipelineSettings p;
    p.schedule = s.schedule;
    p.micro_batches = shards / s.data;
    p.chunks = s.chunks;
    p.placement = s.placement;
    p.bucket_bytes = 700;
    p.shard_optimizer = s.shard_optimizer;
    p.options.wire = s.wire;
    p.options.timeout = std::chrono::seconds(20);
    PipelineTrainer trainer(model, options(), p, world, grid, data.capacity);
    Trained t;
    for (int update = 0; update < updates; ++update) {
      const auto from = data.views.begin() + update * shards + grid.replica() * p.micro_batches;
      trainer.accumulate(std::vector<BatchView>(from, from + p.micro_batches), true);
      t.losses.push_back(trainer.update().mean_loss());
    }
    t.prediction = trainer.evaluate_and_predict(data.views[0]);
    t.weights = trainer.gather("");
    t.average = trainer.gather("average");
    const std::lock_guard lock(mutex);
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

const Setting settings[] = {
    {1, 2, ScheduleKind::one_f_one_b, 1, "2,2"},
    {1, 3, ScheduleKind::zero_bubble, 1, "1,1,2"},
    {1, 2, ScheduleKind::interleaved, 2, "1,1,1,1"},
    {2, 2, ScheduleKind::gpipe, 1, "2,2"},
    {1, 2, ScheduleKind::one_f_one_b, 1, "3,1", Wire::bf16},
};

}  // namespace

TEST_CASE("stages over NCCL end with the bits of stages by way of the host", "[nccl]") {
  const Data data;
  for (const Setting& s : settings) {
    INFO(s.data << " x " << s.pipeline << ", " << name_of(s.schedule));
    const Trained host = trained(data, s, By::host);
    // Streams lag, lead or are mixed as the seed says.
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      set_sim_options({.seed = seed});
      reset_stand_in();
      CHECK(trained(data, s, By::nccl) == host);
      check_stand_in();
    }
    set_sim_options({});
    CHECK(trained(data, s, By::staged) == host);
  }
}
