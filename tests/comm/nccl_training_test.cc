// Data parallel training over the NCCL adapter.
#include <algorithm>
#include <cmath>

#include "comm/group/staged_group.h"
#include "comm/in_process/run_ranks.h"
#include "comm/store/memory_store.h"
#include "engine/reduce/device_arithmetic.h"
#include "kernels/simt/sim/scheduler.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
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

Weights trained_over_nccl(NcclAlgorithm algorithm, uint64_t seed) {
  set_sim_options({.seed = seed});
  reset_stand_in();
  const Weights weights = trained([&](Transport& transport, Store& store) {
    NcclOptions o;
    o.nccl = &nccl_stand_in();
    o.device = &sim_device();
    o.arithmetic = device_arithmetic(sim_device());
    o.rank = transport.rank();
    o.world_size = transport.world_size();
    o.store = &store;
    o.algorithm = algorithm;
    return make_nccl_group(o);
  });
  const StandInRecord record = stand_in_record();
  CHECK(record.misuses.empty());
  CHECK(record.destroyed == ranks);
  set_sim_options({});
  return weights;
}

Weights trained_by_way_of_the_host() {
  return trained([](Transport& transport, Store&) {
    GroupOptions g;
    g.id = 1;
    return make_staged_group(sim_device(), make_ring_group(transport, g), std::chrono::seconds(60));
  });
}

}  // namespace

TEST_CASE(
    "training over our ring of NCCL's messages ends with the bits of training by way of the host",
    "[nccl]") {
  const Weights host = trained_by_way_of_the_host();
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    CHECK(trained_over_nccl(NcclAlgorithm::ring, seed) == host);
  }
}

TEST_CASE("training over NCCL's own sums ends near them, with the same weights on all ranks",
          "[nccl]") {
  const Weights host = trained_by_way_of_the_host();
  const Weights own = trained_over_nccl(NcclAlgorithm::nccl, 1);
  CHECK(own == trained_over_nccl(NcclAlgorithm::nccl, 2));
  for (const auto& rank : own) CHECK(rank == own[0]);
  REQUIRE(own[0].size() == host[0].size());
  double greatest = 0, difference = 0;
  for (size_t i = 0; i < host[0].size(); ++i) {
    greatest = std::max(greatest, std::abs(double{host[0][i]}));
    difference = std::max(difference, std::abs(double{own[0][i]} - host[0][i]));
  }
  CHECK(difference <= 1e-5 * greatest);
}
