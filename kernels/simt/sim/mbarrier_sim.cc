#include "kernels/simt/sim/mbarrier_sim.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/simt/sim/gang.h"
#include "kernels/simt/sim/observer.h"

namespace rondo::simt {
namespace {

constexpr unsigned most_arrivals = (1u << 20) - 1;
constexpr int32_t most_bytes = (1 << 20) - 1;
constexpr size_t stored_bytes = 16;

MBarrierState* find(Block& block, const MBarrier& b) {
  const auto found = std::find_if(block.mbarriers.begin(), block.mbarriers.end(),
                                  [&](const MBarrierState& s) { return s.object == &b; });
  return found == block.mbarriers.end() ? nullptr : &*found;
}

MBarrierState& state_of(Block& block, const MBarrier& b, Where where) {
  MBarrierState* s = find(block, b);
  if (!s) fail("uses an mbarrier that nobody has initialised", where);
  if (b.stamp != s->stamp) fail("uses an mbarrier that something was written over", where);
  return *s;
}

void end_phase_if_complete(MBarrierState& s) {
  if (s.missing > 0 || s.bytes != 0) return;
  s.missing = s.count;
  s.was_stored_to = s.is_stored_to;
  s.is_stored_to = false;
  ++s.phase;
}

// What the arrivals of a phase hand over to those who wait for it, and for no other: by its address
// among the object's own. (Nobody waits for a phase once there are arrivals of the next but one.)
const void* handed_over(const MBarrier& b, uint32_t phase) {
  return reinterpret_cast<const std::byte*>(&b) + phase % 2;
}

void expect(MBarrierState& s, int32_t bytes, Where where) {
  s.bytes += bytes;
  if (s.bytes > most_bytes || s.bytes < -most_bytes) {
    fail(str("an mbarrier with ", s.bytes, " bytes to come: the device counts to ", most_bytes),
         where);
  }
}

}  // namespace

void mbarrier_init(MBarrier& b, unsigned count, Where where) {
  if (count == 0 || count > most_arrivals) {
    fail(str("mbarrier_init with a count of ", count), where);
  }
  Block& block = *self->block;
  if (find(block, b)) fail("initialises an mbarrier a second time", where);
  // No bytes that a kernel is likely to leave there.
  b.stamp = 0x9d2cbb3a51f06e01u + block.mbarriers.size();
  block.mbarriers.push_back(
      {.object = &b, .stamp = b.stamp, .where = where, .count = count, .missing = count});
}

void mbarrier_arrive(MBarrier& b, unsigned expected_bytes, Where where) {
  MBarrierState& s = state_of(*self->block, b, where);
  if (s.missing == 0) fail(str("more than ", s.count, " arrivals in one mbarrier phase"), where);
  if (observer) observer->released(handed_over(b, s.phase), 0);
  expect(s, static_cast<int32_t>(expected_bytes), where);
  --s.missing;
  end_phase_if_complete(s);
}

bool mbarrier_passed(const MBarrier& b, uint32_t phase, Scope scope, Where where) {
  MBarrierState& s = state_of(*self->block, b, where);
  const uint32_t since = s.phase - phase;
  if (since > 1) {
    fail(str("waits for phase ", static_cast<int32_t>(phase), " of an mbarrier in phase ", s.phase,
             ": a parity tells the present one from the one before alone"),
         where);
  }
  if (since == 0) return false;
  if (s.was_stored_to && scope == Scope::block) {
    fail("what other blocks have stored is visible after mbarrier_wait_for_stores alone", where);
  }
  s.awaited = s.phase;
  if (observer) observer->acquired(handed_over(b, phase), 0);
  return true;
}

void store_async(void* to, const void* words, MBarrier& b, unsigned rank, Where where) {
  auto* theirs = reinterpret_cast<MBarrier*>(shared_of(rank, &b, where));
  std::byte* there = shared_of(rank, to, where);
  MBarrierState& s = state_of(self->block->cluster[rank], *theirs, where);
  if (reinterpret_cast<uintptr_t>(to) % stored_bytes != 0) {
    fail(str("store_async: the address must be a multiple of ", stored_bytes), where);
  }
  std::memcpy(there, words, stored_bytes);
  if (observer) {
    observer->accessed(there, stored_bytes, true);
    observer->released(handed_over(*theirs, s.phase), 0);
  }
  s.is_stored_to = true;
  expect(s, -static_cast<int32_t>(stored_bytes), where);
  end_phase_if_complete(s);
}

void check_mbarriers_at_exit(const Block& block) {
  for (const MBarrierState& s : block.mbarriers) {
    if (s.bytes != 0) {
      fail(str("exits while other blocks may still store: an mbarrier has ", s.bytes,
               " bytes to come"),
           s.where);
    }
    if (s.was_stored_to && s.awaited != s.phase) {
      fail("exits, and nobody waited for the last stores that arrive at an mbarrier", s.where);
    }
  }
}

}  // namespace rondo::simt
