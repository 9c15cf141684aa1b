// Kernels with planted faults, each of which the simulator must find and name.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/devices.h"
#include "kernels/simt/grid_sync.h"
#include "tests/catch.h"
#include "tests/simt/sim_fixture.h"

namespace rondo::sim {
namespace {

struct Sim : rondo::test::SimFixture {
  explicit Sim(SimOptions options = {}) { set_sim_options(options); }
};

const SimOptions orders[] = {
    {SimOrder::forward, 1}, {SimOrder::reverse, 1}, {SimOrder::shuffled, 2}};

using Catch::Contains;

struct Row {
  float values[128];
};

template <bool barrier>
__global__ void reverse_row(float* y, const float* x) {
  auto& s = shared<Row>();
  s.values[threadIdx.x] = x[threadIdx.x];
  if constexpr (barrier) __syncthreads();
  y[threadIdx.x] = s.values[127 - threadIdx.x];
}

TEST_CASE("a missing __syncthreads changes the result with the order") {
  std::vector<float> x(128);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const auto results = [&](auto kernel) {
    std::vector<std::vector<float>> all;
    for (const SimOptions& o : orders) {
      Sim sim(o);
      std::vector<float> y(128);
      CHECK(sim.error_of({.kernel = "k", .block = {128}, .shared_bytes = sizeof(Row)}, kernel,
                         y.data(), static_cast<const float*>(x.data())) == "no error");
      for (float& v : y) v = std::isnan(v) ? -1 : v;
      all.push_back(y);
    }
    return all;
  };
  const auto good = results(reverse_row<true>);
  CHECK(good[0] == good[1]);
  CHECK(good[0] == good[2]);
  const auto bad = results(reverse_row<false>);
  CHECK(bad[0] != bad[1]);
  CHECK(bad[0] != bad[2]);
}

__global__ void divergent_kernel(int* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  atomicAdd(y, 1);
}

TEST_CASE("a divergent barrier is named with kernel, block, thread and both lines") {
  for (const SimOptions& o : orders) {
    Sim sim(o);
    int y = 0;
    CHECK_THAT(
        sim.error_of({.kernel = "divergent", .grid = {2}, .block = {64}}, divergent_kernel, &y),
        Contains("kernel divergent, block (") && Contains("thread (") &&
            Contains("divergent barrier") && Contains("faults_test.cc:"));
  }
}

__global__ void half_barrier_kernel(uint32_t* flag) {
  if (threadIdx.x < 32) {
    __syncthreads();
    store_release(flag, 1);
  } else {
    poll_until([&] { return load_acquire(flag) != 0; });
  }
}

TEST_CASE("threads that wait for each other are a deadlock, not a hang") {
  for (const SimOptions& o : orders) {
    Sim sim(o);
    uint32_t flag = 0;
    CHECK_THAT(sim.error_of({.kernel = "half", .block = {64}}, half_barrier_kernel, &flag),
               Contains("deadlock of 64 threads") && Contains("__syncthreads with 32 of 64") &&
                   Contains("faults_test.cc:"));
  }
}

__global__ void endless_nap_kernel(uint32_t* flag) {
  while (load_acquire(flag) == 0) __nanosleep(100);
}

TEST_CASE("polling that cannot end is an error") {
  Sim sim;
  uint32_t flag = 0;
  CHECK_THAT(sim.error_of({.kernel = "endless", .block = {1}}, endless_nap_kernel, &flag),
             Contains("a polling loop without a bound") && Contains("faults_test.cc:"));
  CHECK_THAT(sim.error_of(
                 {.kernel = "poll", .block = {3}},
                 +[](uint32_t* f) { poll_until([&] { return *f != 0; }); }, &flag),
             Contains("polls for something that no thread will do"));
}

__global__ void lost_lane_kernel(unsigned* y) {
  if (threadIdx.x % 32 < 16) y[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
}
__global__ void foreign_mask_kernel(unsigned* y) { y[threadIdx.x] = __ballot_sync(0xffffu, 1); }
__global__ void absent_source_kernel(unsigned* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 20);
}
__global__ void mixed_operations_kernel(unsigned* y) {
  if (threadIdx.x < 16) {
    y[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
  } else {
    y[threadIdx.x] = __shfl_sync(0xffffffffu, threadIdx.x, 0);
  }
}

TEST_CASE("wrong warp masks are found") {
  for (const SimOptions& o : orders) {
    Sim sim(o);
    std::vector<unsigned> y(64);
    const LaunchConfig config{.kernel = "masks", .block = {64}};
    CHECK_THAT(sim.error_of(config, lost_lane_kernel, y.data()),
               Contains("__ballot_sync for lanes missing from its mask: 16 17") &&
                   Contains("lane 16 has exited") && Contains("faults_test.cc:"));
    CHECK_THAT(sim.error_of(config, foreign_mask_kernel, y.data()),
               Contains("is missing from its own mask"));
    CHECK_THAT(sim.error_of(config, absent_source_kernel, y.data()),
               Contains("reads lane 20, which is missing from the mask"));
    CHECK_THAT(sim.error_of(config, mixed_operations_kernel, y.data()),
               Contains("lanes of one warp meet in"));
    // A block of 40 threads has no lanes 8-31 in its second warp.
    CHECK_THAT(sim.error_of(
                   {.kernel = "short", .block = {40}},
                   +[](unsigned* p) { p[threadIdx.x] = __ballot_sync(0xffffffffu, 1); }, y.data()),
               Contains("(lane 8 does not exist)"));
  }
}

TEST_CASE("an operand that was not made TF32 is found") {
  Sim sim(orders[0]);
  std::vector<float> y(32);
  CHECK_THAT(sim.error_of(
                 {.kernel = "tf32", .block = {32}},
                 +[](float* p) {
                   const uint32_t third = __float_as_uint(1.0f / 3.0f);
                   float c[4] = {};
                   mma_m16n8k8_tf32(c, {third, 0, 0, 0}, {0, 0});
                   p[threadIdx.x] = c[0];
                 },
                 y.data()),
             Contains("mma_m16n8k8_tf32: an operand that was not made TF32") &&
                 Contains("faults_test.cc:"));
}

struct Tile {
  alignas(16) float values[128];
};

template <bool wait>
__global__ void async_kernel(float* y, const float* x) {
  auto& s = shared<Tile>();
  cp_async<16>(s.values + 4 * threadIdx.x, x + 4 * threadIdx.x);
  cp_async_commit();
  if constexpr (wait) cp_async_wait<0>();
  __syncthreads();
  y[threadIdx.x] = s.values[4 * (31 - threadIdx.x)];
}

TEST_CASE("a forgotten cp.async wait reads poison and is reported") {
  Sim sim;
  alignas(16) float x[132];
  for (int i = 0; i < 132; ++i) x[i] = static_cast<float>(i);
  std::vector<float> y(32, -1);
  const LaunchConfig config{.kernel = "async", .block = {32}, .shared_bytes = sizeof(Tile)};
  const float* from = x;
  CHECK(sim.error_of(config, async_kernel<true>, y.data(), from) == "no error");
  CHECK(y[0] == 124);
  CHECK_THAT(sim.error_of(config, async_kernel<false>, y.data(), from),
             Contains("cp.async copy it never waited for") && Contains("faults_test.cc:"));
  CHECK(std::isnan(y[0]));
  CHECK_THAT(sim.error_of(config, async_kernel<true>, y.data(), from + 1),
             Contains("multiples of 16"));
}

__global__ void shared_user_kernel(float* y) { y[0] = shared<Tile>().values[0]; }
__global__ void shared_overflow_kernel(float* y, int past) {
  auto& s = shared<Tile>();
  float* values = s.values;
  values[127 + past] = y[0];
}

TEST_CASE("shared memory beyond what was launched") {
  Sim sim;
  float y = 0;
  CHECK_THAT(sim.error_of({.kernel = "user", .shared_bytes = 100}, shared_user_kernel, &y),
             Contains("uses 512 bytes of shared memory, launched with 100"));
  const LaunchConfig config{.kernel = "overflow", .shared_bytes = sizeof(Tile)};
  CHECK(sim.error_of(config, shared_overflow_kernel, &y, 0) == "no error");
#if !defined(__SANITIZE_ADDRESS__)  // which would stop the program here
  CHECK_THAT(sim.error_of(config, shared_overflow_kernel, &y, 1),
             Contains("kernel overflow, block (0,0,0): wrote past the end of its 512 bytes"));
#endif
}

__global__ void foreign_rank_kernel(float* y) { *y = map_shared(&shared<Tile>(), 2)->values[0]; }
__global__ void exited_block_kernel(float* y) {
  if (cluster_rank() == 1) return;
  // Waits until the other block has exited, at a barrier that it has left.
  cluster_sync();
  *y = map_shared(&shared<Tile>(), 1)->values[0];
}
__global__ void grid_sync_kernel() { grid_sync(); }

TEST_CASE("clusters and grids used wrongly") {
  for (const SimOptions& o : orders) {
    Sim sim(o);
    float y = 0;
    CHECK_THAT(sim.error_of({.kernel = "rank", .grid = {2}, .shared_bytes = 512, .cluster = 2},
                            foreign_rank_kernel, &y),
               Contains("rank 2 in a cluster of 2"));
    CHECK_THAT(sim.error_of({.kernel = "exited", .grid = {2}, .shared_bytes = 512, .cluster = 2},
                            exited_block_kernel, &y),
               Contains("block of rank 1 has exited"));
    CHECK_THAT(sim.error_of({.kernel = "alone", .grid = {2}}, grid_sync_kernel),
               Contains("not cooperative"));
    CHECK_THAT(sim.error_of(
                   {.kernel = "many", .grid = {132 * 2 + 1}, .block = {1024}, .cooperative = true},
                   grid_sync_kernel),
               Contains("must be resident at once"));
    // What a GPU of 148 multiprocessors takes, and the simulated one does not.
    const LaunchConfig larger{.kernel = "larger",
                              .grid = {74, 2},
                              .block = {256},
                              .shared_bytes = 164 * 1024,
                              .cooperative = true};
    CHECK_NOTHROW(check_launch(larger));
    CHECK_THAT(sim.error_of(larger, grid_sync_kernel), Contains("132 such blocks"));
    // 33 x 4 multiprocessors are there, but not in the right places.
    CHECK_THAT(
        sim.error_of({.kernel = "clusters", .grid = {33 * 4}, .cluster = 4, .cooperative = true},
                     grid_sync_kernel),
        Contains("32 such clusters are"));
    CHECK_THAT(sim.error_of({.kernel = "odd", .grid = {3}, .cluster = 2}, grid_sync_kernel),
               Contains("divides the grid's x"));
  }
}

struct Mailbox {
  alignas(16) uint32_t words[8];
  MBarrier delivered;
};
enum class Misuse { uninitialised, twice, written_over, no_count, too_many, never, unaligned };
template <Misuse misuse>
__global__ void mbarrier_misuse_kernel() {
  auto& s = shared<Mailbox>();
  if constexpr (misuse != Misuse::uninitialised) {
    mbarrier_init(&s.delivered, misuse == Misuse::no_count ? 0 : 1);
  }
  if constexpr (misuse == Misuse::twice) mbarrier_init(&s.delivered, 1);
  if constexpr (misuse == Misuse::written_over) std::memset(s.words, 0, sizeof s);
  // Bytes are still to come, so the phase does not end.
  mbarrier_arrive_expecting(&s.delivered, 32);
  if constexpr (misuse == Misuse::too_many) mbarrier_arrive(&s.delivered);
  store_async(s.words + (misuse == Misuse::unaligned), Words<16>{}, &s.delivered, 0);
  mbarrier_wait_for_stores(&s.delivered, 0);
}

TEST_CASE("mbarriers used wrongly") {
  for (const SimOptions& o : orders) {
    Sim sim(o);
    const LaunchConfig config{.kernel = "mailbox", .shared_bytes = sizeof(Mailbox)};
    CHECK_THAT(sim.error_of(config, mbarrier_misuse_kernel<Misuse::uninitialised>),
               Contains("nobody has initialised"));
    CHECK_THAT(sim.error_of(config, mbarrier_misuse_kernel<Misuse::twice>),
               Contains("initialises an mbarrier a second time"));
    CHECK_THAT(sim.error_of(config, mbarrier_misuse_kernel<Misuse::written_over>),
               Contains("something was written over"));
    CHECK_THAT(sim.error_of(config, mbarrier_misuse_kernel<Misuse::no_count>),
               Contains("a count of 0"));
    CHECK_THAT(sim.error_of(config, mbarrier_misuse_kernel<Misuse::too_many>),
               Contains("more than 1 arrivals in one mbarrier phase"));
    CHECK_THAT(sim.error_of(config, mbarrier_misuse_kernel<Misuse::never>),
               Contains("deadlock") && Contains("faults_test.cc"));
    CHECK_THAT(sim.error_of(config, mbarrier_misuse_kernel<Misuse::unaligned>),
               Contains("must be a multiple of 16"));
  }
}

__global__ void wait_kernel(int arrivals, uint32_t phase) {
  auto& s = shared<Mailbox>();
  mbarrier_init(&s.delivered, 1);
  for (int i = 0; i < arrivals; ++i) mbarrier_arrive(&s.delivered);
  mbarrier_wait(&s.delivered, phase);
}

TEST_CASE("a phase that a parity takes for another") {
  Sim sim;
  const LaunchConfig config{.kernel = "wait", .shared_bytes = sizeof(Mailbox)};
  CHECK(sim.error_of(config, wait_kernel, 0, ~0u) == "no error");
  CHECK(sim.error_of(config, wait_kernel, 7, 6u) == "no error");
  CHECK_THAT(sim.error_of(config, wait_kernel, 7, 7u), Contains("deadlock"));
  for (const uint32_t phase : {5u, 8u}) {
    CHECK_THAT(sim.error_of(config, wait_kernel, 7, phase),
               Contains(str("waits for phase ", phase, " of an mbarrier in phase 7")) &&
                   Contains("faults_test.cc"));
  }
}

enum class Reception { right, in_block, left_early, not_awaited };
template <Reception how>
__global__ void receive_kernel(uint32_t* y) {
  auto& s = shared<Mailbox>();
  if (threadIdx.x == 0) {
    mbarrier_init(&s.delivered, 1);
    mbarrier_arrive_expecting(&s.delivered, sizeof s.words);
  }
  cluster_sync();
  if (cluster_rank() == 0) {
    if (threadIdx.x < 2) {
      store_async(s.words + 4 * threadIdx.x, Words<16>{{7, 7, 7, 7}}, &s.delivered, 1);
      store_async(s.words + 4 * threadIdx.x, Words<16>{}, &s.delivered, 0);
    }
    mbarrier_wait_for_stores(&s.delivered, 0);
    return;
  }
  if constexpr (how == Reception::left_early) return;
  if constexpr (how == Reception::in_block) mbarrier_wait(&s.delivered, 0);
  if constexpr (how == Reception::not_awaited) {
    poll_until([&] { return __atomic_load_n(&s.words[4], __ATOMIC_RELAXED) == 7; });
  }
  if constexpr (how == Reception::right) mbarrier_wait_for_stores(&s.delivered, 0);
  y[threadIdx.x] = s.words[threadIdx.x % 8];
}

TEST_CASE("stores into another block that it does not wait for as it must") {
  std::vector<uint32_t> y(32);
  const LaunchConfig config{.kernel = "receive",
                            .grid = {2},
                            .block = {32},
                            .shared_bytes = sizeof(Mailbox),
                            .cluster = 2};
  for (const SimOptions& o : orders) {
    Sim sim(o);
    CHECK(sim.error_of(config, receive_kernel<Reception::right>, y.data()) == "no error");
    CHECK(y[31] == 7);
    CHECK_THAT(sim.error_of(config, receive_kernel<Reception::in_block>, y.data()),
               Contains("visible after mbarrier_wait_for_stores alone"));
    // Whether the stores come before it exits or after.
    CHECK_THAT(sim.error_of(config, receive_kernel<Reception::left_early>, y.data()),
               Contains("may still store") || Contains("nobody waited") || Contains("has exited"));
    CHECK_THAT(sim.error_of(config, receive_kernel<Reception::not_awaited>, y.data()),
               Contains("nobody waited for the last stores") || Contains("may still store"));
  }
}

// How long a block stays whose shared memory another uses.
enum class Stay { to_the_barrier, until_mapped, not_at_all };
template <Stay stay>
__global__ void neighbour_kernel(float* y, uint32_t* mapped) {
  auto& s = shared<Tile>();
  s.values[threadIdx.x] = static_cast<float>(cluster_rank());
  cluster_sync();
  const Tile* theirs = map_shared(&s, cluster_rank() ^ 1);
  __syncthreads();
  if constexpr (stay == Stay::until_mapped) {
    if (threadIdx.x == 0) store_release(&mapped[cluster_rank()], 1);
    poll_until([&] { return load_acquire(&mapped[cluster_rank() ^ 1]) != 0; });
  }
  y[32 * blockIdx.x + threadIdx.x] = theirs->values[threadIdx.x];
  if constexpr (stay == Stay::to_the_barrier) cluster_sync();
}

TEST_CASE("a block that exits while others may use its shared memory") {
  std::vector<float> y(64);
  const LaunchConfig config{.kernel = "neighbour",
                            .grid = {2},
                            .block = {32},
                            .shared_bytes = sizeof(Tile),
                            .cluster = 2};
  for (const SimOptions& o : orders) {
    Sim sim(o);
    uint32_t mapped[2] = {};
    CHECK(sim.error_of(config, neighbour_kernel<Stay::to_the_barrier>, y.data(), mapped) ==
          "no error");
    CHECK(y[0] == 1);
    CHECK_THAT(sim.error_of(config, neighbour_kernel<Stay::until_mapped>, y.data(), mapped),
               Contains("exits while other blocks may still use its shared memory"));
    // Or before the other asks for it.
    CHECK_THAT(sim.error_of(config, neighbour_kernel<Stay::not_at_all>, y.data(), mapped),
               Contains("exits while other blocks may still use its shared memory") ||
                   Contains("has exited"));
  }
}

// The cluster's barrier in two, misused.
enum class Arrival { right, twice, not_at_all, then_whole, then_exit, used_after };
template <Arrival how>
__global__ void arrival_kernel(float* y) {
  auto& s = shared<Tile>();
  if constexpr (how != Arrival::not_at_all) cluster_arrive();
  if constexpr (how == Arrival::twice) cluster_arrive();
  if constexpr (how == Arrival::then_whole) cluster_sync();
  if constexpr (how == Arrival::then_exit) return;
  if constexpr (how == Arrival::used_after) {
    if (cluster_rank() == 0) y = map_shared(&s, 1)->values;
  }
  cluster_wait();
  y[threadIdx.x] = s.values[threadIdx.x];
}

TEST_CASE("a cluster's barrier in two, used wrongly") {
  std::vector<float> y(32);
  const LaunchConfig config{
      .kernel = "arrival", .grid = {2}, .block = {32}, .shared_bytes = sizeof(Tile), .cluster = 2};
  for (const SimOptions& o : orders) {
    Sim sim(o);
    CHECK(sim.error_of(config, arrival_kernel<Arrival::right>, y.data()) == "no error");
    CHECK_THAT(sim.error_of(config, arrival_kernel<Arrival::twice>, y.data()),
               Contains("cluster_arrive a second time"));
    CHECK_THAT(sim.error_of(config, arrival_kernel<Arrival::not_at_all>, y.data()),
               Contains("cluster_wait without a cluster_arrive"));
    CHECK_THAT(sim.error_of(config, arrival_kernel<Arrival::then_whole>, y.data()),
               Contains("cluster_sync between cluster_arrive and cluster_wait"));
    CHECK_THAT(sim.error_of(config, arrival_kernel<Arrival::then_exit>, y.data()),
               Contains("exits between cluster_arrive and cluster_wait"));
    // The arrival is behind when the other block's shared memory is asked for.
    CHECK_THAT(sim.error_of(config, arrival_kernel<Arrival::used_after>, y.data()),
               Contains("exits while other blocks may still use its shared memory") ||
                   Contains("has exited"));
  }
}

// There are three groups of four warps: the first gives, the others take, as many registers as it
// is told.
enum class Registers { enough, too_many, half_a_group, twice, two_places };
template <Registers how>
__global__ void registers_kernel() {
  if (threadIdx.x < 128) {
    if (how == Registers::half_a_group && threadIdx.x >= 64) return;
    if (how == Registers::two_places && threadIdx.x >= 64) return give_registers<88>();
    give_registers<88>();
    if constexpr (how == Registers::twice) give_registers<80>();
  } else {
    take_registers<(how == Registers::too_many ? 216 : 208)>();
  }
}

TEST_CASE("registers that warps wait for in vain") {
  const LaunchConfig config{.kernel = "registers", .block = {384}};
  for (const SimOptions& o : orders) {
    Sim sim(o);
    CHECK(sim.error_of(config, registers_kernel<Registers::enough>) == "no error");
    CHECK_THAT(sim.error_of(config, registers_kernel<Registers::too_many>),
               Contains("deadlock of 128 threads: polls") && Contains("faults_test.cc"));
    CHECK_THAT(sim.error_of(config, registers_kernel<Registers::half_a_group>),
               Contains("deadlock of 256 threads: polls"));
    CHECK_THAT(sim.error_of(config, registers_kernel<Registers::twice>),
               Contains("changes its registers twice") || Contains("at different places"));
    CHECK_THAT(sim.error_of(config, registers_kernel<Registers::two_places>),
               Contains("at different places"));
    CHECK_THAT(sim.error_of(
                   {.kernel = "short", .block = {96}}, +[] { give_registers<88>(); }),
               Contains("whole groups of four warps"));
    CHECK_THAT(sim.error_of(
                   {.kernel = "half", .block = {128}},
                   +[] {
                     if (threadIdx.x < 32) give_registers<88>();
                   }),
               Contains("by 32 of the 128 threads"));
  }
}

// Counts how many are alive, to see that failed kernels unwind their stacks.
struct Counted {
  static inline int alive = 0;
  std::unique_ptr<int> memory = std::make_unique<int>(1);
  Counted() { ++alive; }
  ~Counted() { --alive; }
};

__global__ void failing_kernel(int victim) {
  const Counted on_stack;
  __syncthreads();
  if (static_cast<int>(threadIdx.x) == victim) throw std::runtime_error("planted");
  __syncthreads();
}

TEST_CASE("a failing thread unwinds all the others") {
  for (const SimOptions& o : orders) {
    Sim sim(o);
    CHECK_THAT(sim.error_of({.kernel = "failing", .grid = {3}, .block = {64}}, failing_kernel, 17),
               Contains("kernel failing, block (") && Contains("thread (17,0,0): planted") &&
                   Contains("launched as failing<<<grid 3x1x1, block 64x1x1, 0 B shared>>>"));
    CHECK(Counted::alive == 0);
    CHECK(sim.error_of({.kernel = "fine", .block = {64}}, failing_kernel, -1) == "no error");
  }
}

__global__ void deep_kernel(int depth, int* y) {
  struct Recursion {
    static int down(int left) {
      volatile char frame[1024] = {};
      frame[left % 1024] = 1;
      return left == 0 ? 0 : down(left - 1) + frame[left % 1024];
    }
  };
  *y = Recursion::down(depth);
}

TEST_CASE("blocks and threads have the shape of the launch") {
  Sim sim;
  std::vector<int> seen(2 * 3 * 2 * 4 * 2 * 2);
  CHECK(sim.error_of(
            {.kernel = "shape", .grid = {2, 3, 2}, .block = {4, 2, 2}},
            +[](int* out) {
              const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
              const unsigned thread =
                  threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
              atomicAdd(out + block * 16 + thread, 1);
            },
            seen.data()) == "no error");
  CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  int depth = 0;
  CHECK(sim.error_of({.kernel = "deep"}, deep_kernel, 20, &depth) == "no error");
  CHECK(depth == 20);
}

}  // namespace
}  // namespace rondo::sim
