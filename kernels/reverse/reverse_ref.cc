#include "kernels/reverse/reverse_impl.h"

namespace rondo {

void reverse_frames_ref(const Context&, const ReverseFramesArgs& a) {
  check_reverse_frames(a);
  const PackedView& layout = a.layout;
  const auto bytes = static_cast<int64_t>(size_of(a.x.dtype)) * a.x.dim(1);
  const auto* x = static_cast<const char*>(a.x.data);
  auto* y = static_cast<char*>(a.y.data);
  for (int64_t n = 0; n < layout.extent->sequences; ++n) {
    for (int64_t t = 0, last = layout.lengths[n] - 1; t <= last; ++t) {
      for (int64_t i = 0; i < bytes; ++i) {
        y[(layout.row_offsets[t] + n) * bytes + i] =
            x[(layout.row_offsets[last - t] + n) * bytes + i];
      }
    }
  }
}

}  // namespace rondo
