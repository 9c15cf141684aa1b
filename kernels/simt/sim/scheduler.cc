#include "kernels/simt/sim/scheduler.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels/base/device.h"
#include "kernels/base/error.h"
#include "kernels/simt/sim/observer.h"
#include "kernels/simt/sim/turns.h"

namespace rondo {
namespace {

std::atomic<SimOrder> global_order{SimOrder::forward};
std::atomic<uint64_t> global_seed{1};

}  // namespace

void set_sim_options(const SimOptions& options) {
  global_order = options.order;
  global_seed = options.seed;
}

SimOptions sim_options() { return {global_order, global_seed}; }

}  // namespace rondo

namespace rondo::simt {

thread_local constinit Thread* self = nullptr;
thread_local constinit const char* last_kernel = "";
constinit Observer* observer = nullptr;

namespace {

#if defined(RONDO_ASAN_FIBERS)
constexpr size_t guard_bytes = 0;  // AddressSanitizer's own zones follow at once
#else
constexpr size_t guard_bytes = 128;
#endif
constexpr size_t kept_stacks = 4096;
constexpr std::byte guard_byte{0xa7};

void let_through(Barrier& b) {
  b.arrived = 0;
  ++b.generation;
  if (observer) observer->completed(b);
  b.split = false;
}

// Out of the way of what every barrier and shuffle runs through.
[[noreturn, gnu::cold, gnu::noinline]] void refuse_divergence(const Barrier& b, Where where) {
  fail(str("divergent barrier: ", b.name, " reached here, and by other threads at ", place(b.site)),
       where);
}
[[noreturn, gnu::cold, gnu::noinline]] void refuse_mask(const char* operation, Where where) {
  fail(str(operation, ": lane ", self->lane(), " is missing from its own mask"), where);
}
[[noreturn, gnu::cold, gnu::noinline]] void refuse_mixture(const Exchange& e, const char* operation,
                                                           Where where) {
  fail(str("lanes of one warp meet in ", e.operation, " and in ", operation), where);
}

Dim3 unravel(uint64_t i, Dim3 shape) {
  return {static_cast<unsigned>(i % shape.x), static_cast<unsigned>(i / shape.x % shape.y),
          static_cast<unsigned>(i / shape.x / shape.y)};
}

void set_up_block(Block& b, Gang& gang, uint64_t index, unsigned in_gang) {
  const LaunchConfig& c = gang.config;
  const auto threads = static_cast<unsigned>(c.block.count());
  b.gang = &gang;
  b.config = &c;
  b.index = unravel(index, c.grid);
  b.rank = b.index.x % c.cluster;
  b.live = threads;
  b.barrier = {"__syncthreads", threads, 0, 0, {}};
  b.cluster_barrier = &gang.cluster_barriers[in_gang / c.cluster];
  b.cluster = &gang.blocks[in_gang / c.cluster * c.cluster];
  b.warps.resize((threads + 31) / 32);
  b.shared = SharedMemory(allocate_simulated(c.shared_bytes, guard_bytes, Space::shared, c.kernel));
  std::memset(b.shared.get(), 0xff, c.shared_bytes);  // poison: NaN as f32 and bf16
  std::memset(b.shared.get() + c.shared_bytes, std::to_integer<int>(guard_byte), guard_bytes);
  b.threads = std::vector<Thread>(threads);
  for (unsigned t = 0; t < threads; ++t) {
    b.threads[t].block = &b;
    b.threads[t].linear = t;
    b.threads[t].index = unravel(t, c.block);
  }
}

void check_shared_guard(Gang& gang) {
  for (const Block& b : gang.blocks) {
    const std::byte* end = b.shared.get() + gang.config.shared_bytes;
    const bool clean =
        std::all_of(end, end + guard_bytes, [](std::byte x) { return x == guard_byte; });
    if (!clean && gang.failure.empty()) {
      gang.failure =
          str("kernel ", gang.config.kernel, ", block (", b.index.x, ",", b.index.y, ",", b.index.z,
              "): wrote past the end of its ", gang.config.shared_bytes, " bytes of shared memory");
    }
  }
}

// Tells the observer of a grid's end however it ends.
struct Watched {
  explicit Watched(const LaunchConfig& config) {
    if (observer) observer->begin_grid(config);
  }
  ~Watched() {
    if (observer) observer->end_grid();
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

// Checks that the simulated GPU holds a cooperative grid. (A real one says so itself, and may have
// more multiprocessors.)
void check_resident(const LaunchConfig& config) {
  constexpr uint64_t resident_threads = 2048, resident_blocks = 32, reserved = 1024;
  constexpr uint64_t multiprocessor_shared = 228 * 1024;
  const uint64_t warps = (config.block.count() + 31) / 32;
  const uint64_t held = simulated_multiprocessors *
                        std::min({resident_blocks, resident_threads / (warps * 32),
                                  multiprocessor_shared / (config.shared_bytes + reserved)});
  RONDO_CHECK(config.grid.count() <= held, describe(config),
              ": a cooperative grid must be resident at once, and ", simulated_multiprocessors,
              " multiprocessors hold ", held, " such blocks");
  const unsigned clusters = resident_clusters(config.cluster);
  RONDO_CHECK(config.cluster == 1 || config.grid.count() / config.cluster <= clusters,
              describe(config), ": a cooperative grid must be resident at once, and ", clusters,
              " such clusters are");
}

StackPool& stacks_of_this_thread() {
  thread_local StackPool pool(stack_bytes);
  return pool;
}

}  // namespace

void enqueue_grid(Stream& stream, const LaunchConfig& config, const void* closure, size_t bytes,
                  void (*entry)(const void*)) {
  check_launch(config);
  const auto* begin = static_cast<const std::byte*>(closure);
  stream.enqueue([config, options = sim_options(), entry,
                  copy = std::vector<std::byte>(begin, begin + bytes)] {
    run_grid(config, options, entry, copy.data());
  });
}

void run_grid(const LaunchConfig& config, const SimOptions& options, void (*entry)(const void*),
              const void* arguments) {
  check_launch(config);
  RONDO_CHECK(self == nullptr, describe(config), ": launched from inside a kernel");
  if (config.cooperative) check_resident(config);
  thread_local std::string launched;
  last_kernel = (launched = describe(config)).c_str();
  const uint64_t blocks = config.grid.count();
  const uint64_t per_gang = config.cooperative ? blocks : config.cluster;
  const auto threads = static_cast<unsigned>(config.block.count());
  const uint64_t gangs = blocks / per_gang;
  std::vector<uint64_t> order(gangs);
  for (uint64_t i = 0; i < gangs; ++i) {
    order[i] = options.order == SimOrder::reverse ? gangs - 1 - i : i;
  }
  Random random{options.seed};
  if (options.order == SimOrder::shuffled) std::shuffle(order.begin(), order.end(), random);

  StackPool& stacks = stacks_of_this_thread();
  const Watched watched(config);
  for (uint64_t g : order) {
    Gang gang{config, std::vector<Block>(per_gang), {}, {}, entry, arguments, nullptr, false, {}};
    gang.grid_barrier = {"grid_sync", static_cast<unsigned>(per_gang) * threads, 0, 0, {}};
    gang.cluster_barriers.assign(per_gang / config.cluster,
                                 {"cluster_sync", config.cluster * threads, 0, 0, {}});
    for (unsigned i = 0; i < per_gang; ++i) {
      set_up_block(gang.blocks[i], gang, g * per_gang + i, i);
    }
    if (observer) observer->begin_gang(gang);
    GangRunner(gang, options.order, random(), stacks).run();
    if (observer) observer->end_gang();
    check_shared_guard(gang);
    stacks.trim(kept_stacks);
    if (!gang.failure.empty()) throw Error(str(gang.failure, "; launched as ", launched));
  }
}

std::byte* allocate_simulated(size_t bytes, size_t guard, Space space, const char* purpose) {
  if (observer) return observer->allocate(bytes, guard, space, purpose);
  void* base = nullptr;
  const size_t total = bytes + 2 * guard;
  const bool fits = total >= bytes && posix_memalign(&base, 256, total) == 0;
  if (!fits) throw OutOfMemory(out_of_memory("sim", bytes, purpose, 0));
  return static_cast<std::byte*>(base) + guard;
}

void free_simulated(std::byte* data, size_t guard) noexcept {
  if (observer) return observer->deallocate(data);
  std::free(data - guard);
}

SharedMemory::~SharedMemory() {
  if (data_) free_simulated(data_, guard_bytes);
}

bool same_place(Where a, Where b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

unsigned resident_clusters(unsigned blocks) {
  constexpr unsigned small_parts = 6, large_parts = 2;
  static_assert(small_parts * 16 + large_parts * 18 == simulated_multiprocessors);
  return small_parts * (16 / blocks) + large_parts * (18 / blocks);
}

void fail(const std::string& what, Where where) {
  throw Error(str("kernel ", self->block->config->kernel, ", ", name_thread(*self), ": ", what,
                  ", at ", place(where)));
}

void fail_missing_lane(const char* operation, int lane, Where where) {
  fail(str(operation, ": reads lane ", lane, ", which is missing from the mask"), where);
}

void fail_unaligned(size_t bytes, Where where) {
  fail(str("an access of ", bytes, " bytes at an address that is no multiple of that"), where);
}

void fail_not_tf32(Where where) {
  fail("mma_m16n8k8_tf32: an operand that was not made TF32", where);
}

void leave(Barrier& b) {
  if (--b.expected > 0 && b.arrived == b.expected) let_through(b);
}

[[gnu::always_inline]] inline void come_to(Barrier& b, Where where) {
  if (b.arrived == 0) {
    b.site = where;
  } else if (!same_place(b.site, where)) {
    refuse_divergence(b, where);
  }
  self->where = where;
}

void arrive_and_wait(Barrier& b, Where where) {
  Thread& me = *self;
  come_to(b, where);
  me.barrier = &b;
  me.generation = b.generation;
  if (++b.arrived == b.expected) let_through(b);
  suspend();
  me.barrier = nullptr;
}

void grid_sync(Where where) {
  Gang& gang = *self->block->gang;
  if (!gang.config.cooperative) fail("grid_sync in a launch that is not cooperative", where);
  arrive_and_wait(gang.grid_barrier, where);
}

void cluster_sync(Where where) {
  if (self->between) fail("cluster_sync between cluster_arrive and cluster_wait", where);
  arrive_and_wait(*self->block->cluster_barrier, where);
}

void cluster_arrive(Where where) {
  Thread& me = *self;
  Barrier& b = *me.block->cluster_barrier;
  if (me.between) fail("cluster_arrive a second time, without a cluster_wait since", where);
  come_to(b, where);
  me.between = true;
  me.arrived_in = b.generation;
  b.split = true;
  if (observer) observer->arrived(b);
  if (++b.arrived == b.expected) let_through(b);
}

void cluster_wait(Where where) {
  Thread& me = *self;
  if (!me.between) fail("cluster_wait without a cluster_arrive before it", where);
  me.where = where;
  me.barrier = me.block->cluster_barrier;
  me.generation = me.arrived_in;
  suspend();
  me.barrier = nullptr;
  me.between = false;
  if (observer) observer->waited(*me.block->cluster_barrier);
}

const Exchange::Slots& exchange(unsigned mask, const char* operation, const void* value,
                                size_t bytes, Where where, void (*complete)(Exchange::Slots&)) {
  Thread& me = *self;
  me.where = where;
  if (!(mask >> me.lane() & 1)) {
    refuse_mask(operation, where);
  }
  auto& meetings = me.block->warps[me.linear / 32];
  auto found = std::find_if(meetings.begin(), meetings.end(),
                            [&](const Exchange& e) { return e.mask == mask; });
  if (found == meetings.end()) {
    found = meetings.emplace(found);
    found->mask = mask;
  }
  Exchange& e = *found;
  if (e.present == 0) {
    e.operation = operation;
  } else if (e.operation != operation && std::strcmp(e.operation, operation) != 0) {
    refuse_mixture(e, operation, where);
  }
  const unsigned generation = e.generation;
  Exchange::Slots& slots = e.slots[generation & 1];
  std::memcpy(slots.bytes[me.lane()], value, bytes);
  e.present |= 1u << me.lane();
  me.exchange = &e;
  me.generation = generation;
  if (e.present == mask) {
    if (complete) complete(slots);
    e.present = 0;
    ++e.generation;
    if (observer) observer->met(e);
  }
  suspend();
  me.exchange = nullptr;
  return slots;
}

void poll_begin(Where where) {
  self->where = where;
  ++self->polls;
}

void poll_again() {
  self->polling = true;
  suspend();
}

void poll_end() { self->polling = false; }

void nap(Where where) {
  constexpr uint32_t most = 1u << 20;
  self->where = where;
  if (++self->naps > most) {
    fail(str("__nanosleep called ", most, " times: a polling loop without a bound"), where);
  }
  suspend();
}

}  // namespace rondo::simt
