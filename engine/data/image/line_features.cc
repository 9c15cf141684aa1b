#include "engine/data/image/line_features.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/data/image/ink_levels.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// The pixels that a scaled one is the weighted mean of.
struct Taps {
  int32_t first = 0;
  std::vector<float> weights;  // their sum is 1
};

// A triangle around each pixel's middle that reaches to the next pixel's, or, where the picture
// gets smaller, to what would be the next pixel of the result.
std::vector<Taps> taps_of(int32_t from, int64_t to) {
  std::vector<Taps> all(static_cast<size_t>(to));
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(scale, 1.0);
  for (size_t i = 0; i < all.size(); ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * scale - 0.5;
    const auto first = std::max<int64_t>(static_cast<int64_t>(std::ceil(middle - reach)), 0);
    const auto last = std::min<int64_t>(static_cast<int64_t>(std::floor(middle + reach)), from - 1);
    Taps& t = all[i];
    t.first = static_cast<int32_t>(first);
    double sum = 0;
    for (int64_t at = first; at <= last; ++at) {
      const double weight = std::max(1 - std::abs(static_cast<double>(at) - middle) / reach, 1e-6);
      t.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& w : t.weights) w = static_cast<float>(w / sum);
  }
  return all;
}

// Grey values [columns, height]: turned, so that a column lies together.
Matrix scaled(const GreyImage& image, int32_t height, int64_t columns) {
  const std::vector<Taps> down = taps_of(image.height, height),
                          along = taps_of(image.width, columns);
  const auto width = static_cast<size_t>(image.width);
  std::vector<float> lines(width * static_cast<size_t>(height));  // [height, width]
  for (size_t y = 0; y < down.size(); ++y) {
    float* to = &lines[y * width];
    for (size_t k = 0; k < down[y].weights.size(); ++k) {
      const uint8_t* row = image.row(down[y].first + static_cast<int32_t>(k));
      const float weight = down[y].weights[k];
      for (size_t x = 0; x < width; ++x) to[x] += weight * static_cast<float>(row[x]);
    }
  }
  Matrix out(columns, height);
  for (int64_t x = 0; x < columns; ++x) {
    const Taps& taps = along[static_cast<size_t>(x)];
    for (size_t y = 0; y < down.size(); ++y) {
      const float* from = &lines[y * width + static_cast<size_t>(taps.first)];
      float sum = 0;
      for (size_t k = 0; k < taps.weights.size(); ++k) sum += taps.weights[k] * from[k];
      out.row(x)[y] = sum;
    }
  }
  return out;
}

image::Greys greys_of(const std::vector<float>& values) {
  image::Greys h{};
  for (float v : values) ++h[static_cast<size_t>(std::lround(std::clamp(v, 0.0f, 255.0f)))];
  return h;
}

}  // namespace

ImageInfo turned(ImageInfo size, LineDirection direction) {
  if (direction == LineDirection::downwards) std::swap(size.width, size.height);
  return size;
}

GreyImage turned(const GreyImage& image, LineDirection direction) {
  if (direction == LineDirection::rightwards) return image;
  const ImageInfo size = turned(image.info(), direction);
  GreyImage out(size.width, size.height);
  for (int32_t y = 0; y < size.height; ++y) {
    for (int32_t x = 0; x < size.width; ++x) {
      out.row(y)[x] = direction == LineDirection::leftwards ? image.row(y)[image.width - 1 - x]
                                                            : image.row(x)[image.width - 1 - y];
    }
  }
  return out;
}

int64_t LineConfig::scaled_width(ImageInfo size, int32_t permille) const {
  size = turned(size, direction);
  const double width = static_cast<double>(size.width) * height * permille;
  return std::max<int64_t>(std::llround(width / (1000.0 * size.height)), 1);
}

void LineConfig::require_line(ImageInfo size, const std::string& name) const {
  const int64_t columns = scaled_width(size);
  if (columns <= most_line_columns) return;
  fail_input(name, ": is ", size.width, " x ", size.height, " pixels, ", columns,
             " columns at a height of ", height, "; expected a line of text, at most ",
             most_line_columns, " columns");
}

void LineConfig::validate() const {
  if (height < 4 || height > 1024) fail_input("height is ", height, ", expected 4 to 1024");
  if (padding < 0 || padding > 1024) fail_input("padding is ", padding, ", expected 0 to 1024");
}

Matrix line_features(const LineConfig& c, const GreyImage& image, int64_t columns) {
  Matrix grey = scaled(turned(image, c.direction), c.height, columns);
  const image::InkScale ink(greys_of(grey.data), c.ink, c.contrast);
  Matrix out(c.frames(columns), c.height);
  float* to = out.row(c.padding);
  for (size_t i = 0; i < grey.data.size(); ++i) to[i] = ink(grey.data[i]);
  return out;
}

bool is_blank(const GreyImage& image) {
  image::Greys h{};
  for (uint8_t v : image.pixels) ++h[v];
  return image::level(h, 0.99) - image::level(h, 0.01) < image::least_contrast / 2;
}

}  // namespace rondo
