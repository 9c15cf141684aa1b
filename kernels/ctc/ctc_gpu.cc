#include "kernels/ctc/ctc_gpu.h"

#include <algorithm>
#include <cmath>

namespace rondo {

CtcGpuWorkspace::CtcGpuWorkspace(const PackedCapacity& capacity, int32_t max_label_length,
                                 bool with_grad)
    : states(2 * int64_t{max_label_length} + 1),
      max_labels(max_label_length),
      block(std::max(1, static_cast<int32_t>(std::sqrt(static_cast<double>(capacity.frames))))),
      block_count((capacity.frames + block - 1) / block),
      rows_(capacity.rows),
      sequences_(capacity.sequences),
      with_grad_(with_grad) {
  columns_per_sequence = with_grad ? int64_t{block_count} + block + 5 : 2;
  if (max_label_length <= ctc_fast_labels) {
    tiling = ctc_tiling(max_label_length);
    emission_stride = (std::max<int64_t>(max_label_length, 1) + 3) / 4 * 4;
    column_words = int64_t{tiling.warps} * 32 * (2 * tiling.pairs + 1);
  }
  place(nullptr);
}

void CtcGpuWorkspace::place(std::byte* memory) {
  bytes = 0;
  const auto part = [&]<class T>(T*& pointer, int64_t count) {
    pointer = memory ? reinterpret_cast<T*>(memory + bytes) : nullptr;
    bytes += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
  };
  part(softmax, rows_);
  part(checkpoints, sequences_ * columns_per_sequence * states);
  if (with_grad_) {
    part(order, sequences_ * max_labels);
    part(piece_begin, sequences_ * (max_labels + 1));
    part(piece_class, sequences_ * max_labels);
    part(pieces, sequences_);
    part(corrected, sequences_ * (max_labels + 1));
  }
  if (max_labels > ctc_fast_labels) return;
  part(state, sequences_);
  part(emission, rows_);
  if (!with_grad_) return;
  part(label_emission, rows_ * emission_stride);
  part(columns, rows_ * column_words);
  part(partial, rows_ * tiling.warps);
  part(posterior, rows_);
}

}  // namespace rondo
