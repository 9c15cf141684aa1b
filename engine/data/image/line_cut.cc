#include "engine/data/image/line_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/error.h"

namespace rondo::image {
namespace {

// The straight line y = at_0 + slope * x through these points, by least squares.
struct Slope {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;

  void add(double px, double py) { n += 1, x += px, y += py, xx += px * px, xy += px * py; }
  double value() const {
    const double spread = n * xx - x * x;
    return spread > 0 ? (n * xy - x * y) / spread : 0;
  }
};

// From where to where a column meets the region on the image.
struct Extent {
  double high = 0, low = 0;
  bool any = false;
};

Extent extent_of(const ImageRegion& region, ImageInfo image, const LineCut& cut,
                 const LineColumn& column, std::vector<double>& crossings) {
  Extent e;
  double from = 0, to = 0;
  cross(region, column, crossings);
  if (crossings.empty() || !clip(column, image, from, to)) return e;
  from = std::max(from, cut.least), to = std::min(to, cut.most);
  for (size_t i = 0; i + 1 < crossings.size(); i += 2) {
    const double high = std::max(crossings[i], from), low = std::min(crossings[i + 1], to);
    if (!(high < low)) continue;
    e.high = e.any ? std::min(e.high, high) : high;
    e.low = e.any ? std::max(e.low, low) : low;
    e.any = true;
  }
  return e;
}

// By whole columns of the page, shifted so that a slanting polygon becomes level.
LineCut cut_level(const ImageRegion& region, ImageInfo image, const ImageBox& box) {
  constexpr double far = std::numeric_limits<double>::infinity();
  LineCut cut{{}, box.height, -far, far};
  for (int32_t i = 0; i < box.width; ++i) cut.columns.push_back({box.left + i + 0.5, 0, 0, 1});
  std::vector<Extent> extents;
  std::vector<double> crossings;
  Slope slope;
  double thickness = 0;
  for (const LineColumn& column : cut.columns) {
    const Extent& e = extents.emplace_back(extent_of(region, image, cut, column, crossings));
    if (!e.any) continue;
    slope.add(static_cast<double>(extents.size() - 1), (e.high + e.low) / 2);
    thickness += e.low - e.high;
  }
  const auto first_row = [&](size_t i, double row) { cut.columns[i].y = row; };
  if (slope.n == 0) {
    for (size_t i = 0; i < extents.size(); ++i) first_row(i, box.top);
    return cut;
  }
  thickness /= slope.n;
  const double tilt = box.width >= 3 * thickness ? slope.value() : 0;
  const auto shift = [&](size_t i) { return std::round(tilt * static_cast<double>(i)); };
  double first = far, end = -far;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (!extents[i].any) continue;
    first = std::min(first, std::floor(extents[i].high) - shift(i));
    end = std::max(end, std::ceil(extents[i].low) - shift(i));
  }
  for (size_t i = 0; i < extents.size(); ++i) first_row(i, first + shift(i));
  cut.height = static_cast<int32_t>(end - first);
  return cut;
}

LineCut cut_along(const ImageRegion& region, ImageInfo image, const ImageBox& box,
                  const std::string& name) {
  LineCut cut = columns_along(region, box, name);
  std::vector<double> crossings;
  double first = 0, end = 0;
  size_t begin = 0, behind = 0;  // the columns that have a part of the region
  for (size_t i = 0; i < cut.columns.size(); ++i) {
    const Extent e = extent_of(region, image, cut, cut.columns[i], crossings);
    if (!e.any) continue;
    if (behind == 0) begin = i;
    first = behind == 0 ? std::floor(e.high) : std::min(first, std::floor(e.high));
    end = behind == 0 ? std::ceil(e.low) : std::max(end, std::ceil(e.low));
    behind = i + 1;
  }
  if (behind == 0) {
    fail_input(name, ": nothing of the region from x ", box.left, ", y ", box.top,
               " on lies along its baseline from ", region.baseline.front().x, ",",
               region.baseline.front().y, " to ", region.baseline.back().x, ",",
               region.baseline.back().y);
  }
  cut.columns.erase(cut.columns.begin() + static_cast<ptrdiff_t>(behind), cut.columns.end());
  cut.columns.erase(cut.columns.begin(), cut.columns.begin() + static_cast<ptrdiff_t>(begin));
  for (LineColumn& c : cut.columns) c.x += first * c.down_x, c.y += first * c.down_y;
  cut.least -= first, cut.most -= first;
  cut.height = static_cast<int32_t>(end - first);
  return cut;
}

}  // namespace

void cross(const ImageRegion& region, const LineColumn& o, std::vector<double>& crossings) {
  const std::vector<ImagePoint>& corners = region.corners;
  const auto beside = [&](const ImagePoint& p) {
    return (p.x - o.x) * o.down_y - (p.y - o.y) * o.down_x;
  };
  const auto along = [&](const ImagePoint& p) {
    return (p.x - o.x) * o.down_x + (p.y - o.y) * o.down_y;
  };
  crossings.clear();
  if (corners.empty()) return;
  double a_beside = beside(corners.back()), a_along = along(corners.back());
  for (const ImagePoint& b : corners) {
    const double b_beside = beside(b), b_along = along(b);
    if ((a_beside < 0) != (b_beside < 0)) {
      crossings.push_back(a_along - a_beside * (b_along - a_along) / (b_beside - a_beside));
    }
    a_beside = b_beside, a_along = b_along;
  }
  std::sort(crossings.begin(), crossings.end());
}

bool clip(const LineColumn& c, ImageInfo image, double& from, double& to) {
  from = -std::numeric_limits<double>::infinity(), to = -from;
  const auto within = [&](double at, double step, double size) {
    if (step == 0) return at >= 0 && at <= size;
    const double a = -at / step, b = (size - at) / step;
    from = std::max(from, std::min(a, b)), to = std::min(to, std::max(a, b));
    return from < to;
  };
  return within(c.x, c.down_x, image.width) && within(c.y, c.down_y, image.height);
}

LineCut cut_of(const ImageRegion& region, ImageInfo image, const std::string& name) {
  const ImageBox box = box_on(region, image, name);
  return region.baseline.empty() ? cut_level(region, image, box)
                                 : cut_along(region, image, box, name);
}

}  // namespace rondo::image
