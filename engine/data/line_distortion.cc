#include "engine/data/line_distortion.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "engine/data/features/random.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using data::Purpose;
using data::Random;

// A signed strength, or 0. The numbers are taken whether it happens or not, so that a setting does
// not change what the others do.
float draw(Random& random, const DistortConfig& c, double setting) {
  const bool happens = random.uniform() < static_cast<float>(c.probability);
  const auto most = static_cast<float>(c.strength * setting);
  const auto value = static_cast<float>(random.uniform(-most, most));
  return happens ? value : 0;
}

float positive_draw(Random& random, const DistortConfig& c, double setting) {
  return std::abs(draw(random, c, setting));
}

struct Shift {
  float x = 0, y = 0;
};

float mean(float a, float b, float share_of_b) { return a * (1 - share_of_b) + b * share_of_b; }

Shift mean(const Shift& a, const Shift& b, float share_of_b) {
  return {mean(a.x, b.x, share_of_b), mean(a.y, b.y, share_of_b)};
}

// Values at the points of a grid over the line, and between them a smooth mean of the four around.
template <class Value>
class SmoothGrid {
 public:
  // `point` gives the next value.
  template <class Point>
  SmoothGrid(int64_t columns, int32_t height, float spacing, const Point& point)
      : spacing_(spacing),
        across_(static_cast<size_t>(static_cast<float>(columns) / spacing) + 2),
        points_(across_ * (static_cast<size_t>(static_cast<float>(height) / spacing) + 2)) {
    for (Value& v : points_) v = point();
  }

  Value at(int64_t x, int32_t y) const {
    const float gx = static_cast<float>(x) / spacing_, gy = static_cast<float>(y) / spacing_;
    const auto ix = static_cast<size_t>(gx), iy = static_cast<size_t>(gy);
    const float fx = ease(gx - static_cast<float>(ix)), fy = ease(gy - static_cast<float>(iy));
    const Value* upper = &points_[iy * across_ + ix];
    const Value* lower = upper + across_;
    return mean(mean(upper[0], upper[1], fx), mean(lower[0], lower[1], fx), fy);
  }

 private:
  // Without a kink at the points.
  static float ease(float t) { return t * t * (3 - 2 * t); }

  float spacing_;
  size_t across_;
  std::vector<Value> points_;
};

// Between pixels; beyond the edges there is paper.
float ink_at(const Matrix& line, float x, float y) {
  const float left = std::floor(x), top = std::floor(y);
  const auto ix = static_cast<int64_t>(left);
  const auto iy = static_cast<int32_t>(top);
  const auto pixel = [&](int64_t column, int32_t row) {
    const bool inside = column >= 0 && column < line.frames && row >= 0 && row < line.dim;
    return inside ? line.row(column)[row] : 0.0f;
  };
  const float fx = x - left, fy = y - top;
  return (pixel(ix, iy) * (1 - fx) + pixel(ix + 1, iy) * fx) * (1 - fy) +
         (pixel(ix, iy + 1) * (1 - fx) + pixel(ix + 1, iy + 1) * fx) * fy;
}

void bend(const DistortConfig& c, Random& random, Matrix& line) {
  const auto radians = [](float degrees) { return degrees * std::numbers::pi_v<float> / 180; };
  const float lean = std::tan(radians(draw(random, c, c.slant)));
  const float rise = std::tan(radians(draw(random, c, c.rotation)));
  const float higher = 1 + draw(random, c, c.size);
  const float offset = draw(random, c, c.offset);
  const float shift = positive_draw(random, c, c.elastic);
  if (lean == 0 && rise == 0 && higher == 1 && offset == 0 && shift == 0) return;
  const SmoothGrid<Shift> grid(line.frames, line.dim, 0.75f * static_cast<float>(line.dim), [&] {
    const auto x = static_cast<float>(random.uniform(-shift, shift));
    return Shift{x, static_cast<float>(random.uniform(-shift, shift))};
  });
  const float middle_x = static_cast<float>(line.frames - 1) / 2;
  const float middle_y = static_cast<float>(line.dim - 1) / 2;
  Matrix bent(line.frames, line.dim);
  for (int64_t x = 0; x < line.frames; ++x) {
    const float along = static_cast<float>(x) - middle_x;
    for (int32_t y = 0; y < line.dim; ++y) {
      const float up = static_cast<float>(y) - middle_y;
      const Shift s = grid.at(x, y);
      bent.row(x)[y] = ink_at(line, static_cast<float>(x) + lean * up + s.x,
                              middle_y + up / higher - offset + rise * along + s.y);
    }
  }
  line = std::move(bent);
}

// `filter(from, n, step, to)` on every row of pixels and then on every column.
template <class Filter>
void filter_both_ways(Matrix& line, const Filter& filter) {
  std::vector<float> copy = line.data;
  const int64_t dim = line.dim;
  for (int64_t y = 0; y < dim; ++y)
    filter(&copy[static_cast<size_t>(y)], line.frames, dim, line.row(0) + y);
  copy = line.data;
  for (int64_t x = 0; x < line.frames; ++x)
    filter(&copy[static_cast<size_t>(x * dim)], dim, int64_t{1}, line.row(x));
}

// By a whole number of pixels the strokes' edges move by maxima or minima over a square; by a part
// of one, the result lies between two of these.
void thicken(float amount, Matrix& line) {
  const bool thicker = amount > 0;
  float left = std::abs(amount);
  while (left > 0) {
    const float share = std::min(left, 1.0f);
    left -= share;
    Matrix next = line;
    filter_both_ways(next, [&](const float* from, int64_t n, int64_t step, float* to) {
      for (int64_t i = 0; i < n; ++i) {
        const float a = from[std::max<int64_t>(i - 1, 0) * step], b = from[i * step],
                    d = from[std::min(i + 1, n - 1) * step];
        to[i * step] = thicker ? std::max({a, b, d}) : std::min({a, b, d});
      }
    });
    for (size_t i = 0; i < line.data.size(); ++i)
      line.data[i] += share * (next.data[i] - line.data[i]);
  }
}

void blur(float deviation, Matrix& line) {
  const auto reach = static_cast<int64_t>(std::ceil(3 * deviation));
  std::vector<float> weights;
  float sum = 0;
  for (int64_t i = -reach; i <= reach; ++i) {
    const float z = static_cast<float>(i) / deviation;
    sum += weights.emplace_back(std::exp(-0.5f * z * z));
  }
  for (float& w : weights) w /= sum;
  filter_both_ways(line, [&](const float* from, int64_t n, int64_t step, float* to) {
    for (int64_t i = 0; i < n; ++i) {
      float mean = 0;
      for (int64_t k = -reach; k <= reach; ++k)
        mean += weights[static_cast<size_t>(k + reach)] *
                from[std::clamp<int64_t>(i + k, 0, n - 1) * step];
      to[i * step] = mean;
    }
  });
}

// What covers paper covers ink as well, but does not show there.
float over_paper(float ink, float covered) { return ink + covered * (1 - ink); }

// Shades of the paper from patches wider than the line down to its grain, each half as strong as
// the one before; the lightest spot is as light as it was.
void shade_paper(float most, Random& random, Matrix& line) {
  const auto height = static_cast<float>(line.dim);
  std::vector<SmoothGrid<float>> shades;
  for (const float spacing : {2 * height, height / 2, height / 8, 1.5f})
    shades.emplace_back(line.frames, line.dim, spacing,
                        [&] { return static_cast<float>(random.uniform()); });
  std::vector<float> sums;
  sums.reserve(line.data.size());
  for (int64_t x = 0; x < line.frames; ++x) {
    for (int32_t y = 0; y < line.dim; ++y) {
      float strength = 1, sum = 0;
      for (const SmoothGrid<float>& shade : shades) {
        sum += strength * shade.at(x, y);
        strength /= 2;
      }
      sums.push_back(sum);
    }
  }
  const auto [lightest, darkest] = std::ranges::minmax(sums);
  if (lightest == darkest) return;
  for (size_t i = 0; i < sums.size(); ++i)
    line.data[i] = over_paper(line.data[i], most * (sums[i] - lightest) / (darkest - lightest));
}

// The other side of the page: the line itself in a mirror, somewhere else and blurred by the paper,
// stands for what is printed there.
void show_through(float most, Random& random, Matrix& line) {
  const int64_t aside = random.below(line.frames);
  const auto lower = static_cast<int32_t>(random.below(line.dim)) - line.dim / 2;
  Matrix other(line.frames, line.dim);
  for (int64_t x = 0; x < line.frames; ++x) {
    const float* from = line.row((2 * line.frames - 1 - x - aside) % line.frames);
    for (int32_t y = std::max(0, lower); y < std::min(line.dim, line.dim + lower); ++y)
      other.row(x)[y] = from[y - lower];
  }
  blur(0.03f * static_cast<float>(line.dim), other);
  for (size_t i = 0; i < line.data.size(); ++i)
    line.data[i] = over_paper(line.data[i], most * other.data[i]);
}

// Numbers of its own, so that it changes nothing of what is drawn for the rest.
void lay_background(const DistortConfig& c, const AugmentKey& key, Matrix& line) {
  Random random(key.seed, key.epoch, key.utterance, Purpose::line_background);
  const float shade = positive_draw(random, c, c.background);
  const float other_side = positive_draw(random, c, c.show_through);
  if (other_side > 0) show_through(other_side, random, line);
  if (shade > 0) shade_paper(shade, random, line);
}

void cut_out(const DistortConfig& c, Random& random, Matrix& line) {
  if (c.strength == 0) return;
  const auto most_side = static_cast<float>(c.strength * c.cutout_size);
  for (int32_t i = 0; i < c.cutouts; ++i) {
    const bool happens = random.uniform() < static_cast<float>(c.probability);
    const auto side = [&](int64_t most) {
      return std::min<int64_t>(1 + static_cast<int64_t>(random.uniform(0, most_side)), most);
    };
    const int64_t width = side(line.frames), height = side(line.dim);
    const int64_t x = random.below(line.frames - width + 1),
                  y = random.below(line.dim - height + 1);
    // More often a hole than a blot: a blot hides more.
    const float ink = random.uniform() < 0.25 ? 1.0f : 0.0f;
    if (!happens) continue;
    for (int64_t column = x; column < x + width; ++column)
      std::fill_n(line.row(column) + y, height, ink);
  }
}

}  // namespace

void DistortConfig::validate() const {
  const auto require = [](bool ok, const char* what, auto value, auto... expected) {
    if (!ok) fail_input("distort: ", what, " is ", value, ", expected ", expected...);
  };
  require(probability >= 0 && probability <= 1, "probability", probability, "0 to 1");
  require(strength >= 0 && std::isfinite(strength), "strength", strength, "0 or more");
  const auto require_part = [&](const char* what, double setting, double most) {
    require(setting >= 0 && setting <= most, what, setting, "0 to ", most);
    const double all = strength * setting;
    if (all > most) require(false, str(what, " times strength").c_str(), all, "0 to ", most);
  };
  require_part("stretch", stretch, 0.5);
  require_part("slant", slant, 60);
  require_part("rotation", rotation, 30);
  require_part("size", size, 0.5);
  require_part("offset", offset, 100);
  require_part("elastic", elastic, 100);
  require_part("thickness", thickness, 10);
  require_part("blur", blur, 20);
  require_part("fade", fade, 1);
  require_part("background", background, 1);
  require_part("show_through", show_through, 1);
  require_part("noise", noise, 1);
  require(cutouts >= 0 && cutouts <= 1000, "cutouts", cutouts, "0 to 1000");
  require_part("cutout_size", cutout_size, 1024);
}

int32_t least_line_stretch(const DistortConfig& c) {
  return 1000 -
         static_cast<int32_t>(std::lround(1000 * static_cast<float>(c.strength * c.stretch)));
}

int32_t greatest_line_stretch(const DistortConfig& c) { return 2000 - least_line_stretch(c); }

int32_t line_stretch(const DistortConfig& c, const AugmentKey& key) {
  Random random(key.seed, key.epoch, key.utterance, Purpose::line_stretch);
  const float by = draw(random, c, c.stretch);
  return std::clamp(1000 + static_cast<int32_t>(std::lround(1000 * by)), least_line_stretch(c),
                    greatest_line_stretch(c));
}

void distort_line(const DistortConfig& c, const AugmentKey& key, Matrix& line) {
  Random random(key.seed, key.epoch, key.utterance, Purpose::line_shape);
  const float thickness = draw(random, c, c.thickness);
  const float deviation = positive_draw(random, c, c.blur);
  const float fading = draw(random, c, c.fade);
  const float noise = positive_draw(random, c, c.noise);
  bend(c, random, line);
  if (thickness != 0) thicken(thickness, line);
  if (deviation > 0.1f) blur(deviation, line);
  // Below 0 the ink loses, above it the paper gains.
  for (float& v : line.data) v = fading < 0 ? v * (1 + fading) : over_paper(v, fading);
  lay_background(c, key, line);
  if (noise > 0) {
    for (float& v : line.data) v += noise * random.normal();
  }
  cut_out(c, random, line);
  for (float& v : line.data) v = std::clamp(v, 0.0f, 1.0f);
}

}  // namespace rondo
