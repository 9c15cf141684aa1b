#include "kernels/base/cpu/packed_weights.h"

#include <utility>

#include "kernels/base/error.h"

namespace rondo {

const void* PackedWeights::get(const Form& form, size_t bytes,
                               const std::function<void(void* to)>& pack) {
  const std::lock_guard lock(mutex_);
  for (const Packed& p : packed_) {
    if (p.form != form) continue;
    RONDO_CHECK(p.memory.bytes() == bytes, "packed weights of ", p.memory.bytes(),
                " bytes, asked for ", bytes);
    return p.memory.data();
  }
  Packed made{form, Buffer(cpu_device(), bytes, "packed weights")};
  pack(made.memory.data());
  return packed_.emplace_back(std::move(made)).memory.data();
}

void PackedWeights::clear() {
  const std::lock_guard lock(mutex_);
  packed_.clear();
}

size_t PackedWeights::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const Packed& p : packed_) sum += p.memory.bytes();
  return sum;
}

}  // namespace rondo
