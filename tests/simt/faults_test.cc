// Kernels with planted faults, each of which the simulator must find and name.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "kernels/devices.h"
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
    CHECK_THAT(sim.error_of({.kernel = "odd", .grid = {3}, .cluster = 2}, grid_sync_kernel),
               Contains("divides the grid's x"));
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
