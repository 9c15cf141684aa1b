// An allocator that gives memory back to a pool which lives as long as anything made from it: for
// operations that come and go by the thousand, whose handles may outlive the transport.
//
// Thread safety: any thread may allocate and release.
#pragma once

#include <memory>
#include <memory_resource>
#include <utility>

namespace rondo {

using MemoryPool = std::pmr::synchronized_pool_resource;

template <class T>
class RecyclingAllocator {
 public:
  using value_type = T;

  explicit RecyclingAllocator(std::shared_ptr<MemoryPool> pool) : pool_(std::move(pool)) {}
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>& other) : pool_(other.pool()) {}

  T* allocate(size_t n) { return static_cast<T*>(pool_->allocate(n * sizeof(T), alignof(T))); }
  void deallocate(T* p, size_t n) { pool_->deallocate(p, n * sizeof(T), alignof(T)); }

  const std::shared_ptr<MemoryPool>& pool() const { return pool_; }
  bool operator==(const RecyclingAllocator& other) const { return pool_ == other.pool_; }

 private:
  std::shared_ptr<MemoryPool> pool_;
};

}  // namespace rondo
