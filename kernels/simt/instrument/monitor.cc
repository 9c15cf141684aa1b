#include "kernels/simt/instrument/monitor.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/simt/instrument/source_line.h"
#include "kernels/simt/sim/gang.h"

namespace rondo::simt {

constinit Monitor* monitor = nullptr;

void instrument() {
  if (monitor) return;
  static Monitor the_monitor;
  monitor = &the_monitor;
  set_observer(monitor);
}

std::vector<KernelCounters> counters() { return monitor->counters(); }
void reset_counters() { monitor->reset_counters(); }
void watch(const void* begin, size_t bytes) { monitor->watch(begin, bytes); }
Traffic watched() { return monitor->watched(); }

std::string to_json(const KernelCounters& c) {
  return str("{\"kernel\":\"", c.kernel, "\",\"launches\":", c.launches, ",\"blocks\":", c.blocks,
             ",\"global_bytes_read\":", c.global_bytes_read,
             ",\"global_bytes_written\":", c.global_bytes_written,
             ",\"shared_bytes_read\":", c.shared_bytes_read,
             ",\"shared_bytes_written\":", c.shared_bytes_written,
             ",\"remote_bytes_read\":", c.remote_bytes_read,
             ",\"remote_bytes_written\":", c.remote_bytes_written,
             ",\"async_bytes\":", c.async_bytes, ",\"atomics\":", c.atomics,
             ",\"matrix_instructions\":", c.matrix_instructions,
             ",\"block_barriers\":", c.block_barriers, ",\"cluster_barriers\":", c.cluster_barriers,
             ",\"grid_barriers\":", c.grid_barriers, ",\"warp_exchanges\":", c.warp_exchanges, "}");
}

// ---- what the simulator tells ----

std::byte* Monitor::allocate(size_t bytes, size_t guard, Space space, const char* purpose) {
  return arena_.allocate(bytes, guard, space, purpose);
}
void Monitor::deallocate(std::byte* data) noexcept { arena_.deallocate(data); }

void Monitor::begin_grid(const LaunchConfig& config) {
  mutex_.lock();
  block_threads_ = config.block.count();
  RONDO_CHECK(config.grid.count() < ~uint32_t{0}, describe(config),
              ": too many blocks for an instrumented build");
  order_.begin_grid(config);
  const auto [at, is_new] = index_.try_emplace(config.kernel, counters_.size());
  if (is_new) counters_.push_back({.kernel = config.kernel});
  kernel_ = &counters_[at->second];
  ++kernel_->launches;
  kernel_->blocks = std::max(kernel_->blocks, uint64_t{config.grid.count()});
  kernel_->shared_memory.insert(config.shared_bytes);
  most_ = {};
}

void Monitor::end_grid() noexcept {
  kernel_->block_barriers += most_.block_barriers;
  kernel_->cluster_barriers += most_.cluster_barriers;
  kernel_->grid_barriers += most_.grid_barriers;
  kernel_->warp_exchanges += most_.warp_exchanges;
  gang_ = nullptr;
  mutex_.unlock();
}

void Monitor::begin_gang(Gang& gang) {
  gang_ = &gang;
  order_.begin_gang(gang);
  waits_.assign(gang.blocks.size(), {});
  for (Waits& w : waits_) w.warps.assign((block_threads_ + 31) / 32, 0);
}

void Monitor::end_gang() noexcept {
  gang_ = nullptr;
  for (const Waits& w : waits_) {
    most_.block_barriers = std::max(most_.block_barriers, w.barriers);
    most_.cluster_barriers = std::max(most_.cluster_barriers, w.cluster);
    for (const uint64_t n : w.warps) most_.warp_exchanges = std::max(most_.warp_exchanges, n);
  }
}

void Monitor::completed(const Barrier& barrier) {
  order_.barrier_completed(*self, barrier);
  Waits& w = waits_[static_cast<size_t>(self->block - gang_->blocks.data())];
  if (&barrier == &self->block->barrier) {
    ++w.barriers;
  } else if (&barrier == self->block->cluster_barrier) {
    ++waits_[static_cast<size_t>(self->block->cluster - gang_->blocks.data())].cluster;
  } else {
    ++most_.grid_barriers;
  }
}

void Monitor::arrived(const Barrier&) { order_.arrived_at_cluster(*self); }
void Monitor::waited(const Barrier&) { order_.waited_for_cluster(*self); }

void Monitor::met(const Exchange& e) {
  if (std::strcmp(e.operation, "__syncwarp") == 0) order_.warp_synchronised(*self, e.mask);
  if (std::strstr(e.operation, "mma")) ++kernel_->matrix_instructions;
  ++waits_[static_cast<size_t>(self->block - gang_->blocks.data())].warps[self->linear / 32];
}

void Monitor::accessed(const void* p, size_t bytes, bool write) {
  access(p, bytes, write ? AccessKind::write : AccessKind::read, __builtin_return_address(0));
}

void Monitor::copy_issued(const AsyncCopy& copy) {
  const void* site = __builtin_return_address(0);
  kernel_->async_bytes += copy.bytes;
  if (copy.valid) access(copy.from, copy.valid, AccessKind::read, site);
  access(copy.to, copy.bytes, AccessKind::write, site);
}

void Monitor::copy_landed(const AsyncCopy& copy) {
  if (gang_ == nullptr) return;
  check(copy.to, copy.bytes, AccessKind::write, arena_.space(copy.to), __builtin_return_address(0));
}

void Monitor::fence() { order_.fence(*self); }

void Monitor::relaxed(const void* p, size_t bytes, bool write) {
  access(p, bytes, write ? AccessKind::atomic_write : AccessKind::atomic_read,
         __builtin_return_address(0));
}

void Monitor::updated(const void* p, size_t bytes) {
  access(p, bytes, AccessKind::atomic_write, __builtin_return_address(0));
  order_.updated(*self, p);
}

void Monitor::released(const void* p, size_t bytes) {
  if (bytes) access(p, bytes, AccessKind::atomic_write, __builtin_return_address(0));
  order_.released(*self, p);
}

void Monitor::acquired(const void* p, size_t bytes) {
  if (bytes) access(p, bytes, AccessKind::atomic_read, __builtin_return_address(0));
  order_.acquired(*self, p);
}

// ---- counting ----

namespace {

bool writes(AccessKind k) { return k == AccessKind::write || k == AccessKind::atomic_write; }
bool is_atomic(AccessKind k) {
  return k == AccessKind::atomic_read || k == AccessKind::atomic_write;
}

}  // namespace

void Monitor::count(const void* p, size_t bytes, AccessKind kind, Space space) {
  const bool write = writes(kind);
  const auto* at = static_cast<const std::byte*>(p);
  if (at >= watch_begin_ && at < watch_end_) {
    (write ? watched_.bytes_written : watched_.bytes_read) += bytes;
  }
  if (is_atomic(kind)) ++kernel_->atomics;
  if (space == Space::global) {
    (write ? kernel_->global_bytes_written : kernel_->global_bytes_read) += bytes;
  } else {
    const auto own = static_cast<size_t>(at - self->block->shared.get());
    if (own < gang_->config.shared_bytes) {
      (write ? kernel_->shared_bytes_written : kernel_->shared_bytes_read) += bytes;
    } else {
      (write ? kernel_->remote_bytes_written : kernel_->remote_bytes_read) += bytes;
    }
  }
}

std::vector<KernelCounters> Monitor::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Monitor::reset_counters() {
  const std::lock_guard lock(mutex_);
  counters_.clear();
  index_.clear();
}

void Monitor::watch(const void* begin, size_t bytes) {
  const std::lock_guard lock(mutex_);
  watch_begin_ = static_cast<const std::byte*>(begin);
  watch_end_ = watch_begin_ + bytes;
  watched_ = {};
}

// ---- races ----

void Monitor::check(const void* p, size_t bytes, AccessKind kind, Space space, const void* site) {
  if (!gang_->failure.empty()) return;
  if (!arena_.allocated(p, bytes)) return report_outside(p, bytes, kind, site);
  const HappensBefore::View& me = order_.view(*self);
  Access now = {me.block, me.clock, to_site(site), me.thread, 0, writes(kind), is_atomic(kind)};
  const auto* at = static_cast<const std::byte*>(p);
  const auto* end = at + bytes;
  while (at < end) {
    const size_t within = reinterpret_cast<uintptr_t>(at) % cell_bytes;
    const size_t n = std::min(cell_bytes - within, static_cast<size_t>(end - at));
    now.bytes = static_cast<uint8_t>((((1u << n) - 1) << within) & 15u);
    check_cell(at - within, now, space, me);
    at += n;
  }
}

namespace {

// A comparison's outcome for each slot: all bits, or none.
Four mask(bool all) { return Four{} - static_cast<uint32_t>(all); }
template <class T>
Four mask(T outcome) {
  return reinterpret_cast<Four>(outcome);
}

// Clocks are below 2^31: instruction sets compare signed numbers faster.
Four earlier(Four clock, Clock than) {
  using Signed = int32_t __attribute__((vector_size(16)));
  return mask(reinterpret_cast<Signed>(clock) < static_cast<int32_t>(than));
}

// One bit for each slot, from `shift` on.
Four bits(Four outcome, unsigned shift) { return outcome & (Four{1, 2, 4, 8} << shift); }
uint32_t any_of(Four v) {
  using Two = uint64_t __attribute__((vector_size(16)));
  const auto halves = reinterpret_cast<Two>(v);
  const uint64_t both = halves[0] | halves[1];
  return static_cast<uint32_t>(both | both >> 32);
}

// How an access stands to the earlier ones of its cell: one bit for each slot.
struct Standing {
  unsigned free;       // the slot holds nothing, or what this launch has nothing to do with
  unsigned conflicts;  // by somebody else, and one of the two writes, not both atomic
  unsigned covered;    // what would conflict with the older, unordered, conflicts with the new
  unsigned known;      // happened before, for all that barriers tell
};

Standing compare(const Cell& cell, const Access& now, const HappensBefore::View& me, Clock start) {
  const Four block = mask(cell.block == me.block);
  const Four distance = (cell.who ^ me.thread) & Cell::thread_bits;
  const Four by_me = block & mask(distance == 0);
  const Four by_warp = block & mask(distance / 32 == 0);
  const Four known = by_me | earlier(cell.clock, me.all) |
                     (block & earlier(cell.clock, me.block_clock)) |
                     (by_warp & earlier(cell.clock, me.warp_clock));

  const uint32_t bytes = uint32_t{now.bytes} << 16;
  const Four write = mask((cell.who & Cell::write_bit) != 0);
  const Four atomic = mask((cell.who & Cell::atomic_bit) != 0);
  const Four free = mask((cell.who & Cell::bytes_bits) == 0) | earlier(cell.clock, start);
  const Four conflicts = ~(free | by_me) & mask((cell.who & bytes) != 0) &
                         (write | mask(now.write)) & ~(atomic & mask(now.atomic));
  const Four covered = ~free & mask((cell.who & (Cell::bytes_bits & ~bytes)) == 0) &
                       (~write | mask(now.write)) & (atomic | mask(!now.atomic));
  const uint32_t all =
      any_of(bits(free, 0) | bits(conflicts, 4) | bits(covered, 8) | bits(known, 12));
  return {all & 15, all >> 4 & 15, all >> 8 & 15, all >> 12};
}

// Whether the thread has done the same, or more, since its last event: whatever has come since was
// compared with that.
bool repeats(const Cell& cell, const Access& now) {
  const uint32_t who = Cell::who_of(now);
  const Four less = ((cell.who ^ who) & ~Cell::write_bit) | (~cell.who & (who & Cell::write_bit));
  return any_of(mask((less | (cell.clock ^ now.clock) | (cell.block ^ now.block)) == 0)) != 0;
}

// Where to remember an access when no slot is free: reads give way first.
unsigned victim(const Cell& cell, const Access& now) {
  const unsigned start = (now.thread * 2654435761u + now.clock * 40503u) >> 30;
  for (unsigned i = 0; i < Cell::slots; ++i) {
    const unsigned slot = (start + i) % Cell::slots;
    if (!(cell.who[slot] & Cell::write_bit)) return slot;
  }
  return start;
}

}  // namespace

void Monitor::check_cell(const std::byte* p, const Access& now, Space space,
                         const HappensBefore::View& me) {
  Cell& cell = arena_.cell(p);
  if (repeats(cell, now)) return;
  // Older ones were made before anything that the launch, or the life of this shared memory, has
  // to do with.
  const Standing is =
      compare(cell, now, me, space == Space::global ? order_.grid_start() : order_.gang_start());
  const auto ask = [&](unsigned slot) {
    const Access before = cell.get(slot);
    return me.knows(before.block, before.thread, before.clock);
  };
  for (unsigned left = is.conflicts & ~is.known; left; left &= left - 1) {
    const auto slot = static_cast<unsigned>(__builtin_ctz(left));
    if (!ask(slot)) return report_race(p, now, cell.get(slot));
  }
  unsigned free = is.free | (is.covered & is.known);
  const unsigned unsure = me.knows_more ? is.covered & ~is.known : 0;
  for (unsigned left = unsure; left && !free; left &= left - 1) {
    const auto slot = static_cast<unsigned>(__builtin_ctz(left));
    if (ask(slot)) free = 1u << slot;
  }
  cell.who &= mask((Four{1, 2, 4, 8} & free) == 0);
  cell.set(free ? static_cast<unsigned>(__builtin_ctz(free)) : victim(cell, now), now);
}

// ---- words ----

void Monitor::fail(const std::string& what) {
  if (gang_->failure.empty()) gang_->failure = str("kernel ", gang_->config.kernel, ", ", what);
}

std::string Monitor::name_thread(uint32_t block, uint16_t thread) const {
  const auto name = [](uint32_t i, Dim3 shape) {
    return str("(", i % shape.x, ",", i / shape.x % shape.y, ",", i / shape.x / shape.y, ")");
  };
  return str("block ", name(block, gang_->config.grid), ", thread ",
             name(thread, gang_->config.block));
}

namespace {

const char* verb(bool write, bool atomic) {
  if (atomic) return write ? "updates" : "reads (atomically)";
  return write ? "writes" : "reads";
}

std::string name_place(const Arena::Allocation& a, const void* p) {
  return str(a.space == Space::global ? "global" : "shared", " memory, byte ",
             static_cast<const std::byte*>(p) - a.data, " of the ", a.bytes, " of '", a.purpose,
             "'");
}

}  // namespace

void Monitor::report_race(const std::byte* p, const Access& now, const Access& before) {
  const std::byte* at = p + __builtin_ctz(static_cast<unsigned>(now.bytes & before.bytes));
  fail(str(name_thread(now.block, now.thread), ": race in ", name_place(arena_.find(at), at),
           ": it ", verb(now.write, now.atomic), " at ", source_line(now.site), ", and ",
           name_thread(before.block, before.thread), " ", verb(before.write, before.atomic), " at ",
           source_line(before.site), ", with nothing that orders them"));
}

void Monitor::report_outside(const void* p, size_t bytes, AccessKind kind, const void* site) {
  const Arena::Allocation a = arena_.find(p);
  const HappensBefore::View& me = order_.view(*self);
  fail(str(name_thread(me.block, me.thread), ": ", verb(writes(kind), is_atomic(kind)), " ", bytes,
           " bytes outside any allocation; the nearest: ", name_place(a, p), ", at ",
           source_line(to_site(site))));
}

}  // namespace rondo::simt
