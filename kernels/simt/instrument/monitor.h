// What watches the instrumented simulator; see instrument.h. Behind the functions of tsan_hooks.cc.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/simt/instrument/arena.h"
#include "kernels/simt/instrument/clocks.h"
#include "kernels/simt/instrument/instrument.h"
#include "kernels/simt/sim/observer.h"

namespace rondo::simt {

enum class AccessKind : uint8_t { read, write, atomic_read, atomic_write };

class Monitor final : public Observer {
 public:
  std::byte* allocate(size_t bytes, size_t guard, Space space, const char* purpose) override;
  void deallocate(std::byte* data) noexcept override;
  void begin_grid(const LaunchConfig& config) override;
  void end_grid() noexcept override;
  void begin_gang(Gang& gang) override;
  void end_gang() noexcept override;
  void completed(const Barrier& barrier) override;
  void arrived(const Barrier& barrier) override;
  void waited(const Barrier& barrier) override;
  void met(const Exchange& exchange) override;
  void accessed(const void* p, size_t bytes, bool write) override;
  void copy_issued(const AsyncCopy& copy) override;
  void copy_landed(const AsyncCopy& copy) override;
  void fence() override;
  void relaxed(const void* p, size_t bytes, bool write) override;
  void updated(const void* p, size_t bytes) override;
  void released(const void* p, size_t bytes) override;
  void acquired(const void* p, size_t bytes) override;

  // An access by `self` from the instruction at `site`.
  void access(const void* p, size_t bytes, AccessKind kind, const void* site) {
    if (gang_ == nullptr || !arena_.contains(p)) return;
    const Space space = arena_.space(p);
    count(p, bytes, kind, space);
    check(p, bytes, kind, space, site);
  }

  std::vector<KernelCounters> counters() const;
  void reset_counters();
  void watch(const void* begin, size_t bytes);
  Traffic watched() const { return watched_; }

 private:
  struct Waits {  // of one block
    uint64_t barriers = 0, cluster = 0;
    std::vector<uint64_t> warps;
  };

  void count(const void* p, size_t bytes, AccessKind kind, Space space);
  void check(const void* p, size_t bytes, AccessKind kind, Space space, const void* site);
  void check_cell(const std::byte* p, const Access& now, Space space,
                  const HappensBefore::View& me);
  void fail(const std::string& what);
  void report_race(const std::byte* p, const Access& now, const Access& before);
  void report_outside(const void* p, size_t bytes, AccessKind kind, const void* site);
  std::string name_thread(uint32_t block, uint16_t thread) const;

  mutable std::mutex mutex_;  // held while a grid runs
  Arena arena_;
  HappensBefore order_;
  Gang* gang_ = nullptr;
  uint64_t block_threads_ = 0;
  std::map<std::string, size_t> index_;
  std::vector<KernelCounters> counters_;
  KernelCounters* kernel_ = nullptr;
  std::vector<Waits> waits_;
  KernelCounters most_;  // waits, of the launch so far
  const std::byte *watch_begin_ = nullptr, *watch_end_ = nullptr;
  Traffic watched_;
};

// Null before instrument().
extern constinit Monitor* monitor;

}  // namespace rondo::simt
