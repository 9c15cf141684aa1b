// A weight matrix as CPU kernels multiply with it: packed when it is first asked for, and kept.
//
// Where weights do not change, as in recognition, packing them in every call costs as much as the
// products with some ten rows of input. Whoever owns the weights owns one of these for each matrix,
// hands it to kernels beside the matrix, and calls clear() when the matrix has changed. The memory
// is the CPU's, about as much as the matrix in f32, once per form.
//
// Thread safety: get() may be called at once by any number of threads; who comes while the form is
// being packed waits. clear() may not be called beside it, nor while a kernel still reads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>

#include "kernels/base/device.h"

namespace rondo {

class PackedWeights {
 public:
  // What the packed bytes depend on beside the matrix: the packing function and sizes, say. Equal
  // forms have equal bytes.
  using Form = std::array<int64_t, 6>;

  PackedWeights() = default;
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  // `bytes` bytes, 64-byte aligned, that `pack` has filled. They stay until clear(). What `pack`
  // throws comes out, and nothing is kept.
  const void* get(const Form& form, size_t bytes, const std::function<void(void* to)>& pack);
  void clear();
  size_t bytes() const;

 private:
  struct Packed {
    Form form;
    Buffer memory;
  };
  mutable std::mutex mutex_;
  std::list<Packed> packed_;
};

}  // namespace rondo
