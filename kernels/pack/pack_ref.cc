#include <cstring>

#include "kernels/pack/pack.h"

namespace rondo {
namespace {

// Element (t, n, c) of a padded array.
template <class Args>
int64_t padded_index(const Args& a, int64_t t, int64_t n, int64_t c) {
  const int64_t column = a.order ? a.order[n] : n;
  const bool time_major = a.padded_layout == PaddedLayout::time_major;
  return ((time_major ? t : column) * a.padded.dim(1) + (time_major ? column : t)) *
             a.padded.dim(2) +
         c;
}

void copy_element(const TensorView& to, int64_t at, const TensorView& from, int64_t from_at) {
  const auto size = static_cast<int64_t>(size_of(to.dtype));
  std::memcpy(static_cast<char*>(to.data) + at * size,
              static_cast<const char*>(from.data) + from_at * size, static_cast<size_t>(size));
}

}  // namespace

void pack_ref(const Context&, const PackArgs& a) {
  const int64_t cols = a.packed.dim(1);
  for (int32_t n = 0; n < a.layout.extent->sequences; ++n) {
    for (int32_t t = 0; t < a.layout.lengths[n]; ++t) {
      for (int64_t c = 0; c < cols; ++c) {
        copy_element(a.packed, (a.layout.row_offsets[t] + n) * cols + c, a.padded,
                     padded_index(a, t, n, c));
      }
    }
  }
}

void unpack_ref(const Context&, const UnpackArgs& a) {
  const int64_t cols = a.packed.dim(1);
  if (a.padded.numel() > 0) std::memset(a.padded.data, 0, a.padded.bytes());
  for (int32_t n = 0; n < a.layout.extent->sequences; ++n) {
    for (int32_t t = 0; t < a.layout.lengths[n]; ++t) {
      for (int64_t c = 0; c < cols; ++c) {
        copy_element(a.padded, padded_index(a, t, n, c), a.packed,
                     (a.layout.row_offsets[t] + n) * cols + c);
      }
    }
  }
}

}  // namespace rondo
