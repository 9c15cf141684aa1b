#include "kernels/ctc/ctc_gpu.h"

#include <algorithm>
#include <cmath>

namespace rondo {

bool ctc_without_stages_accepts(const Context& context, const void* args) {
  if (!args) return true;
  const auto& a = *static_cast<const CtcArgs*>(args);
  if (!ctc_gpu_accepts(context, args) || !a.grad.data) return false;
  const CtcGpuWorkspace work(a.layout.capacity, a.max_label_length, true, a.lattice_limit);
  return !work.in_segments && work.tiling.warps > 1;
}

CtcGpuWorkspace::CtcGpuWorkspace(const PackedCapacity& capacity, int32_t max_label_length,
                                 bool with_grad, size_t lattice_limit, CtcGpuParts parts)
    : states(2 * int64_t{max_label_length} + 1),
      max_labels(max_label_length),
      block(std::max(1, static_cast<int32_t>(std::sqrt(static_cast<double>(capacity.frames))))),
      block_count((capacity.frames + block - 1) / block),
      rows_(capacity.rows),
      sequences_(capacity.sequences),
      with_grad_(with_grad),
      parts_(parts) {
  columns_per_sequence = with_grad ? int64_t{block_count} + block + 5 : 2;
  tiling = ctc_tiling(max_label_length);
  all_warps = tiling.warps * tiling.strips;
  emission_stride = (int64_t{max_label_length} + 3) / 4 * 4 + ctc_emission_end;
  column_words = int64_t{all_warps} * 32 * (2 * tiling.pairs + 1);
  const size_t whole = static_cast<size_t>(rows_ * column_words) * sizeof(float);
  in_segments = tiling.strips > 1 || (with_grad && whole > lattice_limit);
  if (with_grad && !in_segments && tiling.warps > ctc_staged_warps) {
    const int chunk = ctc_chunk_frames(tiling.pairs);
    border_chunks = ((int64_t{capacity.frames} + 1) / 2 + chunk - 1) / chunk;
  }
  if (in_segments) size_segments(with_grad ? (capacity.frames + 1) / 2 : capacity.frames);
  place(nullptr);
}

// `frames` one direction walks before the middle. The ring holds what both of its users may be
// apart: ctc_segments_gpu.h. It grows until the heads take no more than twice its memory.
void CtcGpuWorkspace::size_segments(int32_t frames) {
  CtcSegments& s = segments;
  const int chunk = ctc_chunk_frames(tiling.pairs), apart = 2 * tiling.warps + 1;
  for (s.ring = tiling.warps > 4 ? 256 : 128;; s.ring *= 2) {
    s.chunks = (s.ring / chunk - apart) / 2;
    s.frames = s.chunks * chunk;
    s.count = std::max(1, (frames + s.frames - 1) / s.frames);
    if (!with_grad_ || s.count <= 2 * s.ring) break;
  }
  s.span = s.count;
  if (tiling.strips > 1) {
    // The launches of a direction take (count / span + strips - 1) * (span * chunks + start)
    // chunks; this is where that is least.
    const double start = s.chunks + 2 * tiling.warps;
    const double best = std::sqrt(s.count * start / (s.chunks * (tiling.strips - 1.0)));
    s.span = std::clamp(static_cast<int32_t>(best), 1, s.count);
    // Without a gradient, memory that does not grow with the frames.
    if (!with_grad_) s.span = std::min(s.span, 4);
  }
  s.spans = (s.count + s.span - 1) / s.span;
  heads_per_direction = with_grad_ ? s.count + 1 : 1;
  // Without a gradient a launch reads what the one before it wrote.
  seam_chunks = int64_t{s.chunks} * (with_grad_ ? s.count : 2 * s.span);
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
  if (parts_ == CtcGpuParts::log_space) return;
  part(state, sequences_);
  part(emission, rows_);
  const size_t before = bytes;
  if (in_segments) {
    part(heads, sequences_ * 2 * heads_per_direction * column_words);
    for (CtcSeam*& half : seams) {
      const bool used = with_grad_ || &half == seams;
      part(half, used ? sequences_ * 2 * (tiling.strips - 1) * seam_chunks : 0);
    }
    if (with_grad_) part(ring, sequences_ * 2 * segments.ring * column_words);
  } else if (with_grad_) {
    part(columns, rows_ * column_words);
    part(border, sequences_ * 2 * border_chunks);
  }
  lattice_bytes = bytes - before;
  if (!with_grad_) return;
  part(z_exponent, sequences_);
  part(label_emission, rows_ * emission_stride);
  part(partial, rows_ * all_warps);
  part(posterior, rows_);
}

}  // namespace rondo
