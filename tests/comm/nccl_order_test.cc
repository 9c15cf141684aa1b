// Collectives of several communicators: ranks that launch them in two orders may wait for ever on a
// GPU, though they do not in the stand-in, which tells.
#include <algorithm>
#include <array>
#include <memory>
#include <thread>

#include "comm/nccl/nccl_group.h"
#include "comm/store/memory_store.h"
#include "engine/reduce/device_arithmetic.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/comm/nccl_ranks.h"

using namespace rondo;
using namespace rondo::test;

namespace {

// Three ranks, of which each two have a group, sum in each of theirs: `orders`[rank] tells which of
// the other two ranks comes first. What the stand-in says of it.
std::vector<std::string> misuses_of_pairs(const std::array<std::array<int, 2>, 3>& orders) {
  reset_stand_in();
  const auto table = make_memory_table();
  std::vector<std::thread> threads;
  std::array<std::string, 3> failures;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto store = make_memory_store(table);
        std::array<std::unique_ptr<DeviceGroup>, 3> with;  // another rank
        // All make them in one order: 01, 02, 12.
        for (int other = 0; other < 3; ++other) {
          if (other == rank) continue;
          NcclOptions o;
          o.nccl = &nccl_stand_in();
          o.device = &sim_device();
          o.arithmetic = device_arithmetic(sim_device());
          o.rank = rank < other ? 0 : 1;
          o.world_size = 2;
          o.store = store.get();
          o.name = str("pair-", std::min(rank, other), std::max(rank, other));
          o.timeout = std::chrono::seconds(20);
          with[static_cast<size_t>(other)] = make_nccl_group(o);
        }
        for (const auto& group : with) {
          if (group) group->barrier().wait();  // the first of each connects, in the same order
        }
        std::array<std::unique_ptr<Values>, 3> values;
        std::vector<Work> works;
        for (int other : orders[static_cast<size_t>(rank)]) {
          auto& own = values[static_cast<size_t>(other)];
          own = std::make_unique<Values>(DType::f32, 16, [](int64_t) { return 1.0; });
          works.push_back(
              with[static_cast<size_t>(other)]->all_reduce(own->view(), Reduction::sum));
        }
        for (Work& work : works) work.wait();
      } catch (const std::exception& e) {
        failures[static_cast<size_t>(rank)] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::string& failure : failures) REQUIRE(failure == "");
  return stand_in_record().misuses;
}

}  // namespace

TEST_CASE("collectives of several communicators in one order, and in two", "[nccl]") {
  CHECK(misuses_of_pairs({{{1, 2}, {0, 2}, {0, 1}}}).empty());
  // 01 before 02, 12 before 01, 02 before 12.
  const std::vector<std::string> misuses = misuses_of_pairs({{{1, 2}, {2, 0}, {0, 1}}});
  REQUIRE(misuses.size() == 1);
  CHECK(misuses[0].find("two orders") != std::string::npos);
}
