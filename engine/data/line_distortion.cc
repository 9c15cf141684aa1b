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
float draw(Random& random, float probability, float most) {
  const bool happens = random.uniform() < probability;
  const auto value = static_cast<float>(random.uniform(-most, most));
  return happens ? value : 0;
}

float positive_draw(Random& random, float probability, float most) {
  return std::abs(draw(random, probability, most));
}

struct Shift {
  float x = 0, y = 0;
};

// Shifts at the points of a grid over the line, and between them a smooth mean of the four around.
class ShiftGrid {
 public:
  ShiftGrid(int64_t columns, int32_t height, float most, Random& random)
      : spacing_(0.75f * static_cast<float>(height)),
        across_(static_cast<size_t>(static_cast<float>(columns) / spacing_) + 2),
        points_(across_ * (static_cast<size_t>(1 / 0.75f) + 2)) {
    for (Shift& s : points_) {
      s.x = static_cast<float>(random.uniform(-most, most));
      s.y = static_cast<float>(random.uniform(-most, most));
    }
  }

  Shift at(int64_t x, int32_t y) const {
    const float gx = static_cast<float>(x) / spacing_, gy = static_cast<float>(y) / spacing_;
    const auto ix = static_cast<size_t>(gx), iy = static_cast<size_t>(gy);
    const float fx = ease(gx - static_cast<float>(ix)), fy = ease(gy - static_cast<float>(iy));
    const Shift* upper = &points_[iy * across_ + ix];
    const Shift* lower = upper + across_;
    const auto mix = [&](float a, float b, float c, float d) {
      return (a * (1 - fx) + b * fx) * (1 - fy) + (c * (1 - fx) + d * fx) * fy;
    };
    return {mix(upper[0].x, upper[1].x, lower[0].x, lower[1].x),
            mix(upper[0].y, upper[1].y, lower[0].y, lower[1].y)};
  }

 private:
  // Without a kink at the points.
  static float ease(float t) { return t * t * (3 - 2 * t); }

  float spacing_;
  size_t across_;
  std::vector<Shift> points_;
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
  const float lean = std::tan(radians(draw(random, c.probability, c.slant)));
  const float rise = std::tan(radians(draw(random, c.probability, c.rotation)));
  const float higher = 1 + draw(random, c.probability, c.size);
  const float offset = draw(random, c.probability, c.offset);
  const float shift = positive_draw(random, c.probability, c.elastic);
  if (lean == 0 && rise == 0 && higher == 1 && offset == 0 && shift == 0) return;
  const ShiftGrid grid(line.frames, line.dim, shift, random);
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

void cut_out(const DistortConfig& c, Random& random, Matrix& line) {
  for (int32_t i = 0; i < c.cutouts; ++i) {
    const bool happens = random.uniform() < c.probability;
    const auto side = [&](int64_t most) {
      return std::min<int64_t>(1 + static_cast<int64_t>(random.uniform(0, c.cutout_size)), most);
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
  const auto require = [](bool ok, const char* what, auto value, const char* expected) {
    if (!ok) fail_input("distort: ", what, " is ", value, ", expected ", expected);
  };
  require(probability >= 0 && probability <= 1, "probability", probability, "0 to 1");
  require(stretch >= 0 && stretch <= 0.5f, "stretch", stretch, "0 to 0.5");
  require(slant >= 0 && slant <= 60, "slant", slant, "0 to 60");
  require(rotation >= 0 && rotation <= 30, "rotation", rotation, "0 to 30");
  require(size >= 0 && size <= 0.5f, "size", size, "0 to 0.5");
  require(offset >= 0 && offset <= 100, "offset", offset, "0 to 100");
  require(elastic >= 0 && elastic <= 100, "elastic", elastic, "0 to 100");
  require(thickness >= 0 && thickness <= 10, "thickness", thickness, "0 to 10");
  require(blur >= 0 && blur <= 20, "blur", blur, "0 to 20");
  require(fade >= 0 && fade <= 1, "fade", fade, "0 to 1");
  require(noise >= 0 && noise <= 1, "noise", noise, "0 to 1");
  require(cutouts >= 0 && cutouts <= 1000, "cutouts", cutouts, "0 to 1000");
  require(cutout_size >= 0 && cutout_size <= 1024, "cutout_size", cutout_size, "0 to 1024");
}

int32_t least_line_stretch(const DistortConfig& c) {
  return 1000 - static_cast<int32_t>(std::lround(1000 * c.stretch));
}

int32_t greatest_line_stretch(const DistortConfig& c) { return 2000 - least_line_stretch(c); }

int32_t line_stretch(const DistortConfig& c, const AugmentKey& key) {
  Random random(key.seed, key.epoch, key.utterance, Purpose::line_stretch);
  const float by = draw(random, c.probability, c.stretch);
  return std::clamp(1000 + static_cast<int32_t>(std::lround(1000 * by)), least_line_stretch(c),
                    greatest_line_stretch(c));
}

void distort_line(const DistortConfig& c, const AugmentKey& key, Matrix& line) {
  Random random(key.seed, key.epoch, key.utterance, Purpose::line_shape);
  const float thickness = draw(random, c.probability, c.thickness);
  const float deviation = positive_draw(random, c.probability, c.blur);
  const float fading = draw(random, c.probability, c.fade);
  const float noise = positive_draw(random, c.probability, c.noise);
  bend(c, random, line);
  if (thickness != 0) thicken(thickness, line);
  if (deviation > 0.1f) blur(deviation, line);
  // Below 0 the ink loses, above it the paper gains.
  for (float& v : line.data) v = fading < 0 ? v * (1 + fading) : v + fading * (1 - v);
  if (noise > 0) {
    for (float& v : line.data) v += noise * random.normal();
  }
  cut_out(c, random, line);
  for (float& v : line.data) v = std::clamp(v, 0.0f, 1.0f);
}

}  // namespace rondo
