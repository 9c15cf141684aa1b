// Which pixels of a page become a line, column by column (internal to engine/data/image).
//
// A column of a line is a straight run of points, a pixel apart, on the page: downwards where the
// line is level, across the baseline where there is one. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/image/image_region.h"

namespace rondo::image {

struct LineColumn {
  double x = 0, y = 0;            // its upper end
  double down_x = 0, down_y = 1;  // a pixel further down, of length 1
};

struct LineCut {
  std::vector<LineColumn> columns;  // in reading order
  int32_t height = 0;               // pixels in each
  // How far from its upper end a column may meet the polygon: elsewhere it is another part of it
  // that a curved line has there. Infinite where there is no baseline.
  double least = 0, most = 0;
};

// What of a polygon a column meets: pairs of distances from its upper end between which it is
// inside (even-odd rule).
void cross(const ImageRegion& region, const LineColumn& column, std::vector<double>& crossings);
// The part of a column's line that is on an image; false: none is.
bool clip(const LineColumn& column, ImageInfo image, double& from, double& to);

// Of a region that is neither a whole image nor a box. Throws InputError, naming the image.
LineCut cut_of(const ImageRegion& region, ImageInfo image, const std::string& name);

// Along the baseline, a column for each pixel of its length; y is on the baseline, and `most` as
// far below it as the line may reach, `least` above. The columns go on beyond the baseline's ends
// as far as the polygon does. Throws InputError for one that is far longer than its region.
LineCut columns_along(const ImageRegion& region, const ImageBox& on_image, const std::string& name);

}  // namespace rondo::image
