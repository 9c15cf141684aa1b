// A part of an image that is read by itself: a text line on the image of its page, by the polygon
// around it, and where that is known by the baseline that its letters stand on.
//
// Coordinates are pixels from the image's top left corner, x to the right and y downwards; a pixel
// belongs to a polygon if its middle lies inside (even-odd rule). Corners may lie beyond the image:
// a region is what of it is on the image.
//
// Errors: InputError that names the image. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/image/grey_image.h"

namespace rondo {

inline constexpr size_t most_region_corners = 4096;
inline constexpr size_t most_baseline_points = 2048;
inline constexpr int32_t greatest_corner = 1 << 24;  // of a coordinate, either way
inline constexpr int64_t most_line_pixels = int64_t{1} << 26;

namespace image {
struct LineCut;
}

struct ImagePoint {
  int32_t x = 0, y = 0;

  bool operator==(const ImagePoint&) const = default;
};

struct ImageBox {
  int32_t left = 0, top = 0, width = 0, height = 0;
};

struct ImageRegion {
  std::vector<ImagePoint> corners;  // none: the whole image
  // A polyline of two different points or more, as long as the box around the region at most twice
  // round; none: not known. Only of a region that has corners. See in_reading_order().
  std::vector<ImagePoint> baseline = {};

  static ImageRegion of_box(const ImageBox& box);

  bool is_whole() const { return corners.empty(); }
  // Around the corners, wherever they lie.
  ImageBox bounds() const;
  // Whether the corners are those of of_box(bounds()): all pixels in there belong to it.
  bool is_box() const;

  bool operator==(const ImageRegion&) const = default;
};

// Whether anything of the box around a region is on an image of this size.
bool is_on(const ImageRegion& region, ImageInfo image);
// The box around what of a region is on an image of this size. Throws InputError where that is
// nothing.
ImageBox box_on(const ImageRegion& region, ImageInfo image, const std::string& name);

// A baseline is drawn the way that its line is read. Drawn to the left, it is turned round: people
// and programs draw those of Hebrew and Arabic either way, and no page has lines that stand on
// their heads. What runs up or down the page is text that was turned, and stays.
std::vector<ImagePoint> in_reading_order(std::vector<ImagePoint> baseline);
// Whether two of its points are different.
bool has_length(const std::vector<ImagePoint>& baseline);

// Where the columns of a line, as cut_out() has them, lie on the image. Throws InputError as
// cut_out() does.
class LinePlaces {
 public:
  LinePlaces(const ImageRegion& region, ImageInfo image, const std::string& name);
  ~LinePlaces();

  // What columns are counted by: pixels from the image's left edge, or where there is a baseline
  // from the beginning of the line, along it.
  double first() const { return first_; }
  double end() const { return end_; }
  // The box around what of the region lies between two columns (within box_on(), at least one pixel
  // wide and high): around a word of the line, say.
  ImageBox between(double left, double right) const;

 private:
  ImageBox between_columns(int32_t from, int32_t to) const;
  ImageBox along_baseline(int32_t from, int32_t to) const;

  ImageRegion region_;
  ImageInfo image_;
  ImageBox box_;                               // on the image
  std::unique_ptr<const image::LineCut> cut_;  // along a baseline
  double first_ = 0, end_ = 0;
};

// What of the region is on the image, level.
// - Along a baseline: a column for each pixel of its length, across it; between its corners the
//   columns turn gradually, over the thickness of the line. Pixels are interpolated (bilinear).
//   Beyond its ends the line goes on straight as far as the region does.
// - Of a polygon without one: where it slants, its columns are shifted up or down by whole pixels,
//   so that the straight line through its middle (least squares) becomes level; a region of less
//   than three times its height in width is left as it is. The columns are those of box_on().
// Pixels that do not belong to the polygon, of neighbouring lines mostly, become paper: the median
// grey of what does, within the height to the left and right. Throws InputError where no pixel
// belongs to it, for a baseline that is far longer than its region, and where the line would have
// more than `most_line_pixels`.
GreyImage cut_out(const GreyImage& image, const ImageRegion& region, const std::string& name);

// What a reader says of the region of a file: its size, its pixels. The decoded image of the whole
// page is the reader's to keep for the next of its regions. Throws InputError.
ImageInfo region_info(const ImageReader& reader, const FilePart& file, const ImageRegion& region);
GreyImage read_region(const ImageReader& reader, const FilePart& file, const ImageRegion& region);

}  // namespace rondo
