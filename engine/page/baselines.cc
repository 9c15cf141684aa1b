// Outlines of lines of which the baselines alone are known.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/page/xml.h"

namespace rondo::page {
namespace {

struct Vector {
  double x = 0, y = 0;
};

struct Step {
  Vector at, up;  // `up` has the length 1
};

// Of a baseline, which has a length, across its own direction at each point.
std::vector<Step> steps_of(const std::vector<ImagePoint>& line) {
  std::vector<Step> steps;
  Vector up{0, -1};
  for (size_t i = 0; i < line.size(); ++i) {
    const ImagePoint &a = line[i > 0 ? i - 1 : 0], &b = line[std::min(i + 1, line.size() - 1)];
    const double dx = b.x - a.x, dy = b.y - a.y, length = std::hypot(dx, dy);
    if (length > 0) up = {dy / length, -dx / length};
    steps.push_back({{static_cast<double>(line[i].x), static_cast<double>(line[i].y)}, up});
  }
  return steps;
}

// At most so many of them, the ends among these: distances need no more.
std::vector<Step> some_of(const std::vector<Step>& steps, size_t most) {
  if (steps.size() <= most) return steps;
  std::vector<Step> some;
  for (size_t i = 0; i < most; ++i) some.push_back(steps[i * (steps.size() - 1) / (most - 1)]);
  return some;
}

double length_of(const std::vector<Step>& steps) {
  double length = 0;
  for (size_t i = 1; i < steps.size(); ++i)
    length += std::hypot(steps[i].at.x - steps[i - 1].at.x, steps[i].at.y - steps[i - 1].at.y);
  return length;
}

// Five places along a line, evenly between its ends.
std::vector<Step> places_along(const std::vector<Step>& steps) {
  constexpr int count = 5;
  const double length = length_of(steps);
  std::vector<Step> places;
  double passed = 0;
  for (size_t i = 1; i < steps.size(); ++i) {
    const Step &a = steps[i - 1], &b = steps[i];
    const double step = std::hypot(b.at.x - a.at.x, b.at.y - a.at.y);
    while (places.size() < count) {
      const double wanted = length * (0.5 + static_cast<double>(places.size())) / count;
      if (!(step > 0 && wanted <= passed + step)) break;
      const double share = (wanted - passed) / step;
      places.push_back({{a.at.x + share * (b.at.x - a.at.x), a.at.y + share * (b.at.y - a.at.y)},
                        {(b.at.y - a.at.y) / step, -(b.at.x - a.at.x) / step}});
    }
    passed += step;
  }
  return places;
}

// How far from a place, upwards or downwards, another line is; infinite where it is not there.
double distance(const Step& place, const std::vector<Step>& other) {
  double least = std::numeric_limits<double>::infinity();
  const auto beside = [&](const Step& s) {
    return (s.at.x - place.at.x) * place.up.y - (s.at.y - place.at.y) * place.up.x;
  };
  const auto along = [&](const Step& s) {
    return (s.at.x - place.at.x) * place.up.x + (s.at.y - place.at.y) * place.up.y;
  };
  for (size_t i = 1; i < other.size(); ++i) {
    const double a = beside(other[i - 1]), b = beside(other[i]);
    if ((a < 0) == (b < 0)) continue;
    const double from = along(other[i - 1]), to = along(other[i]);
    least = std::min(least, std::abs(from - a * (to - from) / (b - a)));
  }
  return least;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// To the nearest of its neighbours; none is near, or all lie upon it: nothing.
std::optional<double> pitch_of(size_t line, const std::vector<size_t>& order, size_t rank,
                               const std::vector<std::vector<Step>>& lines) {
  // Lines that stand on other columns of the page are among those of a like height.
  constexpr size_t neighbours = 8;
  constexpr double least = 4;  // pixels: the same line, drawn twice
  std::vector<double> distances;
  for (const Step& place : places_along(lines[line])) {
    double nearest = std::numeric_limits<double>::infinity();
    const size_t end = std::min(order.size(), rank + neighbours + 1);
    for (size_t i = rank - std::min(rank, neighbours); i < end; ++i) {
      if (i == rank) continue;
      const double d = distance(place, lines[order[i]]);
      if (d >= least) nearest = std::min(nearest, d);
    }
    if (std::isfinite(nearest)) distances.push_back(nearest);
  }
  if (distances.empty()) return std::nullopt;
  return median(distances);
}

// Whether a line runs up or down the page rather than along it.
bool is_steep(const ImagePoint& begin, const ImagePoint& end) {
  return std::abs(int64_t{end.y} - begin.y) > std::abs(int64_t{end.x} - begin.x);
}

// What reaches no further to either side of the baseline is none of the line.
bool is_outlined(const ImageRegion& region) {
  if (region.corners.empty()) return false;
  ImageBox around = region.bounds(), line = ImageRegion{region.baseline}.bounds();
  if (is_steep(region.baseline.front(), region.baseline.back())) {
    std::swap(around.left, around.top), std::swap(around.width, around.height);
    std::swap(line.left, line.top), std::swap(line.width, line.height);
  }
  constexpr int32_t rounding = 1;
  return around.top < line.top - rounding ||
         around.top + around.height > line.top + line.height + rounding;
}

std::vector<ImagePoint> stripe(const std::vector<Step>& steps, double above, double below) {
  std::vector<ImagePoint> corners;
  const auto add = [&](const Step& s, double up) {
    const auto pixel = [](double at) {
      return static_cast<int32_t>(
          std::lround(std::clamp<double>(at, -greatest_corner, greatest_corner)));
    };
    corners.push_back({pixel(s.at.x + up * s.up.x), pixel(s.at.y + up * s.up.y)});
  };
  for (const Step& s : steps) add(s, above);
  for (size_t i = steps.size(); i-- > 0;) add(steps[i], -below);
  return corners;
}

}  // namespace

void outline_baselines(std::vector<PageLine>& lines, ImageInfo image) {
  std::vector<size_t> wanting;  // indices of `known`
  std::vector<size_t> known;    // lines with a baseline
  std::vector<std::vector<Step>> steps;
  for (size_t i = 0; i < lines.size(); ++i) {
    const ImageRegion& region = lines[i].region;
    if (region.baseline.empty()) continue;
    if (!is_outlined(region)) wanting.push_back(known.size());
    known.push_back(i);
    constexpr size_t enough = 16;
    steps.push_back(some_of(steps_of(region.baseline), enough));
  }
  if (wanting.empty()) return;
  std::vector<size_t> order(known.size()), rank(known.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Those along the page by their height, then those that run up or down by their columns.
  const auto place_of = [&](size_t i) {
    const std::vector<ImagePoint>& line = lines[known[i]].region.baseline;
    const ImagePoint &begin = line.front(), &end = line.back();
    const bool steep = is_steep(begin, end);
    return std::pair(steep, steep ? int64_t{begin.x} + end.x : int64_t{begin.y} + end.y);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return place_of(a) < place_of(b); });
  for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  std::vector<std::optional<double>> pitches(known.size());
  std::vector<double> found;
  for (const size_t i : wanting) {
    pitches[i] = pitch_of(i, order, rank[i], steps);
    if (pitches[i]) found.push_back(*pitches[i]);
  }
  const double usual = found.empty() ? 0 : median(std::move(found));  // 0: nothing is
  for (const size_t i : wanting) {
    // Alone on its page: sixty characters or so, half as wide as the lines are apart.
    constexpr double alone = 20, least = 8;
    const double otherwise = std::clamp<double>(length_of(steps[i]) / alone, least,
                                                std::max<double>(image.height, least));
    // Where a paragraph ends, the next line is further away than this one is high.
    const double pitch = usual > 0 ? std::min(pitches[i].value_or(usual), 1.5 * usual) : otherwise;
    ImageRegion& region = lines[known[i]].region;
    region.corners = stripe(steps_of(region.baseline), 0.7 * pitch, 0.3 * pitch);
  }
}

}  // namespace rondo::page
