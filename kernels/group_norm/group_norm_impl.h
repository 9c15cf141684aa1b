// The variants of group normalisation and what they share, for their folder alone.
#pragma once

#include "kernels/base/carver.h"
#include "kernels/base/host_device.h"
#include "kernels/base/variants.h"
#include "kernels/group_norm/group_norm.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
RONDO_DECLARE_KERNEL(GroupNormArgs, group_norm)
RONDO_DECLARE_KERNEL(GroupNormGradArgs, group_norm_grad)
RONDO_DECLARE_GPU(group_norm_gpu, GroupNormArgs);
RONDO_DECLARE_GPU(group_norm_grad_gpu, GroupNormGradArgs);

// Check what group_norm.h says of the arguments that the host can see, but for the workspace.
void check_group_norm(const GroupNormArgs& args);
void check_group_norm(const GroupNormGradArgs& args);

// ---- blocks: up to 64 neighbouring frames of a sequence, numbered like the rows of a packed batch

inline constexpr int32_t group_norm_frames = 64;

struct GroupNormBlock {
  int64_t n, first, count;  // frames first to first + count - 1 of sequence n
};

// Block i; false: there are not so many.
[[gnu::always_inline]] RONDO_HOST_DEVICE inline bool group_norm_block(const PackedView& layout,
                                                                      int64_t i,
                                                                      GroupNormBlock* block) {
  for (int32_t first = 0; first < layout.extent->frames; first += group_norm_frames) {
    const int32_t sequences = layout.batch_sizes[first];
    if (i < sequences) {
      const int32_t left = layout.lengths[i] - first;
      *block = {i, first, left < group_norm_frames ? left : group_norm_frames};
      return true;
    }
    i -= sequences;
  }
  return false;
}

// f(number of the block, its frames) for those of sequence n, in order.
template <class F>
[[gnu::always_inline]] RONDO_HOST_DEVICE inline void for_group_norm_blocks(const PackedView& layout,
                                                                           int64_t n, F f) {
  int64_t before = 0;
  for (int32_t first = 0; first < layout.lengths[n]; first += group_norm_frames) {
    const int32_t left = layout.lengths[n] - first;
    f(before + n, left < group_norm_frames ? left : group_norm_frames);
    before += layout.batch_sizes[first];
  }
}

// At most so many blocks.
[[gnu::always_inline]] inline int64_t group_norm_blocks(const PackedCapacity& capacity) {
  return capacity.rows / group_norm_frames + capacity.sequences;
}

// As many as a channel's gradient takes.
inline constexpr int64_t group_norm_channel_numbers = 4;

// The workspace, of CPUs and GPUs alike.
struct GroupNormSpace {
  double* parts = nullptr;     // [blocks, 2, channels]: sums of a block
  double* sums = nullptr;      // [sequences, 2, channels]: of dy and of dy * xhat
  float* of_groups = nullptr;  // [sequences, groups, 2]: what the last pass needs of each
  // Of CPUs alone.
  float* about = nullptr;        // [blocks, channels]: near the means
  float* of_channels = nullptr;  // [sequences, channel numbers, channels]: for the last pass
  [[gnu::always_inline]] GroupNormSpace(Carver& carver, const GroupNormDims& d,
                                        const PackedCapacity& capacity) {
    carver.take(parts, group_norm_blocks(capacity) * 2 * d.channels);
    carver.take(sums, capacity.sequences * 2 * d.channels);
    carver.take(of_groups, int64_t{capacity.sequences} * d.groups * 2);
    carver.take(about, group_norm_blocks(capacity) * d.channels);
    carver.take(of_channels, capacity.sequences * group_norm_channel_numbers * d.channels);
  }
};

// Checks its size.
GroupNormSpace group_norm_space(const TensorView& workspace, const GroupNormDims& dims,
                                const PackedCapacity& capacity);

}  // namespace rondo
