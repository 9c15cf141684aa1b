#include "kernels/reverse/reverse.h"

#include <cstring>

#include "kernels/base/check_view.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/reverse/reverse_impl.h"

namespace rondo {

void check_reverse_frames(const ReverseFramesArgs& a) {
  check_matrix("reverse_frames", "x", a.x, a.x.dtype, a.layout.capacity.rows, a.x.dim(1));
  check_like("reverse_frames", "y", a.y, a.x);
}

void reverse_frames_cpu(const Context& context, const ReverseFramesArgs& a) {
  check_reverse_frames(a);
  const size_t bytes = static_cast<size_t>(a.x.dim(1)) * size_of(a.x.dtype);
  const auto* x = static_cast<const char*>(a.x.data);
  auto* y = static_cast<char*>(a.y.data);
  const auto grain = static_cast<int64_t>(32768 / (bytes + 1) + 1);
  context.pool->for_range(a.layout.extent->rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto from = static_cast<size_t>(reversed_row(a.layout, r));
      std::memcpy(y + static_cast<size_t>(r) * bytes, x + from * bytes, bytes);
    }
  });
}

std::span<const Variant> reverse_frames_variants() {
  static constexpr Variant variants[] = {
      variant<ReverseFramesArgs, reverse_frames_ref>("ref", Backend::ref),
      variant<ReverseFramesArgs, reverse_frames_cpu>("generic", Backend::cpu),
      RONDO_GPU_VARIANTS(ReverseFramesArgs, reverse_frames_gpu, "portable")};
  return variants;
}

}  // namespace rondo
