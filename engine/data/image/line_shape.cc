#include "engine/data/image/line_shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/data/image/ink_levels.h"

namespace rondo {
namespace {

// Ink by rows [height, width], 0 to 1. What is fainter than a quarter is dirt and shadow, of which
// there may be more than ink.
struct InkMap {
  int32_t width = 0, height = 0;
  std::vector<float> values;

  const float* row(int32_t y) const {
    return values.data() + static_cast<size_t>(y) * static_cast<size_t>(width);
  }
  float* row(int32_t y) {
    return values.data() + static_cast<size_t>(y) * static_cast<size_t>(width);
  }
};

image::InkScale scale_of(const GreyImage& line, Ink ink) {
  image::Greys greys{};
  for (const uint8_t v : line.pixels) ++greys[v];
  return {greys, ink, true};
}

InkMap ink_of(const GreyImage& line, const image::InkScale& scale) {
  constexpr float least = 0.25f;
  std::array<float, 256> ink{};
  for (size_t grey = 0; grey < ink.size(); ++grey) {
    const float v = scale(static_cast<float>(grey));
    ink[grey] = v < least ? 0 : v;
  }
  InkMap map{line.width, line.height, std::vector<float>(line.pixels.size())};
  for (size_t i = 0; i < line.pixels.size(); ++i) map.values[i] = ink[line.pixels[i]];
  return map;
}

// The ink of squares of `by` pixels to a side.
InkMap reduced(const InkMap& map, int32_t by) {
  InkMap small{(map.width + by - 1) / by, (map.height + by - 1) / by, {}};
  small.values.resize(static_cast<size_t>(small.width) * static_cast<size_t>(small.height));
  for (int32_t y = 0; y < map.height; ++y) {
    float* to = small.row(y / by);
    for (int32_t x = 0; x < map.width; ++x) to[x / by] += map.row(y)[x];
  }
  return small;
}

// The sum of the squares of the rows' ink once each column is shifted by `slope` for each column
// from the middle.
double sharpness(const InkMap& map, double slope) {
  const auto size = static_cast<size_t>(map.height);
  std::vector<double> rows(3 * size);
  for (int32_t x = 0; x < map.width; ++x) {
    const double shift =
        std::clamp<double>(slope * (x - map.width / 2.0), -map.height + 1.0, map.height - 1.0);
    const double whole = std::floor(shift), part = shift - whole;
    const auto first = static_cast<size_t>(map.height - static_cast<int32_t>(whole) - 1);
    for (size_t y = 0; y < size; ++y) {
      const double ink = map.row(static_cast<int32_t>(y))[x];
      rows[first + y] += part * ink;
      rows[first + y + 1] += (1 - part) * ink;
    }
  }
  return std::inner_product(rows.begin(), rows.end(), rows.begin(), 0.0);
}

double sharpest(const InkMap& map, double from, double to, double step, double best) {
  double most = sharpness(map, best);
  for (double slope = from; slope <= to; slope += step) {
    const double s = sharpness(map, slope);
    if (s > most) most = s, best = slope;
  }
  return best;
}

double slope_of(const GreyImage& line, const InkMap& ink) {
  constexpr int32_t enough_rows = 64;
  constexpr double steepest = 0.2;
  if (line.width < 3 * line.height) return 0;
  const InkMap map = reduced(ink, (line.height + enough_rows - 1) / enough_rows);
  const double reach =
      std::min(steepest, static_cast<double>(map.height) / static_cast<double>(map.width));
  // Two rows of this map from end to end, then an eighth of one.
  const double coarse = 2.0 / map.width, fine = 0.125 / map.width;
  const double near = sharpest(map, -reach, reach, coarse, 0);
  return sharpest(map, near - coarse, near + coarse, fine, near);
}

// Columns from these rows on, `height` pixels of each, between the middles of pixels; what is
// beyond the image is paper.
GreyImage resampled(const GreyImage& line, const std::vector<double>& tops, int32_t height,
                    float paper) {
  GreyImage out(line.width, height);
  for (int32_t x = 0; x < line.width; ++x) {
    const double top = tops[static_cast<size_t>(x)];
    const auto first = static_cast<int32_t>(std::floor(top));
    const auto part = static_cast<float>(top - first);
    const auto grey = [&](int32_t y) {
      return y < 0 || y >= line.height ? paper : static_cast<float>(line.row(y)[x]);
    };
    for (int32_t y = 0; y < height; ++y) {
      const float value = (1 - part) * grey(first + y) + part * grey(first + y + 1);
      out.row(y)[x] = static_cast<uint8_t>(std::lround(value));
    }
  }
  return out;
}

// Means over `reach` to either side, three times: almost a Gaussian of the width `reach`.
void smooth(std::vector<double>& values, size_t reach) {
  std::vector<double> sums(values.size() + 1);
  for (int pass = 0; pass < 3; ++pass) {
    for (size_t i = 0; i < values.size(); ++i) sums[i + 1] = sums[i] + values[i];
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t from = i - std::min(i, reach), to = std::min(i + reach + 1, values.size());
      values[i] = (sums[to] - sums[from]) / static_cast<double>(to - from);
    }
  }
}

// What is this many times as far from the middle as the ink is on the average is beyond the line.
constexpr double distances = 4;

// The ink's mean distance from the middle of its column.
double distance_of(const InkMap& ink, const std::vector<double>& middles) {
  double sum = 0, all = 0;
  for (int32_t y = 0; y < ink.height; ++y) {
    for (int32_t x = 0; x < ink.width; ++x) {
      const double value = ink.row(y)[x];
      sum += value * std::abs(y + 0.5 - middles[static_cast<size_t>(x)]);
      all += value;
    }
  }
  return sum / all;
}

// Of the ink of each column, smoothed; where there is none, that of the line. There is some.
std::vector<double> middles_of(const InkMap& ink) {
  std::vector<double> mass(static_cast<size_t>(ink.width)), moment(mass.size());
  for (int32_t y = 0; y < ink.height; ++y) {
    for (size_t x = 0; x < mass.size(); ++x) {
      mass[x] += ink.row(y)[x];
      moment[x] += ink.row(y)[x] * (y + 0.5);
    }
  }
  const double all = std::accumulate(mass.begin(), mass.end(), 0.0);
  const double middle = std::accumulate(moment.begin(), moment.end(), 0.0) / all;
  const double half = distances * distance_of(ink, std::vector<double>(mass.size(), middle));
  const auto reach = static_cast<size_t>(std::ceil(half));
  smooth(mass, reach);
  smooth(moment, reach);
  const double little = 0.02 * all / static_cast<double>(ink.width);
  for (size_t x = 0; x < mass.size(); ++x)
    moment[x] = (moment[x] + little * middle) / (mass[x] + little);
  return moment;
}

}  // namespace

GreyImage shaped(const LineConfig& config, GreyImage image) {
  if (!config.deskew && !config.centre) return image;
  image = turned(image, config.direction);
  if (config.deskew) image = deskewed(image, config.ink);
  if (config.centre) image = centred(image, config.ink);
  // Back: a mirror image of the mirror image, or three more quarters.
  const int times = config.direction == LineDirection::downwards ? 3 : 1;
  for (int i = 0; i < times; ++i) image = turned(image, config.direction);
  return image;
}

double slope_of(const GreyImage& line, Ink ink) {
  return is_blank(line) ? 0 : slope_of(line, ink_of(line, scale_of(line, ink)));
}

GreyImage deskewed(const GreyImage& line, Ink ink) {
  if (is_blank(line)) return line;
  const image::InkScale scale = scale_of(line, ink);
  const InkMap map = ink_of(line, scale);
  const double slope = slope_of(line, map);
  if (slope == 0) return line;
  std::vector<double> tops, rows(static_cast<size_t>(line.height));
  for (int32_t x = 0; x < line.width; ++x) {
    tops.push_back(std::round(slope * (x + 0.5 - line.width / 2.0)));
    for (int32_t y = 0; y < line.height; ++y) {
      const auto from = y + static_cast<int32_t>(tops.back());
      if (from >= 0 && from < line.height) rows[static_cast<size_t>(y)] += map.row(from)[x];
    }
  }
  // A speck is no ink.
  const double speck = 0.002 * std::accumulate(rows.begin(), rows.end(), 0.0);
  const auto most = static_cast<size_t>(std::abs(slope) * line.width / 2);
  const auto empty = [&](auto begin, auto end) {
    double sum = 0;
    size_t n = 0;
    for (; begin != end && n < most && (sum += *begin) <= speck; ++begin) ++n;
    return static_cast<int32_t>(n);
  };
  const int32_t above = empty(rows.begin(), rows.end());
  const int32_t below = empty(rows.rbegin(), rows.rend());
  for (double& top : tops) top += above;
  return resampled(line, tops, std::max(line.height - above - below, 1), scale.paper());
}

GreyImage centred(const GreyImage& line, Ink ink) {
  if (is_blank(line)) return line;
  const image::InkScale scale = scale_of(line, ink);
  const InkMap map = ink_of(line, scale);
  if (std::none_of(map.values.begin(), map.values.end(), [](float v) { return v > 0; }))
    return line;
  std::vector<double> tops = middles_of(map);
  const auto half = static_cast<int32_t>(std::lround(
      std::clamp(distances * distance_of(map, tops), 2.0, std::max(2.0, 1.0 * line.height))));
  for (double& top : tops) top -= half;
  return resampled(line, tops, 2 * half, scale.paper());
}

}  // namespace rondo
