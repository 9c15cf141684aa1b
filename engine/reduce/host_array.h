// A flat f32 array of a device where the host can work on it: the array itself on a cpu, otherwise
// a copy, which goes there and back when it is asked to.
//
// Ranks whose strategy works on the host (averages, sums along a tree) use it, so that they train
// on any device. The array is borrowed. One thread at a time.
#pragma once

#include <span>

#include "kernels/base/device.h"
#include "kernels/base/tensor.h"

namespace rondo {

class HostArray {
 public:
  HostArray() = default;
  // `purpose` appears when memory is short.
  HostArray(const TensorView& array, Device& device, const char* purpose);

  std::span<float> values() const;
  size_t size() const { return static_cast<size_t>(array_.numel()); }
  // values() become the array's, once `stream` has come there; the array becomes values(). Both
  // wait for the stream.
  void fetch(Stream& stream);
  void store(Stream& stream);

 private:
  TensorView array_;
  Device* device_ = nullptr;
  StagingBuffer copy_;  // none on a cpu
};

}  // namespace rondo
