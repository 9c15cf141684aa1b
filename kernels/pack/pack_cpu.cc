#include <cstring>

#include "kernels/base/cpu/parallel.h"
#include "kernels/pack/pack.h"

namespace rondo {
namespace {

// One frame of one sequence at a time: `row_bytes` bytes.
struct Padded {
  char* data;
  int64_t frame_stride, sequence_stride, frames;
  const int32_t* order;
  size_t row_bytes;

  char* at(int64_t t, int64_t n) const {
    return data + t * frame_stride + (order ? order[n] : n) * sequence_stride;
  }
};

template <class Args>
Padded padded_rows(const Args& a) {
  RONDO_CHECK(a.padded.rank == 3 && a.padded.dtype == a.packed.dtype, "padded has rank ",
              a.padded.rank, " and type ", name_of(a.padded.dtype));
  const bool time_major = a.padded_layout == PaddedLayout::time_major;
  const int64_t frames = a.padded.dim(time_major ? 0 : 1);
  const int64_t sequences = a.padded.dim(time_major ? 1 : 0);
  RONDO_CHECK(sequences == a.layout.capacity.sequences && frames >= a.layout.extent->frames,
              "padded holds ", frames, " frames of ", sequences, " sequences, the batch ",
              a.layout.extent->frames, " of ", a.layout.capacity.sequences);
  const auto row = a.packed.dim(1) * static_cast<int64_t>(size_of(a.packed.dtype));
  return {static_cast<char*>(a.padded.data),
          time_major ? sequences * row : row,
          time_major ? row : frames * row,
          frames,
          a.order,
          static_cast<size_t>(row)};
}

int64_t grain(size_t row_bytes) { return 65536 / (static_cast<int64_t>(row_bytes) + 1) + 1; }

}  // namespace

void pack_cpu(const Context& context, const PackArgs& a) {
  const Padded padded = padded_rows(a);
  char* packed = static_cast<char*>(a.packed.data);
  const PackedView& layout = a.layout;
  context.pool->for_range(
      layout.extent->rows, grain(padded.row_bytes), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int32_t t = layout.row_frame[r];
          std::memcpy(packed + r * static_cast<int64_t>(padded.row_bytes),
                      padded.at(t, r - layout.row_offsets[t]), padded.row_bytes);
        }
      });
}

void unpack_cpu(const Context& context, const UnpackArgs& a) {
  const Padded padded = padded_rows(a);
  const char* packed = static_cast<const char*>(a.packed.data);
  const PackedView& layout = a.layout;
  const int64_t sequences = layout.capacity.sequences;
  context.pool->for_range(
      padded.frames * sequences, grain(padded.row_bytes), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t t = i / sequences, n = i % sequences;
          char* to = padded.at(t, n);
          if (n < layout.extent->sequences && t < layout.lengths[n]) {
            const int64_t row = layout.row_offsets[t] + n;
            std::memcpy(to, packed + row * static_cast<int64_t>(padded.row_bytes),
                        padded.row_bytes);
          } else {
            std::memset(to, 0, padded.row_bytes);
          }
        }
      });
}

}  // namespace rondo
