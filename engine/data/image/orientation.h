// How the rows of an image file have to be turned to be seen as viewers show them: the orientation
// that cameras and scanners note, in EXIF data (JPEG, PNG) and in TIFF, tag 274, as EXIF 2.32 and
// TIFF 6.0 define it.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/data/image/grey_image.h"

namespace rondo {

// The numbers of the standard: on which side of the image that is shown the file's first row is,
// and its first column.
enum class Orientation : uint8_t {
  top_left = 1,  // as it is
  top_right,
  bottom_right,
  bottom_left,
  left_top,  // from here on rows are columns
  right_top,
  right_bottom,
  left_bottom
};

inline bool swaps_sides(Orientation o) { return o >= Orientation::left_top; }

// Of the file, as it is stored, and as it is shown: either from the other.
inline ImageInfo with_sides_of(ImageInfo info, Orientation o) {
  return swaps_sides(o) ? ImageInfo{info.height, info.width, info.orientation} : info;
}

// That which turns a shown image back.
inline Orientation inverse(Orientation o) {
  if (o == Orientation::right_top) return Orientation::left_bottom;
  return o == Orientation::left_bottom ? Orientation::right_top : o;
}

// Where a point of the stored image, of this size, is shown. Edges, not the middles of pixels:
// from 0 to the width.
struct ShownPoint {
  double x = 0, y = 0;
};
ShownPoint shown_at(double x, double y, double stored_width, double stored_height, Orientation o);

GreyImage shown(GreyImage stored, Orientation o);

namespace image {

// Of a number in a file; what is none of the eight is as it is.
Orientation orientation_of(uint32_t number);
// Of EXIF data, with or without the "Exif" before them; what cannot be read says nothing.
Orientation orientation_of(std::span<const std::byte> exif);

}  // namespace image
}  // namespace rondo
