// A part of an image that is read by itself: a text line on the image of its page, by the polygon
// around it.
//
// Coordinates are pixels from the image's top left corner, x to the right and y downwards; a pixel
// belongs to a polygon if its middle lies inside (even-odd rule). Corners may lie beyond the image:
// a region is what of it is on the image.
//
// Errors: InputError that names the image. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/image/grey_image.h"

namespace rondo {

inline constexpr size_t most_region_corners = 4096;
inline constexpr int32_t greatest_corner = 1 << 24;  // of a coordinate, either way

struct ImagePoint {
  int32_t x = 0, y = 0;

  bool operator==(const ImagePoint&) const = default;
};

struct ImageBox {
  int32_t left = 0, top = 0, width = 0, height = 0;
};

struct ImageRegion {
  std::vector<ImagePoint> corners;  // none: the whole image

  static ImageRegion of_box(const ImageBox& box);

  bool is_whole() const { return corners.empty(); }
  // Around the corners, wherever they lie.
  ImageBox bounds() const;
  // Whether it is of_box(bounds()): all pixels in there belong to it.
  bool is_box() const;

  bool operator==(const ImageRegion&) const = default;
};

// Whether anything of the box around a region is on an image of this size.
bool is_on(const ImageRegion& region, ImageInfo image);
// The box around what of a region is on an image of this size. Throws InputError where that is
// nothing.
ImageBox box_on(const ImageRegion& region, ImageInfo image, const std::string& name);

// The box around what of a region lies between two columns of an image of this size (within
// box_on(), at least one pixel wide): around a word of a line, say.
ImageBox box_between(const ImageRegion& region, ImageInfo image, double left, double right,
                     const std::string& name);

// What of the region is on the image, level. Where a line of text slants, its columns are shifted
// up or down by whole pixels, so that the straight line through the polygon's middle (least
// squares) becomes level; a region of less than three times its height in width is left as it is.
// The columns are those of box_on(). Pixels that do not belong to the polygon, of neighbouring
// lines mostly, become paper: the median grey of what does, within the height to the left and
// right. Throws InputError where no pixel belongs to it.
GreyImage cut_out(const GreyImage& image, const ImageRegion& region, const std::string& name);

// What a reader says of the region of a file: its size, its pixels. The decoded image of the whole
// page is the reader's to keep for the next of its regions. Throws InputError.
ImageInfo region_info(const ImageReader& reader, const FilePart& file, const ImageRegion& region);
GreyImage read_region(const ImageReader& reader, const FilePart& file, const ImageRegion& region);

}  // namespace rondo
