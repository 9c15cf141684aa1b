#include "kernels/simt/scheduler.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "kernels/base/device.h"
#include "kernels/base/error.h"
#include "kernels/simt/observer.h"

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

// Not a power of two apart, or the tops of all stacks would compete for the same cache lines.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t stack_bytes = 256 * 1024 + 320;
constexpr size_t guard_bytes = 0;  // AddressSanitizer's own zones follow at once
#else
constexpr size_t stack_bytes = 64 * 1024 + 320;
constexpr size_t guard_bytes = 128;
#endif
constexpr size_t kept_stacks = 4096;
constexpr std::byte guard{0xa7};

// Thrown at the place where a thread waits when another one has failed.
struct Cancelled {};

std::string name_thread(const Thread& t) {
  return str("block (", t.block->index.x, ",", t.block->index.y, ",", t.block->index.z,
             "), thread (", t.index.x, ",", t.index.y, ",", t.index.z, ")");
}

std::string place(Where where) { return str(where.file_name(), ":", where.line()); }

// Back to the scheduler, until it is this thread's turn again.
void suspend() {
  Thread& me = *self;
  if (me.block->gang->cancelled) throw Cancelled();
  me.fiber.suspend();
  if (me.block->gang->cancelled) throw Cancelled();
}

void let_through(Barrier& b) {
  b.arrived = 0;
  ++b.generation;
  if (observer) observer->completed(b);
}

void leave(Barrier& b) {
  if (--b.expected > 0 && b.arrived == b.expected) let_through(b);
}

void thread_main(void* argument) {
  Thread& t = *static_cast<Thread*>(argument);
  Gang& gang = *t.block->gang;
  const auto record = [&](const std::string& what) {
    if (gang.failure.empty()) gang.failure = what;
  };
  try {
    gang.entry(gang.arguments);
    if (!t.open.empty()) t.committed.push_back(std::move(t.open));
    for (const auto& group : t.committed) {
      if (!group.empty()) {
        fail("exits with a cp.async copy it never waited for", group.front().where);
      }
    }
    if (t.block->live == 1) check_exit(*t.block);
    --t.block->live;
    leave(t.block->barrier);
    leave(*t.block->cluster_barrier);
    leave(gang.grid_barrier);
  } catch (const Cancelled&) {  // the failure of another thread is already recorded
  } catch (const Error& e) {
    record(e.what());
  } catch (const std::exception& e) {
    record(str("kernel ", gang.config.kernel, ", ", name_thread(t), ": ", e.what()));
  }
}

std::string list_lanes(unsigned mask) {
  std::string out;
  for (unsigned i = 0; i < 32; ++i) {
    if (mask >> i & 1) out += str(out.empty() ? "" : " ", i);
  }
  return out;
}

// Why nothing moves any more, told by the first thread that waits.
std::string explain_deadlock(const Gang& gang) {
  size_t waiting = 0;
  const Thread* first = nullptr;
  for (const Block& b : gang.blocks) {
    for (const Thread& t : b.threads) {
      if (t.fiber.finished()) continue;
      ++waiting;
      if (!first || (t.exchange && !first->exchange)) first = &t;
    }
  }
  std::string why;
  if (first->exchange) {
    const Exchange& e = *first->exchange;
    const unsigned missing = e.mask & ~e.present;
    why = str("waits in ", e.operation, " for lanes missing from its mask: ", list_lanes(missing));
    const unsigned warp = first->linear / 32 * 32;
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(missing));
    const auto& threads = first->block->threads;
    if (warp + lane >= threads.size()) {
      why += str(" (lane ", lane, " does not exist)");
    } else if (threads[warp + lane].fiber.finished()) {
      why += str(" (lane ", lane, " has exited)");
    } else {
      why += str(" (lane ", lane, " waits at ", place(threads[warp + lane].where), ")");
    }
  } else if (first->barrier) {
    why = str("waits in ", first->barrier->name, " with ", first->barrier->arrived, " of ",
              first->barrier->expected, " threads");
  } else {
    why = "polls for something that no thread will do";
  }
  return str("kernel ", gang.config.kernel, ", ", name_thread(*first), ": deadlock of ", waiting,
             " threads: ", why, ", at ", place(first->where));
}

// SplitMix64 (Steele, Lea, Flood 2014): a number costs a few instructions, and every turn of every
// thread in shuffled order draws one.
struct Random {
  using result_type = uint64_t;
  uint64_t state;

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
};

class GangRunner {
 public:
  GangRunner(Gang& gang, SimOrder order, uint64_t seed, StackPool& stacks)
      : gang_(gang), order_(order), random_{seed}, stacks_(stacks) {
    for (Block& b : gang.blocks) {
      const size_t threads = b.threads.size();
      for (size_t i = 0; i < threads; i += 32) {
        warps_.push_back({&b.threads[i], static_cast<unsigned>(std::min<size_t>(32, threads - i))});
      }
      live_ += threads;
    }
    std::iota(lanes_.begin(), lanes_.end(), uint8_t{0});
    if (order == SimOrder::reverse) {
      std::reverse(warps_.begin(), warps_.end());
      std::reverse(lanes_.begin(), lanes_.end());
    }
  }

  void run() {
    int idle_rounds = 0;
    while (live_ > 0 && gang_.failure.empty()) {
      leave_some_behind_ = order_ == SimOrder::shuffled && idle_rounds == 0;
      if (order_ == SimOrder::shuffled) std::shuffle(warps_.begin(), warps_.end(), random_);
      bool progress = false;
      for (size_t i = 0; i < warps_.size() && gang_.failure.empty(); ++i) {
        progress |= run_warp(warps_[i]);
      }
      idle_rounds = progress ? 0 : idle_rounds + 1;
      if (idle_rounds == 3) gang_.failure = explain_deadlock(gang_);
    }
    unwind();
  }

 private:
  struct Warp {
    Thread* first;
    unsigned threads;
  };
  // What a thread's turn came to. `paused`: it asked for other threads' turns.
  enum class Turn : uint8_t { polled_in_vain, paused, moved };

  // The turns of a warp in this round. As many as there are to take: a warp far ahead of the others
  // shows what lacks a barrier, and its 32 stacks stay in the cache. In shuffled order often fewer.
  bool run_warp(const Warp& warp) {
    const unsigned most = order_ == SimOrder::shuffled ? 1u << random_() % 6 : ~0u;
    bool progress = false;
    for (unsigned turns = 0; turns < most; ++turns) {
      const Turn turn = run_lanes(warp);
      progress |= turn != Turn::polled_in_vain;
      if (turn != Turn::moved || !gang_.failure.empty()) break;
    }
    return progress;
  }

  // A turn for each lane that need not wait; the most that one of them came to.
  Turn run_lanes(const Warp& warp) {
    uint64_t behind = 0;  // a quarter of the lanes
    if (order_ == SimOrder::shuffled) std::shuffle(lanes_.begin(), lanes_.end(), random_);
    if (leave_some_behind_) behind = random_() & random_();
    Turn most = Turn::polled_in_vain;
    for (const unsigned lane : lanes_) {
      if (lane >= warp.threads || (behind >> lane & 1)) continue;
      Thread& t = warp.first[lane];
      if (t.fiber.finished() || t.waiting()) continue;
      most = std::max(most, step(t));
      live_ -= t.fiber.finished();
      if (!gang_.failure.empty()) break;
    }
    return most;
  }

  Turn step(Thread& t) {
    if (!t.fiber.started()) {
      t.fiber.prepare(stacks_.take(), stack_bytes, thread_main, &t);
    }
    const bool polled = t.polling;
    const uint32_t polls = t.polls, naps = t.naps;
    self = &t;
    t.fiber.resume();
    self = nullptr;
    if (t.fiber.finished()) finish(t);
    if (polled && t.polling && t.polls == polls) return Turn::polled_in_vain;
    return t.naps == naps ? Turn::moved : Turn::paused;
  }

  void finish(Thread& t) {
    if (t.fiber.overflowed() && gang_.failure.empty()) {
      gang_.failure = str("kernel ", gang_.config.kernel, ", ", name_thread(t),
                          ": needs more than ", stack_bytes, " bytes of stack on the host");
    }
    stacks_.give_back(t.fiber.stack());
  }

  void unwind() {
    gang_.cancelled = true;
    for (const Warp& warp : warps_) {
      for (unsigned lane = 0; lane < warp.threads; ++lane) {
        Thread& t = warp.first[lane];
        while (t.fiber.started() && !t.fiber.finished()) step(t);
      }
    }
  }

  Gang& gang_;
  SimOrder order_;
  Random random_;
  StackPool& stacks_;
  std::vector<Warp> warps_;             // in the order of their turns
  std::array<uint8_t, 32> lanes_ = {};  // of each
  size_t live_ = 0;                     // threads that have not exited
  bool leave_some_behind_ = false;
};

Dim3 unravel(uint64_t i, Dim3 shape) {
  return {static_cast<unsigned>(i % shape.x), static_cast<unsigned>(i / shape.x % shape.y),
          static_cast<unsigned>(i / shape.x / shape.y)};
}

void set_up_block(Block& b, Gang& gang, uint64_t index, unsigned in_gang) {
  const LaunchConfig& c = gang.config;
  const auto threads = static_cast<unsigned>(c.block.count());
  b.gang = &gang;
  b.index = unravel(index, c.grid);
  b.rank = b.index.x % c.cluster;
  b.live = threads;
  b.barrier = {"__syncthreads", threads, 0, 0, {}};
  b.cluster_barrier = &gang.cluster_barriers[in_gang / c.cluster];
  b.cluster = &gang.blocks[in_gang / c.cluster * c.cluster];
  b.warps.resize((threads + 31) / 32);
  b.shared.reset(allocate_simulated(c.shared_bytes, guard_bytes, Space::shared, c.kernel));
  std::memset(b.shared.get(), 0xff, c.shared_bytes);  // poison: NaN as f32 and bf16
  std::memset(b.shared.get() + c.shared_bytes, std::to_integer<int>(guard), guard_bytes);
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
    const bool clean = std::all_of(end, end + guard_bytes, [](std::byte x) { return x == guard; });
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

// Of a cooperative grid: that the simulated GPU holds it. (A real one says so itself, and may have
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

void run_grid(const LaunchConfig& config, const SimOptions& options, void (*entry)(void*),
              void* arguments) {
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
    Gang gang{config, std::vector<Block>(per_gang), {}, {}, entry, arguments, false, {}};
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

void FreeShared::operator()(std::byte* p) const noexcept { free_simulated(p, guard_bytes); }

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
  throw Error(str("kernel ", self->block->gang->config.kernel, ", ", name_thread(*self), ": ", what,
                  ", at ", place(where)));
}

void arrive_and_wait(Barrier& b, Where where) {
  Thread& me = *self;
  if (b.arrived == 0) {
    b.site = where;
  } else if (!same_place(b.site, where)) {
    fail(str("divergent barrier: ", b.name, " reached here, and by other threads at ",
             place(b.site)),
         where);
  }
  me.where = where;
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

void cluster_sync(Where where) { arrive_and_wait(*self->block->cluster_barrier, where); }

const Exchange::Slots& exchange(unsigned mask, const char* operation, const void* value,
                                size_t bytes, Where where, void (*complete)(Exchange::Slots&)) {
  Thread& me = *self;
  me.where = where;
  if (!(mask >> me.lane() & 1)) {
    fail(str(operation, ": lane ", me.lane(), " is missing from its own mask"), where);
  }
  auto& meetings = me.block->warps[me.linear / 32];
  auto found = std::find_if(meetings.begin(), meetings.end(),
                            [&](const auto& e) { return e->mask == mask; });
  if (found == meetings.end()) {
    meetings.push_back(std::make_unique<Exchange>());
    found = meetings.end() - 1;
    (*found)->mask = mask;
  }
  Exchange& e = **found;
  if (e.present == 0) {
    e.operation = operation;
  } else if (e.operation != operation && std::strcmp(e.operation, operation) != 0) {
    fail(str("lanes of one warp meet in ", e.operation, " and in ", operation), where);
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
