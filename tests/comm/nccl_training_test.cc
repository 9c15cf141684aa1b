// Data parallel training over the NCCL adapter.
#include <catch2/catch.hpp>

#include "comm/group/staged_group.h"
#include "comm/in_process/run_ranks.h"
#include "comm/store/memory_store.h"
#include "engine/reduce/device_arithmetic.h"
#include "kernels/simt/sim/scheduler.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/comm/nccl_ranks.h"
#include "tests/engine/device_ranks.h"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr int ranks = 3;
using Weights = std::vector<std::vector<float>>;  // by rank

Weights trained(const std::function<std::unique_ptr<DeviceGroup>(Transport&, Store&)>& make_sums) {
  Weights weights(ranks);
  const auto table = make_memory_table();
  run_ranks(ranks, [&](int rank, Transport& transport) {
    const auto store = make_memory_store(table);
    const auto control = make_ring_group(transport);
    const auto sums = make_sums(transport, *store);
    weights[static_cast<size_t>(rank)] = train_device_rank(*control, *sums, 2, 1500);
  });
  return weights;
}

}  // namespace

TEST_CASE("training over NCCL ends with the bits of training by way of the host", "[nccl]") {
  const Weights host = trained([](Transport& transport, Store&) {
    GroupOptions g;
    g.id = 1;
    return make_staged_group(sim_device(), make_ring_group(transport, g), std::chrono::seconds(60));
  });
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    set_sim_options({.seed = seed});
    reset_stand_in();
    const Weights nccl = trained([](Transport& transport, Store& store) {
      NcclOptions o;
      o.nccl = &nccl_stand_in();
      o.device = &sim_device();
      o.arithmetic = device_arithmetic(sim_device());
      o.rank = transport.rank();
      o.world_size = transport.world_size();
      o.store = &store;
      return make_nccl_group(o);
    });
    CHECK(nccl == host);
    const StandInRecord record = stand_in_record();
    CHECK(record.misuses.empty());
    CHECK(record.destroyed == ranks);
  }
  set_sim_options({});
}
