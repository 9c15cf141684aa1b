#include "kernels/simt/instrument/arena.h"

#include <sys/mman.h>

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo::simt {
namespace {

constexpr size_t unit = 256;

void* reserve(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  RONDO_CHECK(p != MAP_FAILED, "instrumented simulator: the system refuses ", bytes,
              " bytes of addresses");
  return p;
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Gives whole pages inside [p, p + bytes) back to the system; they read as zero afterwards.
void forget(void* p, size_t bytes) {
  constexpr uintptr_t page = 4096;
  const auto begin = round_up(reinterpret_cast<uintptr_t>(p), page);
  const auto end = (reinterpret_cast<uintptr_t>(p) + bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

Arena::Arena()
    : base_(static_cast<std::byte*>(reserve(arena_bytes))),
      owners_(static_cast<uint8_t*>(reserve(arena_bytes / 8))),
      cells_(static_cast<Cell*>(reserve(arena_bytes / cell_bytes * sizeof(Cell)))) {
  free_[0] = arena_bytes;
}

Arena::~Arena() {
  munmap(base_, arena_bytes);
  munmap(owners_, arena_bytes / 8);
  munmap(cells_, arena_bytes / cell_bytes * sizeof(Cell));
}

std::byte* Arena::allocate(size_t bytes, size_t guard, Space space, const char* purpose) {
  const size_t margin = round_up(std::max<size_t>(guard, 1), unit);
  const size_t total = round_up(bytes, unit) + 2 * margin;
  const std::lock_guard lock(mutex_);
  const auto hole =
      std::find_if(free_.begin(), free_.end(), [&](const auto& f) { return f.second >= total; });
  RONDO_CHECK(bytes < arena_bytes && hole != free_.end(), "out of memory: ", bytes,
              " bytes asked for ", purpose, " in an instrumented build, which has ", arena_bytes);
  const auto [offset, size] = *hole;
  free_.erase(hole);
  if (size > total) free_[offset + total] = size - total;
  std::byte* data = base_ + offset + margin;
  const Range range = {offset, total, {data, bytes, space, purpose}};
  mark(range.allocation, true);
  live_[data] = range;
  return data;
}

void Arena::deallocate(std::byte* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(data);
  if (found == live_.end()) return;
  auto [offset, bytes, allocation] = std::move(found->second);
  live_.erase(found);
  mark(allocation, false);
  constexpr size_t worth_a_call = 1 << 20;
  if (bytes >= worth_a_call) {
    forget(base_ + offset, bytes);
    forget(cells_ + offset / cell_bytes, bytes / cell_bytes * sizeof(Cell));
  }
  const auto after = free_.find(offset + bytes);
  if (after != free_.end()) {
    bytes += after->second;
    free_.erase(after);
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

void Arena::mark(const Allocation& a, bool alive) {
  uint8_t* owner = owners_ + offset(a.data) / 8;
  const auto space = static_cast<uint8_t>(static_cast<unsigned>(a.space) << 4);
  std::fill_n(owner, a.bytes / 8, alive ? static_cast<uint8_t>(space | 8) : uint8_t{0});
  if (a.bytes % 8) owner[a.bytes / 8] = alive ? static_cast<uint8_t>(space | a.bytes % 8) : 0;
}

Arena::Allocation Arena::find(const void* p) const {
  const auto distance = [p](const Allocation& a) {
    const auto* at = static_cast<const std::byte*>(p);
    return at < a.data ? a.data - at : at >= a.data + a.bytes ? at - (a.data + a.bytes) + 1 : 0;
  };
  const std::lock_guard lock(mutex_);
  const Allocation* best = nullptr;
  for (const auto& [data, range] : live_) {
    if (!best || distance(range.allocation) < distance(*best)) best = &range.allocation;
  }
  return best ? *best : Allocation{nullptr, 0, Space::global, "nothing"};
}

}  // namespace rondo::simt
