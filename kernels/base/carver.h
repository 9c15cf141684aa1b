// Hands out 64-byte aligned pieces of a workspace, one after the other; without one it only adds up
// what they need, so that one function both measures and places.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/arithmetic.h"

namespace rondo {

class Carver {
 public:
  explicit Carver(void* workspace) : base_(static_cast<std::byte*>(workspace)) {}

  void* take(size_t bytes) { return take(static_cast<int64_t>(bytes), 1); }
  template <class T = void>
  T* take(int64_t elements, size_t element_size) {
    const size_t at = used_;
    used_ += round_up(static_cast<size_t>(elements) * element_size, size_t{64});
    return base_ ? reinterpret_cast<T*>(base_ + at) : nullptr;
  }
  template <class T>
  void take(T*& piece, int64_t count) {
    piece = take<T>(count, sizeof(T));
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace rondo
