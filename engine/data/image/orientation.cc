#include "engine/data/image/orientation.h"

#include <cstddef>
#include <cstring>
#include <utility>

namespace rondo {
namespace image {
namespace {

// Numbers of EXIF data, which are a TIFF file's, low or high byte first; 0 beyond their end.
class Numbers {
 public:
  explicit Numbers(std::span<const std::byte> bytes) : bytes_(bytes) {
    is_low_first_ = !bytes.empty() && bytes[0] == std::byte{'I'};
  }
  uint32_t at(size_t place, size_t count) const {
    if (place > bytes_.size() || bytes_.size() - place < count) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t next = is_low_first_ ? count - 1 - i : i;
      value = value << 8 | std::to_integer<uint32_t>(bytes_[place + next]);
    }
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool is_low_first_ = false;
};

}  // namespace

Orientation orientation_of(uint32_t number) {
  return number >= 1 && number <= 8 ? static_cast<Orientation>(number) : Orientation::top_left;
}

Orientation orientation_of(std::span<const std::byte> exif) {
  constexpr char name[] = "Exif\0";  // and a zero or, in some files, 255
  if (exif.size() > sizeof name && std::memcmp(exif.data(), name, 5) == 0)
    exif = exif.subspan(sizeof name);
  const bool is_tiff = exif.size() >= 8 && (std::memcmp(exif.data(), "II*\0", 4) == 0 ||
                                            std::memcmp(exif.data(), "MM\0*", 4) == 0);
  if (!is_tiff) return Orientation::top_left;
  const Numbers numbers(exif);
  constexpr size_t entry_bytes = 12;
  constexpr uint32_t orientation_tag = 274, short_type = 3;
  const size_t directory = numbers.at(4, 4);
  const size_t entries = numbers.at(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * entry_bytes;
    if (numbers.at(entry, 2) != orientation_tag) continue;
    return orientation_of(numbers.at(entry + 8, numbers.at(entry + 2, 2) == short_type ? 2 : 4));
  }
  return Orientation::top_left;
}

}  // namespace image

ShownPoint shown_at(double x, double y, double stored_width, double stored_height, Orientation o) {
  const double from_right = stored_width - x, from_bottom = stored_height - y;
  switch (o) {
    case Orientation::top_left:
      break;
    case Orientation::top_right:
      return {from_right, y};
    case Orientation::bottom_right:
      return {from_right, from_bottom};
    case Orientation::bottom_left:
      return {x, from_bottom};
    case Orientation::left_top:
      return {y, x};
    case Orientation::right_top:
      return {from_bottom, x};
    case Orientation::right_bottom:
      return {from_bottom, from_right};
    case Orientation::left_bottom:
      return {y, from_right};
  }
  return {x, y};
}

GreyImage shown(GreyImage stored, Orientation o) {
  if (o == Orientation::top_left) return stored;
  const ImageInfo size = with_sides_of(stored.info(), o);
  GreyImage out(size.width, size.height);
  for (int32_t y = 0; y < stored.height; ++y) {
    for (int32_t x = 0; x < stored.width; ++x) {
      // Of the pixel's middle: exact, for halves are.
      const ShownPoint at = shown_at(x + 0.5, y + 0.5, stored.width, stored.height, o);
      out.row(static_cast<int32_t>(at.y))[static_cast<int32_t>(at.x)] = stored.row(y)[x];
    }
  }
  return out;
}

}  // namespace rondo
