#include "engine/data/image/image_region.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/data/image/line_cut.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Of a point, between the middles of pixels.
uint8_t grey_at(const GreyImage& image, double x, double y) {
  const auto near = [](double at, int32_t size, int32_t& first, int32_t& next) {
    const double middle = at - 0.5, floor = std::floor(middle);
    first = std::clamp(static_cast<int32_t>(floor), 0, size - 1);
    next = std::clamp(static_cast<int32_t>(floor) + 1, 0, size - 1);
    return middle - floor;
  };
  int32_t left = 0, right = 0, upper = 0, lower = 0;
  const double across = near(x, image.width, left, right);
  const double down = near(y, image.height, upper, lower);
  const uint8_t *above = image.row(upper), *below = image.row(lower);
  if (across == 0 && down == 0) return above[left];
  const double high = above[left] + across * (above[right] - above[left]);
  const double low = below[left] + across * (below[right] - below[left]);
  return static_cast<uint8_t>(std::lround(high + down * (low - high)));
}

// Copies a column's pixels that belong to the region, and marks them in the mask.
void take_column(const GreyImage& image, const image::LineCut& cut, size_t column,
                 const std::vector<double>& crossings, GreyImage& part,
                 std::vector<uint8_t>& mask) {
  const image::LineColumn& c = cut.columns[column];
  const double least = std::ceil(std::max(cut.least, 0.0));
  const double most = std::max(least, std::floor(std::min<double>(cut.most, cut.height)));
  const auto row = [&](double at) {
    return static_cast<int32_t>(std::clamp(std::ceil(at - 0.5), least, most));
  };
  for (size_t i = 0; i + 1 < crossings.size(); i += 2) {
    for (int32_t r = row(crossings[i]); r < row(crossings[i + 1]); ++r) {
      const double x = c.x + (r + 0.5) * c.down_x, y = c.y + (r + 0.5) * c.down_y;
      if (!(x >= 0 && x < image.width && y >= 0 && y < image.height)) continue;
      part.row(r)[column] = grey_at(image, x, y);
      mask[static_cast<size_t>(r) * static_cast<size_t>(part.width) + column] = 1;
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
  return box.width > 0 && box.height > 0 && corners == of_box(box).corners;
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

LinePlaces::LinePlaces(const ImageRegion& region, ImageInfo image, const std::string& name)
    : region_(region), image_(image), box_(box_on(region, image, name)) {
  if (region.baseline.empty()) {
    first_ = box_.left, end_ = box_.left + box_.width;
    return;
  }
  cut_ = std::make_unique<const image::LineCut>(image::cut_of(region, image, name));
  end_ = static_cast<double>(cut_->columns.size());
}

LinePlaces::~LinePlaces() = default;

ImageBox LinePlaces::between(double left, double right) const {
  const auto least = static_cast<int32_t>(first_), most = static_cast<int32_t>(end_);
  const auto column = [](double x, int32_t smallest, int32_t greatest) {
    return static_cast<int32_t>(std::lround(std::clamp<double>(x, smallest, greatest)));
  };
  const int32_t from = column(left, least, most - 1), to = column(right, from + 1, most);
  return cut_ ? along_baseline(from, to) : between_columns(from, to);
}

ImageBox LinePlaces::between_columns(int32_t from, int32_t to) const {
  ImageBox part{from, box_.top, to - from, box_.height};
  if (region_.is_whole()) return part;
  double high = image_.height, low = 0;
  std::vector<double> crossings;
  for (int32_t x = from; x < to; ++x) {
    image::cross(region_, {x + 0.5, 0, 0, 1}, crossings);
    if (crossings.empty()) continue;
    high = std::min(high, std::max(std::floor(crossings.front()), 0.0));
    low = std::max(low, std::min<double>(std::ceil(crossings.back()), image_.height));
  }
  if (!(high < low)) return part;
  part.top = static_cast<int32_t>(high);
  part.height = static_cast<int32_t>(low - high);
  return part;
}

ImageBox LinePlaces::along_baseline(int32_t from, int32_t to) const {
  constexpr double far = std::numeric_limits<double>::infinity();
  double left = far, top = far, right = -far, bottom = -far;
  std::vector<double> crossings;
  const auto take = [&](const image::LineColumn& c, double at) {
    const double x = c.x + at * c.down_x, y = c.y + at * c.down_y;
    // Half a pixel of a column's width to either side.
    const double wide = std::abs(c.down_y) / 2, high = std::abs(c.down_x) / 2;
    left = std::min(left, x - wide), right = std::max(right, x + wide);
    top = std::min(top, y - high), bottom = std::max(bottom, y + high);
  };
  for (int32_t i = from; i < to; ++i) {
    const image::LineColumn& c = cut_->columns[static_cast<size_t>(i)];
    image::cross(region_, c, crossings);
    bool any = false;
    for (size_t k = 0; k + 1 < crossings.size(); k += 2) {
      const double high = std::max({crossings[k], cut_->least, 0.0});
      const double low =
          std::min({crossings[k + 1], cut_->most, static_cast<double>(cut_->height)});
      if (!(high < low)) continue;
      any = true;
      take(c, high), take(c, low);
    }
    // Where the region is interrupted, the line itself.
    if (!any) take(c, 0), take(c, cut_->height);
  }
  const auto within = [](double at, int32_t first, int32_t end) {
    return static_cast<int32_t>(std::clamp<double>(at, first, end));
  };
  const int32_t x_end = box_.left + box_.width, y_end = box_.top + box_.height;
  const int32_t x = within(std::floor(left), box_.left, x_end - 1);
  const int32_t y = within(std::floor(top), box_.top, y_end - 1);
  return {x, y, within(std::ceil(right), x + 1, x_end) - x,
          within(std::ceil(bottom), y + 1, y_end) - y};
}

namespace {

// Of what cut_out() gives.
ImageInfo size_of(const image::LineCut& cut, const std::string& name) {
  const auto width = static_cast<int64_t>(cut.columns.size());
  if (width * cut.height > most_line_pixels) {
    fail_input(name, ": a region of it is ", width, " x ", cut.height,
               " pixels, expected a line of at most ", most_line_pixels);
  }
  return {static_cast<int32_t>(width), cut.height};
}

bool is_copied(const ImageRegion& region) {
  return region.is_whole() || (region.is_box() && region.baseline.empty());
}

GreyImage copy_box(const GreyImage& image, const ImageBox& box) {
  GreyImage part(box.width, box.height);
  for (int32_t y = 0; y < box.height; ++y) {
    std::copy_n(image.row(box.top + y) + box.left, box.width, part.row(y));
  }
  return part;
}

}  // namespace

GreyImage cut_out(const GreyImage& image, const ImageRegion& region, const std::string& name) {
  if (is_copied(region)) return copy_box(image, box_on(region, image.info(), name));
  const image::LineCut cut = image::cut_of(region, image.info(), name);
  const ImageInfo size = size_of(cut, name);
  GreyImage part(size.width, size.height);
  std::vector<uint8_t> mask(part.pixels.size());
  std::vector<double> crossings;
  for (size_t i = 0; i < cut.columns.size(); ++i) {
    image::cross(region, cut.columns[i], crossings);
    take_column(image, cut, i, crossings, part, mask);
  }
  if (std::find(mask.begin(), mask.end(), uint8_t{1}) == mask.end()) {
    const ImageBox box = box_on(region, image.info(), name);
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
  const ImageInfo image = reader.info(file);
  if (!is_copied(region)) return size_of(image::cut_of(region, image, file.name()), file.name());
  const ImageBox box = box_on(region, image, file.name());
  return {box.width, box.height};
}

GreyImage read_region(const ImageReader& reader, const FilePart& file, const ImageRegion& region) {
  if (region.is_whole()) return reader.read(file);
  return cut_out(*reader.read_page(file), region, file.name());
}

}  // namespace rondo
