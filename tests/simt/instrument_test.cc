// The race detector and the counters of the instrumented simulator, on kernels of known faults and
// known traffic. This file is compiled with -fsanitize=thread; see kernels/simt/instrument.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/simt/grid_sync.h"
#include "kernels/simt/instrument/instrument.h"
#include "tests/catch.h"
#include "tests/simt/sim_fixture.h"

namespace rondo::sim {
namespace {

using Catch::Contains;

constexpr int64_t elements = 512;

struct Sim : rondo::test::SimFixture {
  Buffer x, y;
  Buffer flags;

  Sim() {
    simt::instrument();
    x = Buffer(sim_device(), elements * sizeof(float), "x");
    y = Buffer(sim_device(), elements * sizeof(float), "y");
    flags = Buffer(sim_device(), 16 * sizeof(uint32_t), "flags");
    std::fill_n(x.as<float>(), elements, 1.0f);
    std::fill_n(flags.as<uint32_t>(), 16, 0u);
    simt::reset_counters();
  }
  simt::KernelCounters counted(const std::string& kernel) const {
    for (const auto& c : simt::counters()) {
      if (c.kernel == kernel) return c;
    }
    return {};
  }
};

struct Row {
  alignas(16) float values[128];
};

enum class Sync { none, block, warp, shuffle, half };

template <Sync how>
__device__ void synchronise() {
  if constexpr (how == Sync::block) __syncthreads();
  if constexpr (how == Sync::warp) __syncwarp();
  if constexpr (how == Sync::shuffle) __shfl_sync(~0u, 1, 0);
  if constexpr (how == Sync::half) {
    __syncwarp(threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u);
  }
}

// Each thread reads what the thread `distance` away wrote.
template <Sync how>
__global__ void neighbour(float* y, const float* x, unsigned distance) {
  auto& s = shared<Row>();
  s.values[threadIdx.x] = x[threadIdx.x];
  synchronise<how>();
  y[blockIdx.x * blockDim.x + threadIdx.x] = s.values[threadIdx.x ^ distance];
}

TEST_CASE("a missing barrier is a race in every order, named with both threads and lines") {
  for (const SimOrder order : {SimOrder::forward, SimOrder::reverse, SimOrder::shuffled}) {
    Sim sim;
    set_sim_options({order, 3});
    const LaunchConfig config{
        .kernel = "neighbour", .grid = {2}, .block = {128}, .shared_bytes = sizeof(Row)};
    const auto run = [&](auto kernel, unsigned distance) {
      return sim.error_of(config, kernel, sim.y.as<float>(),
                          static_cast<const float*>(sim.x.as<float>()), distance);
    };
    CHECK_THAT(run(neighbour<Sync::none>, 64),
               Contains("kernel neighbour, block (") && Contains("race in shared memory, byte ") &&
                   Contains("of the 512 of 'neighbour'") && Contains("writes at ") &&
                   Contains("reads at ") && Contains("nothing that orders them"));
    // Distances within a warp need no more than __syncwarp; a shuffle orders no memory.
    CHECK(run(neighbour<Sync::block>, 64) == "no error");
    CHECK(run(neighbour<Sync::block>, 1) == "no error");
    CHECK(run(neighbour<Sync::warp>, 1) == "no error");
    CHECK(run(neighbour<Sync::warp>, 16) == "no error");
    CHECK_THAT(run(neighbour<Sync::warp>, 32), Contains("race in shared memory"));
    CHECK_THAT(run(neighbour<Sync::shuffle>, 1), Contains("race in shared memory"));
    CHECK(run(neighbour<Sync::half>, 8) == "no error");
    CHECK_THAT(run(neighbour<Sync::half>, 16), Contains("race in shared memory"));
    CHECK(run(neighbour<Sync::none>, 0) == "no error");
  }
}

// Everyone reads element 0; then one thread writes it.
template <bool barrier>
__global__ void write_after_read(float* y, unsigned writer) {
  auto& s = shared<Row>();
  if (threadIdx.x == 0) s.values[0] = 1;
  __syncthreads();
  y[threadIdx.x] = s.values[0];
  if constexpr (barrier) __syncthreads();
  if (threadIdx.x == writer) s.values[0] = 2;
}

TEST_CASE("a write after other threads' reads needs a barrier too") {
  const LaunchConfig config{.kernel = "war", .block = {128}, .shared_bytes = sizeof(Row)};
  for (const unsigned writer : {0u, 31u, 127u}) {
    Sim sim;
    CHECK(sim.error_of(config, write_after_read<true>, sim.y.as<float>(), writer) == "no error");
    CHECK_THAT(sim.error_of(config, write_after_read<false>, sim.y.as<float>(), writer),
               Contains("race in shared memory, byte 0 of the 512"));
  }
}

__global__ void write_same(float* y, unsigned from_block) {
  if (blockIdx.x >= from_block) y[7] = 1;
}
__global__ void add_same(float* y) { atomicAdd(y + 7, 1.0f); }
__global__ void add_and_read(float* y) {
  if (blockIdx.x == 0) atomicAdd(y + 7, 1.0f);
  if (blockIdx.x == 1) y[8] = y[7];
}
template <class T>
__global__ void own_element(T* y) {
  y[blockIdx.x * blockDim.x + threadIdx.x] = T{};
}

TEST_CASE("blocks of a grid that write the same place") {
  Sim sim;
  const LaunchConfig config{.kernel = "same", .grid = {3}, .block = {1}};
  CHECK_THAT(sim.error_of(config, write_same, sim.y.as<float>(), 1u),
             Contains("race in global memory, byte 28 of the 2048 of 'y'") &&
                 Contains("block (1,0,0), thread (0,0,0) writes"));
  CHECK(sim.error_of(config, write_same, sim.y.as<float>(), 2u) == "no error");
  CHECK(sim.error_of(config, add_same, sim.y.as<float>()) == "no error");
  CHECK_THAT(sim.error_of(config, add_and_read, sim.y.as<float>()), Contains("race in global"));
  // Neighbours within four bytes are no conflict.
  const LaunchConfig wide{.kernel = "own", .grid = {4}, .block = {64}};
  CHECK(sim.error_of(wide, own_element<bf16>, sim.y.as<bf16>()) == "no error");
  CHECK(sim.error_of(wide, own_element<uint8_t>, sim.y.as<uint8_t>()) == "no error");
}

// Block 0 writes an element, block 1 one byte of it, or of the next.
__global__ void write_part(float* y, unsigned byte) {
  if (blockIdx.x == 0) y[3] = 1;
  if (blockIdx.x == 1) reinterpret_cast<uint8_t*>(y + 3)[byte] = 1;
}
// Block 0 reads an element and writes it, in either order; block 1 reads it.
__global__ void read_and_write(float* y, bool read_first) {
  if (blockIdx.x == 0) {
    if (read_first) y[1] = y[3];
    y[3] = 2;
    if (!read_first) y[1] = y[3];
  }
  if (blockIdx.x == 1) y[2] = y[3];
}

TEST_CASE("of a word, bytes; of a thread's accesses to it, each") {
  const LaunchConfig config{.kernel = "parts", .grid = {2}, .block = {1}};
  for (const SimOrder order : {SimOrder::forward, SimOrder::reverse}) {
    Sim sim;
    set_sim_options({order, 3});
    CHECK_THAT(sim.error_of(config, write_part, sim.y.as<float>(), 2u),
               Contains("race in global memory, byte 14 of the 2048 of 'y'"));
    CHECK(sim.error_of(config, write_part, sim.y.as<float>(), 4u) == "no error");
    for (const bool read_first : {true, false}) {
      CHECK_THAT(sim.error_of(config, read_and_write, sim.y.as<float>(), read_first),
                 Contains("race in global memory, byte 12 of the 2048 of 'y'"));
    }
  }
}

template <bool sync>
__global__ void across_grid(float* y, float* x) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  x[i] = 2;
  if constexpr (sync) grid_sync();
  y[i] = x[n - 1 - i];
}
template <bool sync>
__global__ void across_cluster(float* y) {
  auto& s = shared<Row>();
  s.values[threadIdx.x] = 1;
  if constexpr (sync) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  y[blockIdx.x * blockDim.x + threadIdx.x] =
      map_shared(&s, cluster_rank() ^ 1)->values[threadIdx.x];
  cluster_sync();
}

// In clusters of 2, each thread hands a number to its twin in the other block, twice over: the
// barrier is in two.
enum class Split { right, stored_too_late, read_too_early, overwritten_too_early };
template <Split how>
__global__ void across_split_barrier(float* y) {
  auto& s = shared<Row>();
  const unsigned t = threadIdx.x;
  float& theirs = map_shared(&s, cluster_rank() ^ 1)->values[t];
  cluster_sync();
  if constexpr (how != Split::stored_too_late) theirs = 1;
  cluster_arrive();
  if constexpr (how == Split::stored_too_late) theirs = 1;
  y[blockIdx.x * blockDim.x + t] = 2;  // memory of its own
  if constexpr (how == Split::read_too_early) y[blockIdx.x * blockDim.x + t] = s.values[t];
  cluster_wait();
  __syncthreads();  // tells every thread what any has waited for
  if constexpr (how != Split::read_too_early) y[blockIdx.x * blockDim.x + t] = s.values[31 - t];
  if constexpr (how != Split::overwritten_too_early) {
    cluster_arrive();
    cluster_wait();
  }
  theirs = 3;
  cluster_sync();
}

struct Inbox {
  alignas(16) float values[32][4];
  MBarrier delivered;
};
template <bool wait>
__global__ void across_mbarrier(float* y) {
  auto& s = shared<Inbox>();
  const unsigned t = threadIdx.x;
  if (t == 0) mbarrier_init(&s.delivered, 1);
  cluster_sync();
  if (t == 0) mbarrier_arrive_expecting(&s.delivered, sizeof s.values);
  Words<16> words = {};
  store_async(s.values[t], words, &s.delivered, cluster_rank() ^ 1);
  if constexpr (wait) {
    mbarrier_wait_for_stores(&s.delivered, 0);
  }
  y[blockIdx.x * blockDim.x + t] = s.values[31 - t][0];
  cluster_sync();
}

TEST_CASE("grids and clusters") {
  Sim sim;
  const LaunchConfig grid{.kernel = "grid", .grid = {4}, .block = {32}, .cooperative = true};
  CHECK(sim.error_of(grid, across_grid<true>, sim.y.as<float>(), sim.x.as<float>()) == "no error");
  CHECK_THAT(sim.error_of(grid, across_grid<false>, sim.y.as<float>(), sim.x.as<float>()),
             Contains("race in global memory") && Contains("of 'x'"));
  const LaunchConfig cluster{
      .kernel = "cluster", .grid = {4}, .block = {32}, .shared_bytes = sizeof(Row), .cluster = 2};
  CHECK(sim.error_of(cluster, across_cluster<true>, sim.y.as<float>()) == "no error");
  CHECK_THAT(sim.error_of(cluster, across_cluster<false>, sim.y.as<float>()),
             Contains("race in shared memory"));
  CHECK(sim.counted("cluster").remote_bytes_read >= 4 * 32 * sizeof(float));
  const LaunchConfig mbarrier{.kernel = "mbarrier",
                              .grid = {4},
                              .block = {32},
                              .shared_bytes = sizeof(Inbox),
                              .cluster = 2};
  CHECK(sim.error_of(mbarrier, across_mbarrier<true>, sim.y.as<float>()) == "no error");
  CHECK_THAT(sim.error_of(mbarrier, across_mbarrier<false>, sim.y.as<float>()),
             Contains("race in shared memory"));
  CHECK(sim.counted("mbarrier").remote_bytes_written >= 4 * sizeof(Inbox::values));
}

TEST_CASE("a cluster's barrier in two orders what precedes an arrival and what follows a wait") {
  for (const SimOrder order : {SimOrder::forward, SimOrder::reverse, SimOrder::shuffled}) {
    Sim sim;
    set_sim_options({order, 3});
    const LaunchConfig config{
        .kernel = "split", .grid = {4}, .block = {32}, .shared_bytes = sizeof(Row), .cluster = 2};
    const auto error_of = [&](auto kernel) {
      return sim.error_of(config, kernel, sim.y.as<float>());
    };
    CHECK(error_of(across_split_barrier<Split::right>) == "no error");
    CHECK(sim.counted("split").cluster_barriers == 4);
    CHECK_THAT(error_of(across_split_barrier<Split::stored_too_late>),
               Contains("race in shared memory"));
    CHECK_THAT(error_of(across_split_barrier<Split::read_too_early>),
               Contains("race in shared memory"));
    CHECK_THAT(error_of(across_split_barrier<Split::overwritten_too_early>),
               Contains("race in shared memory"));
  }
  set_sim_options({});
}

// The first warp writes between its arrivals at two phases; the second has waited for the first
// phase alone, or for both.
template <uint32_t phase>
__global__ void between_phases(float* y) {
  auto& s = shared<Inbox>();
  if (threadIdx.x == 0) mbarrier_init(&s.delivered, 2);
  __syncthreads();
  if (threadIdx.x % 32 != 0) return;
  mbarrier_arrive(&s.delivered);
  mbarrier_wait(&s.delivered, 0);
  if (threadIdx.x == 0) {
    y[0] = 1;
    mbarrier_arrive(&s.delivered);
    return;
  }
  if constexpr (phase == 1) {
    mbarrier_arrive(&s.delivered);
    mbarrier_wait(&s.delivered, 1);
  }
  y[1] = y[0];
}

// Two clusters run one after the other, with their mbarriers at one address on the host.
__global__ void strangers(float* y) {
  auto& s = shared<Inbox>();
  mbarrier_init(&s.delivered, 1);
  const bool first = blockIdx.x < 2;
  if (first) y[cluster_rank()] = 1;
  mbarrier_arrive(&s.delivered);
  mbarrier_wait(&s.delivered, 0);
  if (!first) y[2 + cluster_rank()] = y[cluster_rank()];
}

TEST_CASE("an mbarrier hands over what was done before the phase waited for, and in one cluster") {
  for (const SimOrder order : {SimOrder::forward, SimOrder::reverse, SimOrder::shuffled}) {
    Sim sim;
    set_sim_options({order, 3});
    const LaunchConfig block{
        .kernel = "phases", .block = {64}, .shared_bytes = sizeof(Inbox), .cluster = 1};
    CHECK(sim.error_of(block, between_phases<1>, sim.y.as<float>()) == "no error");
    CHECK_THAT(sim.error_of(block, between_phases<0>, sim.y.as<float>()),
               Contains("race in global memory"));
    const LaunchConfig clusters{
        .kernel = "strangers", .grid = {4}, .shared_bytes = sizeof(Inbox), .cluster = 2};
    CHECK_THAT(sim.error_of(clusters, strangers, sim.y.as<float>()),
               Contains("race in global memory"));
  }
  set_sim_options({});
}

enum class Flag { release, relaxed, fenced, half_fenced };

// Block 0 writes and raises a flag; the others wait for it and read.
template <Flag how>
__global__ void through_flag(float* y, float* x, uint32_t* flag) {
  if (blockIdx.x == 0) {
    x[threadIdx.x] = 5;
    __syncthreads();
    if (threadIdx.x == 0) {
      if constexpr (how == Flag::fenced || how == Flag::half_fenced) __threadfence();
      if constexpr (how == Flag::release) {
        store_release(flag, 1);
      } else {
        atomicExch(flag, 1);
      }
    }
    return;
  }
  if (threadIdx.x == 0) {
    if constexpr (how == Flag::release) {
      poll_until([&] { return load_acquire(flag) != 0; });
    } else {
      poll_until([&] { return atomicAdd(flag, 0) != 0; });
      if constexpr (how == Flag::fenced) __threadfence();
    }
  }
  __syncthreads();
  y[blockIdx.x * blockDim.x + threadIdx.x] = x[blockDim.x - 1 - threadIdx.x];
}

TEST_CASE("flags between blocks order what they release and acquire, or what fences do") {
  const auto run = [](auto kernel) {
    Sim sim;
    return sim.error_of({.kernel = "flag", .grid = {3}, .block = {64}, .cooperative = true}, kernel,
                        sim.y.as<float>(), sim.x.as<float>(), sim.flags.as<uint32_t>());
  };
  CHECK(run(through_flag<Flag::release>) == "no error");
  CHECK(run(through_flag<Flag::fenced>) == "no error");
  CHECK_THAT(run(through_flag<Flag::relaxed>), Contains("race in global memory"));
  CHECK_THAT(run(through_flag<Flag::half_fenced>), Contains("race in global memory"));
}

// A flag hands over what its writer had been handed: 0 -> 1 -> 2.
__global__ void relay(float* y, uint32_t* flags) {
  if (blockIdx.x == 0) y[0] = 3;
  if (blockIdx.x > 0) {
    poll_until([&] { return load_acquire(flags + blockIdx.x - 1) != 0; });
  }
  if (blockIdx.x < 2) store_release(flags + blockIdx.x, 1);
  if (blockIdx.x == 2) y[1] = y[0];
}

// The last block to finish sums what all have written.
template <bool fences>
__global__ void last_block(float* y, float* x, uint32_t* count) {
  auto& s = shared<Row>();
  x[blockIdx.x * blockDim.x + threadIdx.x] = 1;
  if constexpr (fences) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    if constexpr (fences) __threadfence();
    s.values[0] = atomicAdd(count, 1) == gridDim.x - 1 ? 1.0f : 0.0f;
    if constexpr (fences) __threadfence();
  }
  __syncthreads();
  if (s.values[0] == 0.0f || threadIdx.x != 0) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; ++i) sum += x[i];
  y[0] = sum;
}

TEST_CASE("order is handed on") {
  Sim sim;
  CHECK(sim.error_of({.kernel = "relay", .grid = {3}, .cooperative = true}, relay,
                     sim.y.as<float>(), sim.flags.as<uint32_t>()) == "no error");
  const LaunchConfig config{
      .kernel = "last", .grid = {4}, .block = {64}, .shared_bytes = sizeof(Row)};
  CHECK(sim.error_of(config, last_block<true>, sim.y.as<float>(), sim.x.as<float>(),
                     sim.flags.as<uint32_t>() + 4) == "no error");
  CHECK(sim.y.as<float>()[0] == 256);
  CHECK_THAT(sim.error_of(config, last_block<false>, sim.y.as<float>(), sim.x.as<float>(),
                          sim.flags.as<uint32_t>() + 5),
             Contains("race in global memory"));
}

// Two tiles through one buffer.
template <bool barrier_after_wait, bool barrier_before_reuse>
__global__ void copy_tiles(float* y, const float* x) {
  auto& s = shared<Row>();
  for (int tile = 0; tile < 2; ++tile) {
    cp_async<16>(s.values + 4 * threadIdx.x, x + 128 * tile + 4 * threadIdx.x);
    cp_async_commit();
    cp_async_wait<0>();
    if constexpr (barrier_after_wait) __syncthreads();
    y[128 * tile + threadIdx.x] = s.values[4 * (31 - threadIdx.x)];
    if constexpr (barrier_before_reuse) __syncthreads();
  }
}

TEST_CASE("cp.async: the wait is a thread's own, and a copy may not meet a reader") {
  Sim sim;
  const LaunchConfig config{.kernel = "tiles", .block = {32}, .shared_bytes = sizeof(Row)};
  const auto run = [&](auto kernel) {
    return sim.error_of(config, kernel, sim.y.as<float>(),
                        static_cast<const float*>(sim.x.as<float>()));
  };
  CHECK(run(copy_tiles<true, true>) == "no error");
  CHECK(sim.counted("tiles").async_bytes == 2 * sizeof(Row));
  CHECK_THAT(run(copy_tiles<false, true>), Contains("race in shared memory"));
  CHECK_THAT(run(copy_tiles<true, false>), Contains("race in shared memory"));
}

__global__ void read_at(float* y, const float* x, int64_t i) { y[0] = x[i]; }
__global__ void read_shared_at(float* y, int64_t i) { y[0] = shared<Row>().values[i]; }

TEST_CASE("reads outside an allocation, which leave no trace, are found to the byte") {
  Sim sim;
  const LaunchConfig config{.kernel = "outside", .shared_bytes = sizeof(Row)};
  const auto at = [&](int64_t i, size_t cut = 0) {
    const auto* x = reinterpret_cast<const float*>(sim.x.as<char>() - cut);
    return sim.error_of(config, read_at, sim.y.as<float>(), x, i);
  };
  CHECK(at(0) == "no error");
  CHECK(at(elements - 1) == "no error");
  CHECK_THAT(at(elements),
             Contains("kernel outside, block (0,0,0), thread (0,0,0): reads 4 bytes outside any "
                      "allocation; the nearest: global memory, byte 2048 of the 2048 of 'x'"));
  CHECK_THAT(at(-1), Contains("byte -4 of the 2048 of 'x'"));
  CHECK_THAT(at(0, 2), Contains("byte -2 of the 2048"));
  // Straddling the end of an odd size.
  const Buffer odd(sim_device(), 6, "odd");
  CHECK_THAT(sim.error_of(config, read_at, sim.y.as<float>(), odd.as<const float>(), int64_t{1}),
             Contains("byte 4 of the 6 of 'odd'"));
  CHECK(sim.error_of(config, read_shared_at, sim.y.as<float>(), int64_t{127}) == "no error");
  CHECK_THAT(sim.error_of(config, read_shared_at, sim.y.as<float>(), int64_t{128}),
             Contains("shared memory, byte 512 of the 512 of 'outside'"));
}

TEST_CASE("launches are ordered, and memory may be used again") {
  const LaunchConfig config{.kernel = "same", .grid = {3}, .block = {64}};
  for (int i = 0; i < 3; ++i) {
    Sim sim;
    CHECK(sim.error_of(config, own_element<float>, sim.y.as<float>()) == "no error");
    CHECK(sim.error_of({.kernel = "one", .grid = {3}}, write_same, sim.y.as<float>(), 2u) ==
          "no error");
    CHECK(sim.error_of(config, own_element<float>, sim.y.as<float>()) == "no error");
  }
}

__global__ void traffic(float* y, const float* x, int n) {
  auto& s = shared<Row>();
  const auto i = static_cast<int>(blockIdx.x * 128 + threadIdx.x);
  s.values[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  float sum = s.values[threadIdx.x] + s.values[127 - threadIdx.x];
  if (threadIdx.x < 32) {
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  }
  __syncthreads();
  if (i < n) y[i] = sum;
}

TEST_CASE("bytes, barriers and exchanges are counted") {
  Sim sim;
  const LaunchConfig config{
      .kernel = "traffic", .grid = {3}, .block = {128}, .shared_bytes = sizeof(Row)};
  simt::watch(sim.x.data(), 40);
  for (int launches = 1; launches <= 2; ++launches) {
    REQUIRE(sim.error_of(config, traffic, sim.y.as<float>(),
                         static_cast<const float*>(sim.x.as<float>()), 300) == "no error");
    const auto c = sim.counted("traffic");
    const auto times = static_cast<uint64_t>(launches);
    CHECK(c.launches == times);
    CHECK(c.global_bytes_read == times * 300 * 4);
    CHECK(c.global_bytes_written == times * 300 * 4);
    CHECK(c.shared_bytes_written == times * 384 * 4);
    CHECK(c.shared_bytes_read == times * 384 * 8);
    CHECK(c.remote_bytes_read == 0);
    CHECK(c.block_barriers == times * 2);
    CHECK(c.warp_exchanges == times * 5);
    CHECK(c.grid_barriers == 0);
    CHECK(simt::watched().bytes_read == times * 40);
    CHECK(simt::watched().bytes_written == 0);
  }
  CHECK_THAT(
      to_json(sim.counted("traffic")),
      Contains("\"kernel\":\"traffic\",\"launches\":2,\"blocks\":3,\"global_bytes_read\":2400"));
}

}  // namespace
}  // namespace rondo::sim
