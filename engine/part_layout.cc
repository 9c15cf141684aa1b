#include "engine/part_layout.h"

#include "kernels/base/device.h"

namespace rondo {

void copy_blocks(const PartLayout& layout, const Context& context, int rank, void* flat, void* part,
                 BlockCopy direction) {
  constexpr size_t block = PartLayout::block_elements * sizeof(float);
  const auto copy = [&](int64_t at, int64_t place, size_t bytes, size_t rows) {
    std::byte* const here = static_cast<std::byte*>(flat) + at * int64_t{sizeof(float)};
    std::byte* const there = static_cast<std::byte*>(part) + place * int64_t{sizeof(float)};
    const size_t stride = block * static_cast<size_t>(layout.ranks());
    context.device->copy_rows(*context.stream,
                              direction == BlockCopy::pack
                                  ? Device::Rows{there, block, here, stride, bytes, rows}
                                  : Device::Rows{here, stride, there, block, bytes, rows});
  };
  int64_t first = -1;
  size_t whole = 0;  // blocks; the last one of the array may be cut
  layout.for_blocks(rank, [&](int64_t at, int64_t place, int64_t n) {
    if (n == PartLayout::block_elements) {
      if (whole++ == 0) first = at;
    } else {
      copy(at, place, static_cast<size_t>(n) * sizeof(float), 1);
    }
  });
  if (whole > 0) copy(first, 0, block, whole);
}

}  // namespace rondo
