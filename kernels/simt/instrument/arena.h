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

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "kernels/simt/observer.h"

namespace rondo::simt {

// One access to some bytes of a cell, by a thread of a block of the grid.
struct Access {
  uint32_t block, clock, site;
  uint16_t thread;
  uint8_t bytes : 4;  // one bit each; 0: no access
  bool write : 1, atomic : 1;
};
static_assert(sizeof(Access) == 16);
inline constexpr size_t cell_bytes = 4;
struct Cell {
  Access slots[4];
};

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
  bool allocated(const void* p, size_t bytes) const;
  // Of an allocated byte.
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
