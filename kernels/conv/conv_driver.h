// What the drivers of the CPU kernels share: conv_direct.cc, and conv_in_place.cc for depthwise
// convolutions. Of kernels/conv alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <type_traits>

#include "kernels/base/carver.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/op.h"
#include "kernels/conv/conv_impl.h"

namespace rondo {

// What is read, or written, from the first channel of a group on.
template <class Pointer>
Pointer conv_from_channel(Pointer p, int64_t channel, DType dtype) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char, char>;
  return p ? static_cast<Byte*>(p) + static_cast<size_t>(channel) * size_of(dtype) : nullptr;
}
inline ConvSource conv_from_channel(ConvSource source, int64_t channel, DType dtype) {
  for (const void** array : {&source.rows, &source.before, &source.after})
    *array = conv_from_channel(*array, channel, dtype);
  return source;
}

// The frames of a convolution's targets by sequence and place: frame j + shift(n) of sequence n at
// place j, which are those of its own or those of a halo.
class ConvFrames {
 public:
  explicit ConvFrames(const ConvTargets& frames) : frames_(frames) {}
  int64_t sequences() const {
    return own() ? frames_.layout.extent->sequences : frames_.layout.capacity.sequences;
  }
  int64_t length(int64_t n) const {
    return own() ? frames_.layout.lengths[n] : frames_.halo_frames;
  }
  // Whether the batch has the sequence.
  bool exists(int64_t n) const { return n < frames_.layout.extent->sequences; }
  int64_t shift(int64_t n) const {
    return frames_.part == ConvPart::before  ? -frames_.halo_frames
           : frames_.part == ConvPart::after ? frames_.layout.lengths[n]
                                             : 0;
  }
  // The row at place j.
  int64_t row(int64_t n, int64_t j) const {
    const PackedView& layout = frames_.layout;
    return (own() ? layout.row_offsets[j] : j * layout.capacity.sequences) + n;
  }

 private:
  bool own() const { return frames_.part == ConvPart::frames; }

  ConvTargets frames_;
};

// The workspace: what all threads share, then a piece for each.
template <class Thread, class... Args>
size_t conv_thread_bytes(const Args&... args) {
  Carver carver(nullptr);
  const Thread thread(carver, args...);
  return carver.used();
}

// body(thread, i) for i in [0, n), handed out to whoever is free; each worker makes its Thread of
// its own piece of memory.
template <class Thread, class F, class... Args>
void conv_for_items(const Context& context, char* memory, int64_t n, F body, const Args&... args) {
  const size_t bytes = conv_thread_bytes<Thread>(args...);
  std::atomic<int64_t> next{0};
  context.pool->run(
      [&](int worker) {
        Carver carver(memory + static_cast<size_t>(worker) * bytes);
        Thread thread(carver, args...);
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) body(thread, i);
      },
      static_cast<int>(std::clamp<int64_t>(n, 1, context.pool->size())));
}

// ---- depthwise: each pixel out of its neighbours where they lie (conv_in_place.cc) ----

size_t conv_depthwise_workspace(const Context& context, const ConvGather& gather);
// `workspace`: checked.
void conv_depthwise_gather(const ConvKernel& kernel, const Context& context,
                           const ConvGather& gather, const ConvSource& source, DType dtype,
                           const TensorView& w, const TensorView& bias,
                           std::span<const ConvTarget> targets, const TensorView& workspace);

}  // namespace rondo
