// What AddressSanitizer sees in kernels on the simulator, fibers and all: each fault stops a child
// process with a report that names this file.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/simt/sim_fixture.h"

namespace rondo::sim {
namespace {

using Catch::Contains;
using test::SimFixture;

constexpr int elements = 33;  // neither a power of two nor a multiple of a redzone's granule
constexpr unsigned block_threads = 64;

struct Row {
  float values[block_threads];
};

// Reads x[from + i], stores to y[to + i] and passes values through shared memory at slot + i.
struct Shift {
  int from = 0, to = 0, slot = 0;
};

__global__ void copy_kernel(float* y, const float* x, Shift shift) {
  auto& s = shared<Row>();
  const int i = static_cast<int>(threadIdx.x);
  float* values = s.values;
  if (i < elements) values[i + shift.slot] = x[i + shift.from];
  __syncthreads();
  float v = i < elements ? values[i + shift.slot] : 0;
  v += __shfl_xor_sync(0xffffffffu, v, 1) * 0;
  if (i < elements) y[i + shift.to] = v;
}

__global__ void local_kernel(float* y, int past) {
  volatile float mine[4] = {0, 1, 2, 3};
  __syncthreads();  // the thread goes on after others have used their stacks
  y[threadIdx.x % elements] = mine[3 + past];
}

__global__ void failing_kernel(float* y) {
  const std::vector<float> on_the_heap(1000, 1.0f);
  __syncthreads();
  if (threadIdx.x == 5) throw Error("planted");
  __syncthreads();
  y[0] = on_the_heap[threadIdx.x];
}

struct Fixture : SimFixture {
  Buffer x{sim_device(), elements * sizeof(float), "x"},
      y{sim_device(), elements * sizeof(float), "y"};

  std::string copy(Shift shift) {
    return error_of(
        {.kernel = "copy", .grid = {2}, .block = {block_threads}, .shared_bytes = sizeof(Row)},
        copy_kernel, y.as<float>(), static_cast<const float*>(x.as<float>()), shift);
  }
};

struct Ending {
  int status = 0;  // as of waitpid
  std::string said;
};

// Runs f in a process of its own, which a report of the sanitizer ends.
template <class F>
Ending in_child(F f) {
  std::array<int, 2> ends;
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    f();
    _exit(0);
  }
  close(ends[1]);
  Ending ending;
  std::array<char, 4096> piece;
  for (ssize_t n; (n = read(ends[0], piece.data(), piece.size())) > 0;) {
    ending.said.append(piece.data(), static_cast<size_t>(n));
  }
  close(ends[0]);
  REQUIRE(waitpid(child, &ending.status, 0) == child);
  return ending;
}

template <class F>
void check_stops(const std::string& report, F f) {
  const Ending ending = in_child(f);
  CHECK(ending.status != 0);
  CHECK_THAT(ending.said, Contains("AddressSanitizer: " + report) && Contains("asan_test.cc:"));
}

TEST_CASE("kernels without a fault run under AddressSanitizer in every order") {
  for (const SimOrder order : {SimOrder::forward, SimOrder::reverse, SimOrder::shuffled}) {
    Fixture f;
    set_sim_options({order, 7});
    CHECK(f.copy({}) == "no error");
    CHECK(f.copy({.slot = 64 - elements}) == "no error");
    CHECK(f.error_of({.kernel = "local", .block = {block_threads}}, local_kernel, f.y.as<float>(),
                     0) == "no error");
  }
}

TEST_CASE("a failed kernel unwinds its fibers under AddressSanitizer") {
  Fixture f;
  for (int i = 0; i < 3; ++i) {
    CHECK_THAT(f.error_of({.kernel = "failing", .grid = {2}, .block = {block_threads}},
                          failing_kernel, f.y.as<float>()),
               Contains("planted"));
    CHECK(f.copy({}) == "no error");
  }
}

TEST_CASE("one element beyond global memory is seen, read or written, before or after") {
  for (const Shift shift : {Shift{.from = 1}, Shift{.from = -1}, Shift{.to = 1}, Shift{.to = -1}}) {
    check_stops("heap-buffer-overflow", [=] { Fixture().copy(shift); });
  }
}

TEST_CASE("one element beyond shared memory is seen") {
  for (const int slot : {static_cast<int>(block_threads) - elements + 1, -1}) {
    check_stops("heap-buffer-overflow", [=] { Fixture().copy({.slot = slot}); });
  }
}

TEST_CASE("one element beyond a thread's local array is seen, after its fiber was switched") {
  check_stops("stack-buffer-overflow", [] {
    Fixture f;
    f.error_of({.kernel = "local", .block = {block_threads}}, local_kernel, f.y.as<float>(), 1);
  });
}

TEST_CASE("global memory that was freed is seen") {
  check_stops("heap-use-after-free", [] {
    Fixture f;
    const float* freed = f.x.as<float>();
    f.x = {};
    f.error_of({.kernel = "copy", .block = {block_threads}, .shared_bytes = sizeof(Row)},
               copy_kernel, f.y.as<float>(), freed, Shift{});
  });
}

}  // namespace
}  // namespace rondo::sim
