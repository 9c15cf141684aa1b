// What collectives allocate once they have run before.
#include <atomic>
#include <barrier>
#include <iostream>
#include <thread>

#include "comm/group/process_group.h"
#include "comm/in_process/in_process.h"
#include "tests/catch.h"
#include "tests/engine/allocation_counter.h"

namespace rondo {
namespace {

// Per all_reduce and rank, over many.
double allocations_per_all_reduce(int ranks, int64_t elements, size_t message_bytes, Wire wire) {
  constexpr int warm = 20, counted = 50;
  InProcessWorld world(ranks);
  std::barrier together(ranks);
  std::atomic<int64_t> before{0}, after{0};
  const auto run = [&](int rank) {
    GroupOptions options;
    options.message_bytes = message_bytes;
    options.wire = wire;
    const auto group = make_ring_group(world.transport(rank), options);
    std::vector<float> data(static_cast<size_t>(elements), 1.0f);
    const TensorView view(data.data(), DType::f32, {elements});
    for (int i = 0; i < warm + counted; ++i) {
      if (i == warm) {
        together.arrive_and_wait();
        if (rank == 0) before = allocation_count();
        together.arrive_and_wait();
      }
      group->all_reduce(view, Reduction::sum).wait();
    }
    together.arrive_and_wait();
    if (rank == 0) after = allocation_count();
    together.arrive_and_wait();
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(run, r);
  for (std::thread& t : threads) t.join();
  return static_cast<double>(after - before) / (counted * ranks);
}

TEST_CASE("An all_reduce allocates for itself, not for its messages", "[slow][all_reduce]") {
  for (const Wire wire : {Wire::exact, Wire::bf16}) {
    const double one = allocations_per_all_reduce(2, 64, 1024, wire);
    const double many = allocations_per_all_reduce(2, 64 * 256, 256, wire);  // 128 messages
    const double more_ranks = allocations_per_all_reduce(4, 64 * 256, 256, wire);
    std::cout << "allocations of an all_reduce: " << one << ", of many messages: " << many << ", "
              << more_ranks << "\n";
    CHECK(one <= 6);
    CHECK(many <= 6);  // pools may grow once, for how far ranks get apart
    CHECK(more_ranks <= 6);
  }
}

}  // namespace
}  // namespace rondo
