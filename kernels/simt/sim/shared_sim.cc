// Shared memory of a block and of its cluster, copies into it, and its end.
#include <algorithm>
#include <cstring>

#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"
#include "kernels/simt/sim/gang.h"
#include "kernels/simt/sim/mbarrier_sim.h"
#include "kernels/simt/sim/observer.h"
#include "kernels/simt/sim/registers_sim.h"
#include "kernels/simt/sim/scheduler.h"

namespace rondo::simt {

std::byte* shared_memory(size_t bytes, size_t alignment, Where where) {
  const Block& b = *self->block;
  const size_t launched = b.config->shared_bytes;
  if (bytes > launched) {
    fail(str("uses ", bytes, " bytes of shared memory, launched with ", launched), where);
  }
  if (alignment > 128) fail("shared memory is aligned to 128 bytes", where);
  return b.shared.get();
}

std::byte* shared_of(unsigned rank, const void* mine, Where where) {
  const Block& b = *self->block;
  const LaunchConfig& config = *b.config;
  const auto offset = static_cast<const std::byte*>(mine) - b.shared.get();
  if (offset < 0 || static_cast<size_t>(offset) >= config.shared_bytes) {
    fail("map_shared: the address is not in this block's shared memory", where);
  }
  if (rank >= config.cluster) {
    fail(str("map_shared: rank ", rank, " in a cluster of ", config.cluster), where);
  }
  const Block& other = b.cluster[rank];
  if (other.live == 0) fail(str("map_shared: block of rank ", rank, " has exited"), where);
  return other.shared.get() + offset;
}

std::byte* map_shared(const void* mine, unsigned rank, Where where) {
  std::byte* theirs = shared_of(rank, mine, where);
  Block& other = self->block->cluster[rank];
  if (&other == self->block) return theirs;
  const unsigned next_arrival =
      self->between ? self->arrived_in + 1 : other.cluster_barrier->generation;
  other.mapped_until = std::max(other.mapped_until, next_arrival + 1);
  return theirs;
}

void cp_async(void* to, const void* from, unsigned bytes, unsigned valid, Where where) {
  const auto misaligned = [bytes](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % bytes != 0;
  };
  if (misaligned(to) || misaligned(from)) {
    fail(str("cp.async: addresses must be multiples of ", bytes), where);
  }
  const Block& b = *self->block;
  const auto offset = static_cast<const std::byte*>(to) - b.shared.get();
  if (offset < 0 || static_cast<size_t>(offset) + bytes > b.config->shared_bytes) {
    fail("cp.async: the destination is not in this block's shared memory", where);
  }
  self->open.push_back({to, from, bytes, valid, where});
  if (observer) observer->copy_issued(self->open.back());
}

void cp_async_commit() {
  self->committed.push_back(std::move(self->open));
  self->open.clear();
}

void cp_async_wait(size_t groups_left) {
  auto& groups = self->committed;
  while (groups.size() > groups_left) {
    for (const AsyncCopy& c : groups.front()) {
      std::memset(c.to, 0, c.bytes);
      copy_bytes(c.to, c.from, c.valid);  // with none, from anywhere
      if (observer) observer->copy_landed(c);
    }
    groups.erase(groups.begin());
  }
}

void check_exit(const Block& b) {
  check_mbarriers_at_exit(b);
  check_registers_at_exit(b);
  if (b.mapped_until > b.cluster_barrier->generation) {
    fail(
        "exits while other blocks may still use its shared memory: no cluster_sync since one asked "
        "where it is",
        self->where);
  }
}

}  // namespace rondo::simt
