// Runs the threads of a CUDA grid as fibers on the calling host thread.
//
// Blocks that must be resident together (one block; a cluster; the whole grid of a cooperative
// launch) form a gang, and gangs run one after the other. Within a gang the warps take turns, in
// rounds: in increasing order of index, in decreasing order, or shuffled. In a turn each thread of
// the warp runs until it has to wait, again and again while there is anything to do; in shuffled
// order at most 1, 2, 4 ... or 32 times, by chance, and with some threads left behind. A kernel
// whose result depends on the order lacks a barrier.
//
// What is found, and thrown as Error naming kernel, block, thread and source line: a barrier
// reached from two places, a lane missing from a mask or not in its own, lanes in different
// operations, threads that wait for ever, polling that cannot end, cp.async copies nobody waited
// for, shared memory asked for and not launched with, writes past its end.
//
// Thread safety: each host thread has its own scheduler state; grids run concurrently on several.
#pragma once

#include <cstdint>
#include <list>
#include <source_location>
#include <utility>
#include <vector>

#include "kernels/base/gpu/launch.h"
#include "kernels/simt/sim/fiber.h"

namespace rondo {

class Stream;

enum class SimOrder : uint8_t { forward, reverse, shuffled };

struct SimOptions {
  SimOrder order = SimOrder::forward;
  uint64_t seed = 1;
};

// What launches and streams of the simulator use from now on; per process. Set it while nothing
// is enqueued.
void set_sim_options(const SimOptions& options);
SimOptions sim_options();

}  // namespace rondo

namespace rondo::simt {

using Where = std::source_location;

struct Block;
struct Gang;
class GangRunner;

// Counts only threads that have not exited, as the hardware does.
struct Barrier {
  const char* name = "";
  unsigned expected = 0, arrived = 0, generation = 0;
  Where site;
  bool split = false;  // threads arrive at the present generation and wait for it apart
};

// Where the lanes of one mask of one warp meet and exchange values. Double buffered: a fast lane
// may be in the next exchange while a slow one still reads this one.
struct Exchange {
  static constexpr size_t slot_bytes = 32;
  struct Slots {
    alignas(16) std::byte bytes[32][slot_bytes];
  };
  unsigned mask = 0, present = 0, generation = 0;
  const char* operation = "";
  Slots slots[2];
};

struct AsyncCopy {
  void* to;
  const void* from;
  unsigned bytes, valid;  // the rest of `bytes` is zeroed
  Where where;
};

// What decides whose turn it is comes first: all threads of a warp are looked at for every barrier.
struct alignas(64) Thread {
  Fiber fiber;
  const Barrier* barrier = nullptr;
  const Exchange* exchange = nullptr;
  unsigned generation = 0;  // of what it waits for
  uint32_t polls = 0, naps = 0;
  bool polling = false;
  bool between = false;     // has arrived at the cluster's barrier, and not waited for it yet
  unsigned arrived_in = 0;  // the generation of that barrier it arrived in
  unsigned linear = 0;
  Block* block = nullptr;
  Dim3 index;
  Where where;                                    // where it last waited
  std::vector<AsyncCopy> open;                    // not committed yet
  std::vector<std::vector<AsyncCopy>> committed;  // oldest group first

  unsigned lane() const { return linear % 32; }
  bool waiting() const {
    return (barrier && barrier->generation == generation) ||
           (exchange && exchange->generation == generation);
  }
};

// What an mbarrier in shared memory counts (mbarrier_sim.h).
struct MBarrierState {
  const void* object = nullptr;
  uint64_t stamp = 0;  // that the object holds
  Where where;         // it was made
  unsigned count = 0, missing = 0;
  int32_t bytes = 0;   // expected and not there, or there and not expected yet: less than 0
  uint32_t phase = 0;  // the present one
  bool is_stored_to = false, was_stored_to = false;  // in it, in the one before, by store_async
  uint32_t awaited = 0;  // the phases that some thread has seen the end of
};

// A group of four warps that changes its registers (registers_sim.h).
struct RegisterGroup {
  unsigned arrived = 0, registers = 0;
  bool granted = false;
  Where where;
};

// Owns a block's shared memory, 128-aligned. (Kernels' sources include this: no <memory>.)
class SharedMemory {
 public:
  SharedMemory() = default;
  explicit SharedMemory(std::byte* data) : data_(data) {}
  SharedMemory(SharedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~SharedMemory();
  std::byte* get() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

struct Block {
  Gang* gang = nullptr;
  const LaunchConfig* config = nullptr;  // of its gang
  Dim3 index;
  unsigned rank = 0;  // within its cluster
  unsigned live = 0;  // threads that have not exited
  std::vector<Thread> threads;
  SharedMemory shared;
  Barrier barrier;
  Barrier* cluster_barrier = nullptr;
  Block* cluster = nullptr;                // its first block
  std::vector<std::list<Exchange>> warps;  // one for each mask, where they stay
  std::vector<MBarrierState> mbarriers;
  std::vector<RegisterGroup> register_groups;
  unsigned spare_registers = 0;
  // Other blocks have asked for addresses here, and are done with them when the cluster's barrier
  // has come to this generation.
  unsigned mapped_until = 0;
};

// The thread that runs now; null outside kernels.
extern thread_local constinit Thread* self;
// The kernel run_grid ran last on this host thread.
extern thread_local constinit const char* last_kernel;

// Enqueues the grid whose threads run entry(closure), with the options that hold now. The bytes of
// the closure are copied: they must do without their constructors, 16-aligned.
void enqueue_grid(Stream& stream, const LaunchConfig& config, const void* closure, size_t bytes,
                  void (*entry)(const void*));

// Runs entry(arguments) once per thread of the grid. Throws Error at the first failure, with every
// thread's stack unwound.
void run_grid(const LaunchConfig& config, const SimOptions& options, void (*entry)(const void*),
              const void* arguments);

// How many clusters of so many blocks, one to a multiprocessor, are resident at once: a cluster is
// within a part of the chip, of 16 or 18 multiprocessors.
unsigned resident_clusters(unsigned blocks);

// ---- for the vocabulary (kernels/simt/sim/vocabulary_sim.h) ----

// "<operation>: reads lane <lane>, which is missing from the mask", and so on.
[[noreturn]] void fail_missing_lane(const char* operation, int lane, Where where);
[[noreturn]] void fail_unaligned(size_t bytes, Where where);
[[noreturn]] void fail_not_tf32(Where where);
bool same_place(Where a, Where b);

void arrive_and_wait(Barrier& barrier, Where where);
void grid_sync(Where where);
void cluster_sync(Where where);
void cluster_arrive(Where where);
void cluster_wait(Where where);

// All lanes of `mask` leave `bytes` bytes and get everyone's. The last to arrive calls `complete`,
// which may replace them by the results.
const Exchange::Slots& exchange(unsigned mask, const char* operation, const void* value,
                                size_t bytes, Where where,
                                void (*complete)(Exchange::Slots&) = nullptr);

std::byte* shared_memory(size_t bytes, size_t alignment, Where where);
// Where `mine` is in the shared memory of block `rank`. map_shared: what it is used for is over
// when the caller next arrives at the cluster's barrier.
std::byte* shared_of(unsigned rank, const void* mine, Where where);
std::byte* map_shared(const void* mine, unsigned rank, Where where);
// By the block's last thread, as it exits: on a device its shared memory and registers are then
// another's.
void check_exit(const Block& block);

void cp_async(void* to, const void* from, unsigned bytes, unsigned valid, Where where);
void cp_async_commit();
void cp_async_wait(size_t groups_left);

// One turn of a polling loop whose condition does not hold yet.
void poll_begin(Where where);
void poll_again();
void poll_end();
void nap(Where where);

}  // namespace rondo::simt
