// The memory of the instrumented simulator: one range of addresses for device and shared memory, so
// that an address says at once whether it is of interest, which bytes belong to an allocation, and
// where its shadow is.
//
// Shadow: for every 4 bytes the last few accesses (as ThreadSanitizer keeps them: Serebryany and
// Iskhodzhanov 2009), enough to find a conflicting one. Pages that are never touched cost nothing.
//
// Thread safety: allocate, deallocate and find may be called by any thread; shadow cells belong to
// whoever runs a grid.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "kernels/simt/sim/observer.h"

namespace rondo::simt {

// One access to some bytes of a cell, by a thread of a block of the grid.
struct Access {
  uint32_t block, clock, site;
  uint16_t thread;
  uint8_t bytes;  // one bit each
  bool write, atomic;
};

inline constexpr size_t cell_bytes = 4;
using Four = uint32_t __attribute__((vector_size(16)));

// The last accesses of a cell, field by field: another one is compared with all of them at once.
struct alignas(64) Cell {
  static constexpr unsigned slots = 4;
  Four clock, block, site, who;

  // `who`: a thread, which bytes (none: the slot is free), and how.
  static constexpr uint32_t thread_bits = 0xffff, bytes_bits = 0xf0000, write_bit = 0x100000,
                            atomic_bit = 0x200000;
  static uint32_t who_of(const Access& a) {
    return a.thread | uint32_t{a.bytes} << 16 | (a.write ? write_bit : 0) |
           (a.atomic ? atomic_bit : 0);
  }
  Access get(unsigned slot) const {
    const uint32_t w = who[slot];
    return {.block = block[slot],
            .clock = clock[slot],
            .site = site[slot],
            .thread = static_cast<uint16_t>(w & thread_bits),
            .bytes = static_cast<uint8_t>((w & bytes_bits) >> 16),
            .write = (w & write_bit) != 0,
            .atomic = (w & atomic_bit) != 0};
  }
  void set(unsigned slot, const Access& a) {
    clock[slot] = a.clock;
    block[slot] = a.block;
    site[slot] = a.site;
    who[slot] = who_of(a);
  }
};
static_assert(sizeof(Cell) == 64);

class Arena {
 public:
  struct Allocation {
    std::byte* data;
    size_t bytes;
    Space space;
    std::string purpose;
  };

  Arena();  // throws Error when the system refuses the address range
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Aligned to 256 bytes; at least `guard` bytes on either side belong to nobody.
  std::byte* allocate(size_t bytes, size_t guard, Space space, const char* purpose);
  void deallocate(std::byte* data) noexcept;

  bool contains(const void* p) const { return offset(p) < arena_bytes; }
  // Whether all `bytes` from p, which the arena contains, belong to allocations.
  bool allocated(const void* p, size_t bytes) const {
    const size_t begin = offset(p), end = begin + bytes;
    for (size_t granule = begin / 8; granule * 8 < end; ++granule) {
      if ((owners_[granule] & 15u) < std::min(end - granule * 8, size_t{8})) return false;
    }
    return true;
  }
  // The space of an allocated byte.
  Space space(const void* p) const { return static_cast<Space>(owners_[offset(p) / 8] >> 4); }
  Cell& cell(const void* p) { return cells_[offset(p) / cell_bytes]; }
  // The allocation nearest to p.
  Allocation find(const void* p) const;

 private:
  static constexpr size_t arena_bytes = size_t{4} << 30;
  struct Range {
    size_t offset, bytes;
    Allocation allocation;
  };
  size_t offset(const void* p) const {
    return static_cast<size_t>(static_cast<const std::byte*>(p) - base_);
  }
  void mark(const Allocation& a, bool alive);

  std::byte* base_ = nullptr;
  uint8_t* owners_ = nullptr;  // per 8 bytes: 0, or the space << 4 | how many are allocated
  Cell* cells_ = nullptr;
  mutable std::mutex mutex_;
  std::map<std::byte*, Range> live_;
  std::map<size_t, size_t> free_;  // offset -> bytes
};

}  // namespace rondo::simt
