#include "engine/data/image/image_region.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// What a polygon has of the column of pixels at x: pairs of y between which it is inside. Corners
// are integers, so no line through the pixels' middles meets one.
void cross(const ImageRegion& region, int32_t column, std::vector<double>& crossings) {
  const std::vector<ImagePoint>& corners = region.corners;
  const double x = column + 0.5;
  crossings.clear();
  for (size_t i = 0; i < corners.size(); ++i) {
    const ImagePoint &a = corners[i], &b = corners[i + 1 < corners.size() ? i + 1 : 0];
    if ((a.x < x) == (b.x < x)) continue;
    crossings.push_back(a.y + (x - a.x) * (b.y - a.y) / (b.x - a.x));
  }
  std::sort(crossings.begin(), crossings.end());
}

// The straight line y = at_0 + slope * x through these points, by least squares.
struct Slope {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;

  void add(double px, double py) { n += 1, x += px, y += py, xx += px * px, xy += px * py; }
  double value() const {
    const double spread = n * xx - x * x;
    return spread > 0 ? (n * xy - x * y) / spread : 0;
  }
};

// Which pixels of an image become a line.
struct Cut {
  ImageBox box;               // on the image
  std::vector<int32_t> tops;  // of each column: which row of the image is the line's first
  int32_t height = 0;         // of the line
};

Cut cut_of(const ImageRegion& region, ImageInfo image, const std::string& name) {
  Cut cut{box_on(region, image, name), {}, 0};
  const ImageBox& box = cut.box;
  cut.tops.assign(static_cast<size_t>(box.width), box.top);
  cut.height = box.height;
  if (region.is_whole() || region.is_box()) return cut;
  // The highest and the lowest of each column on the image.
  constexpr double none = -1;
  std::vector<double> high(cut.tops.size(), none), low(cut.tops.size(), none);
  std::vector<double> crossings;
  Slope slope;
  double thickness = 0;
  for (size_t i = 0; i < high.size(); ++i) {
    cross(region, box.left + static_cast<int32_t>(i), crossings);
    if (crossings.empty()) continue;
    const double top = std::max(crossings.front(), 0.0);
    const double bottom = std::min<double>(crossings.back(), image.height);
    if (!(top < bottom)) continue;
    high[i] = top, low[i] = bottom;
    slope.add(static_cast<double>(i), (top + bottom) / 2);
    thickness += bottom - top;
  }
  if (slope.n == 0) return cut;
  thickness /= slope.n;
  const double tilt = box.width >= 3 * thickness ? slope.value() : 0;
  const auto shift = [&](size_t i) {
    return static_cast<int32_t>(std::lround(tilt * static_cast<double>(i)));
  };
  int32_t first = std::numeric_limits<int32_t>::max(), end = std::numeric_limits<int32_t>::min();
  for (size_t i = 0; i < high.size(); ++i) {
    if (high[i] == none) continue;
    first = std::min(first, static_cast<int32_t>(std::floor(high[i])) - shift(i));
    end = std::max(end, static_cast<int32_t>(std::ceil(low[i])) - shift(i));
  }
  for (size_t i = 0; i < cut.tops.size(); ++i) cut.tops[i] = first + shift(i);
  cut.height = end - first;
  return cut;
}

// Copies a column's pixels that belong to the region, and marks them in the mask.
void take_column(const GreyImage& image, const Cut& cut, size_t column,
                 const std::vector<double>& crossings, GreyImage& part,
                 std::vector<uint8_t>& mask) {
  const int32_t top = cut.tops[column];
  const auto row = [&](double y) {
    const double greatest = std::min(top + cut.height, image.height);
    return static_cast<int32_t>(
        std::clamp(std::ceil(y - 0.5), std::max<double>(top, 0), std::max<double>(greatest, 0)));
  };
  const auto x = static_cast<size_t>(cut.box.left) + column;
  for (size_t i = 0; i + 1 < crossings.size(); i += 2) {
    for (int32_t y = row(crossings[i]); y < row(crossings[i + 1]); ++y) {
      part.row(y - top)[column] = image.row(y)[x];
      mask[static_cast<size_t>(y - top) * static_cast<size_t>(part.width) + column] = 1;
    }
  }
}

// Greys with the number of pixels of each.
struct Histogram {
  std::array<int64_t, 256> counts{};
  int64_t all = 0;

  uint8_t median() const {
    int64_t below = 0;
    for (size_t grey = 0; grey < counts.size(); ++grey) {
      below += counts[grey];
      if (2 * below >= all) return static_cast<uint8_t>(grey);
    }
    return 255;
  }
};

// The grey of the paper at each column; where no pixel is near, that of the last that had some.
std::vector<uint8_t> paper_of(const GreyImage& part, const std::vector<uint8_t>& mask) {
  const auto width = static_cast<size_t>(part.width);
  Histogram near, everywhere;
  const auto count = [&](int64_t x, int64_t by, Histogram& h) {
    if (x < 0 || x >= part.width) return;
    for (size_t at = static_cast<size_t>(x); at < part.pixels.size(); at += width) {
      if (!mask[at]) continue;
      h.counts[part.pixels[at]] += by;
      h.all += by;
    }
  };
  for (int64_t x = 0; x < part.width; ++x) count(x, 1, everywhere);
  const int64_t reach = part.height;
  for (int64_t x = 0; x < std::min<int64_t>(reach, part.width); ++x) count(x, 1, near);
  std::vector<uint8_t> paper(width, everywhere.median());
  for (int64_t x = 0; x < part.width; ++x) {
    count(x + reach, 1, near);
    count(x - reach - 1, -1, near);
    const auto at = static_cast<size_t>(x);
    paper[at] = near.all > 0 ? near.median() : paper[at > 0 ? at - 1 : 0];
  }
  return paper;
}

}  // namespace

ImageRegion ImageRegion::of_box(const ImageBox& b) {
  return {{{b.left, b.top},
           {b.left + b.width, b.top},
           {b.left + b.width, b.top + b.height},
           {b.left, b.top + b.height}}};
}

ImageBox ImageRegion::bounds() const {
  if (corners.empty()) return {};
  const auto by_x = [](const ImagePoint& a, const ImagePoint& b) { return a.x < b.x; };
  const auto by_y = [](const ImagePoint& a, const ImagePoint& b) { return a.y < b.y; };
  const auto [left, right] = std::minmax_element(corners.begin(), corners.end(), by_x);
  const auto [top, bottom] = std::minmax_element(corners.begin(), corners.end(), by_y);
  return {left->x, top->y, right->x - left->x, bottom->y - top->y};
}

bool ImageRegion::is_box() const {
  const ImageBox box = bounds();
  return box.width > 0 && box.height > 0 && *this == of_box(box);
}

bool is_on(const ImageRegion& region, ImageInfo image) {
  if (region.is_whole()) return true;
  const ImageBox b = region.bounds();
  return std::max(b.left, 0) < std::min(b.left + b.width, image.width) &&
         std::max(b.top, 0) < std::min(b.top + b.height, image.height);
}

ImageBox box_on(const ImageRegion& region, ImageInfo image, const std::string& name) {
  if (region.is_whole()) return {0, 0, image.width, image.height};
  const ImageBox b = region.bounds();
  if (!is_on(region, image)) {
    fail_input(name, ": is ", image.width, " x ", image.height, " pixels, and the region from x ",
               b.left, " to ", b.left + b.width, ", y ", b.top, " to ", b.top + b.height,
               " has none of them");
  }
  const int32_t left = std::max(b.left, 0), top = std::max(b.top, 0);
  return {left, top, std::min(b.left + b.width, image.width) - left,
          std::min(b.top + b.height, image.height) - top};
}

ImageBox box_between(const ImageRegion& region, ImageInfo image, double left, double right,
                     const std::string& name) {
  const ImageBox box = box_on(region, image, name);
  const int32_t most = box.left + box.width;
  const auto column = [&](double x, int32_t least, int32_t greatest) {
    return static_cast<int32_t>(std::lround(std::clamp<double>(x, least, greatest)));
  };
  const int32_t from = column(left, box.left, most - 1), to = column(right, from + 1, most);
  ImageBox part{from, box.top, to - from, box.height};
  if (region.is_whole()) return part;
  double high = image.height, low = 0;
  std::vector<double> crossings;
  for (int32_t x = from; x < to; ++x) {
    cross(region, x, crossings);
    if (crossings.empty()) continue;
    high = std::min(high, std::max(std::floor(crossings.front()), 0.0));
    low = std::max(low, std::min<double>(std::ceil(crossings.back()), image.height));
  }
  if (!(high < low)) return part;
  part.top = static_cast<int32_t>(high);
  part.height = static_cast<int32_t>(low - high);
  return part;
}

GreyImage cut_out(const GreyImage& image, const ImageRegion& region, const std::string& name) {
  const Cut cut = cut_of(region, image.info(), name);
  const ImageBox& box = cut.box;
  GreyImage part(box.width, cut.height);
  if (region.is_whole() || region.is_box()) {
    for (int32_t y = 0; y < box.height; ++y) {
      std::copy_n(image.row(box.top + y) + box.left, box.width, part.row(y));
    }
    return part;
  }
  std::vector<uint8_t> mask(part.pixels.size());
  std::vector<double> crossings;
  for (size_t i = 0; i < cut.tops.size(); ++i) {
    cross(region, box.left + static_cast<int32_t>(i), crossings);
    take_column(image, cut, i, crossings, part, mask);
  }
  if (std::find(mask.begin(), mask.end(), uint8_t{1}) == mask.end()) {
    fail_input(name, ": no pixel lies within the region's ", region.corners.size(),
               " corners from x ", box.left, ", y ", box.top, " on");
  }
  const std::vector<uint8_t> paper = paper_of(part, mask);
  for (size_t at = 0; at < mask.size(); ++at) {
    if (!mask[at]) part.pixels[at] = paper[at % static_cast<size_t>(part.width)];
  }
  return part;
}

ImageInfo region_info(const ImageReader& reader, const FilePart& file, const ImageRegion& region) {
  const Cut cut = cut_of(region, reader.info(file), file.name());
  return {cut.box.width, cut.height};
}

GreyImage read_region(const ImageReader& reader, const FilePart& file, const ImageRegion& region) {
  if (region.is_whole()) return reader.read(file);
  return cut_out(*reader.read_page(file), region, file.name());
}

}  // namespace rondo
