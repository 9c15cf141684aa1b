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

// ---- as Tesseract scales lines, by Leptonica's pixScale. To less than 0.7 of the size, a pixel is
// the mean of what it covers; else it is interpolated between the four pixels about its upper left
// corner. Below 1.4 times the size the result is then sharpened: to each pixel is added a share of
// its difference from the mean of those around it.

// The pixels that one of the result is the weighted mean of, and their weights.
using PixelShares = std::vector<std::pair<int32_t, float>>;

// Places between pixels are rounded down to these.
double sixteenths(double place) { return std::floor(16 * place) / 16; }

std::vector<PixelShares> interpolated(int32_t from, int64_t to) {
  std::vector<PixelShares> all;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (int64_t i = 0; i < to; ++i) {
    const double at = std::min(sixteenths(static_cast<double>(i) * scale), from - 1.0);
    const auto first = static_cast<int32_t>(at);
    const auto share = static_cast<float>(at - first);
    all.push_back({{first, 1 - share}, {std::min(first + 1, from - 1), share}});
  }
  return all;
}

std::vector<PixelShares> averaged(int32_t from, int64_t to) {
  std::vector<PixelShares> all;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (int64_t i = 0; i < to; ++i) {
    const double begin = sixteenths(static_cast<double>(i) * scale);
    const double end = sixteenths(static_cast<double>(i + 1) * scale);
    PixelShares& taps = all.emplace_back();
    if (end >= from - 1) {
      taps.emplace_back(static_cast<int32_t>(begin), 1.0f);
      continue;
    }
    for (auto at = static_cast<int32_t>(begin); at < from && at < end; ++at) {
      const double covered = std::min(at + 1.0, end) - std::max<double>(at, begin);
      taps.emplace_back(at, static_cast<float>(covered / (end - begin)));
    }
  }
  return all;
}

// Where a mean would reach to the last row or column, there is a single pixel in its place.
Matrix weighted(const GreyImage& image, const std::vector<PixelShares>& down,
                const std::vector<PixelShares>& along) {
  const auto columns = static_cast<int64_t>(along.size());
  Matrix out(columns, static_cast<int32_t>(down.size()));
  std::vector<float> row(static_cast<size_t>(image.width));
  for (size_t y = 0; y < down.size(); ++y) {
    std::fill(row.begin(), row.end(), 0.0f);
    for (const auto& [at, weight] : down[y]) {
      const uint8_t* const from = image.row(at);
      for (size_t x = 0; x < row.size(); ++x) row[x] += weight * static_cast<float>(from[x]);
    }
    for (int64_t x = 0; x < columns; ++x) {
      const PixelShares& taps = along[static_cast<size_t>(x)];
      float sum = 0;
      if (taps.size() == 1 || down[y].size() == 1) {
        sum = image.row(down[y].front().first)[taps.front().first];
      } else {
        for (const auto& [at, weight] : taps) sum += weight * row[static_cast<size_t>(at)];
      }
      out.row(x)[y] = std::floor(sum + 0.5f);
    }
  }
  return out;
}

// `around`: how many pixels to each side the mean is of. Those nearer to an edge stay.
Matrix sharpened(const Matrix& grey, int64_t around, float share) {
  Matrix out = grey;
  const auto side = static_cast<float>(2 * around + 1);
  for (int64_t x = around; x + around < grey.frames; ++x) {
    for (int64_t y = around; y + around < grey.dim; ++y) {
      float sum = 0;
      for (int64_t i = x - around; i <= x + around; ++i) {
        for (int64_t j = y - around; j <= y + around; ++j) sum += grey.row(i)[j];
      }
      const float here = grey.row(x)[y];
      out.row(x)[y] =
          std::clamp(std::floor(here + share * (here - sum / (side * side)) + 0.5f), 0.0f, 255.0f);
    }
  }
  return out;
}

// Grey values, whole numbers, [columns, height].
Matrix tesseract_scaled(const GreyImage& image, int32_t height, int64_t columns) {
  const double factor = std::max(static_cast<double>(height) / image.height,
                                 static_cast<double>(columns) / image.width);
  const bool smaller = factor < 0.7, same = height == image.height && columns == image.width;
  const auto taps = smaller ? averaged : interpolated;
  const Matrix grey = weighted(image, taps(image.height, height), taps(image.width, columns));
  if (same || factor <= 0.2 || factor >= 1.4) return grey;
  return smaller ? sharpened(grey, 1, 0.2f) : sharpened(grey, 2, 0.4f);
}

// ----

image::Greys greys_of(const std::vector<float>& values) {
  image::Greys h{};
  for (float v : values) ++h[static_cast<size_t>(std::lround(std::clamp(v, 0.0f, 255.0f)))];
  return h;
}

// The heights of the bands of ink in a strip, by the share of each row that is ink. A band begins
// where there is far more than in the row with the least before it, and ends where there is far
// less than in its own row with the most.
std::vector<int32_t> band_heights(const std::vector<float>& shares) {
  constexpr float far = 4, least = 0.08f;
  std::vector<int32_t> heights;
  bool inside = false;
  float extreme = 0;  // the most in this band, or the least since the last one
  for (const float share : shares) {
    if (inside ? far * share < extreme : share > std::max(far * extreme, least)) {
      inside = !inside;
      extreme = share;
      if (inside) heights.push_back(0);
    }
    extreme = inside ? std::max(extreme, share) : std::min(extreme, share);
    if (inside) ++heights.back();
  }
  return heights;
}

// The share of each row that is ink, in the columns from `begin` to `end`.
std::vector<float> ink_shares(const GreyImage& image, const std::array<bool, 256>& is_ink,
                              int32_t begin, int32_t end) {
  std::vector<float> shares;
  for (int32_t y = 0; y < image.height; ++y) {
    const uint8_t* row = image.row(y);
    const auto inked = std::count_if(row + begin, row + end, [&](uint8_t v) { return is_ink[v]; });
    shares.push_back(static_cast<float>(inked) / static_cast<float>(end - begin));
  }
  return shares;
}

// Bands of letters have so many rows at least, and lines are so many times as long as they are
// apart.
constexpr int32_t least_band = 6, least_length = 2;

int32_t lines_in_strip(const std::vector<float>& shares, int32_t width) {
  const std::vector<int32_t> heights = band_heights(shares);
  if (heights.empty()) return 0;
  const int32_t tallest = *std::max_element(heights.begin(), heights.end());
  const auto lines =
      static_cast<int32_t>(std::count_if(heights.begin(), heights.end(), [&](int32_t h) {
        return h >= least_band && 3 * h >= tallest;
      }));
  const bool are_long =
      int64_t{width} * lines >= least_length * static_cast<int64_t>(shares.size());
  return are_long ? lines : 0;
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
  const bool as_tesseract = c.scaling == LineScaling::tesseract;
  const auto scale = as_tesseract ? tesseract_scaled : scaled;
  const Matrix grey = scale(turned(image, c.direction), c.height, columns);
  std::vector<float> middle;  // row
  for (int64_t x = 0; as_tesseract && x < grey.frames; ++x)
    middle.push_back(grey.row(x)[c.height / 2]);
  const image::InkScale ink(greys_of(grey.data), c.ink, c.contrast, middle);
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

bool is_light_on_dark(const GreyImage& image) {
  image::Greys greys{};
  for (const uint8_t v : image.pixels) ++greys[v];
  return image::InkScale(greys, Ink::automatic, true).is_light();
}

int32_t count_lines(const GreyImage& image, const LineConfig& config) {
  constexpr int32_t strips = 4, page = 5;
  if (is_blank(image) || std::min(image.width, image.height) < page * least_band) return 0;
  if (config.direction == LineDirection::downwards) {
    LineConfig level = config;
    level.direction = LineDirection::rightwards;
    return count_lines(turned(image, config.direction), level);
  }
  image::Greys greys{};
  for (uint8_t v : image.pixels) ++greys[v];
  const image::InkScale scale(greys, config.ink, true);
  std::array<bool, 256> is_ink{};
  for (size_t v = 0; v < is_ink.size(); ++v) is_ink[v] = scale(static_cast<float>(v)) >= 0.5f;
  std::array<int32_t, strips> lines{};
  for (int32_t i = 0; i < strips; ++i) {
    const auto edge = [&](int64_t n) { return static_cast<int32_t>(n * image.width / strips); };
    const int32_t begin = edge(i), end = edge(i + 1);
    lines[static_cast<size_t>(i)] =
        lines_in_strip(ink_shares(image, is_ink, begin, end), end - begin);
  }
  std::sort(lines.begin(), lines.end());
  const int32_t seen = lines[strips - 2];
  return seen < page ? 0 : seen;
}

std::string page_warning(const GreyImage& image, const LineConfig& config,
                         const std::string& name) {
  const int32_t lines = count_lines(image, config);
  if (lines == 0) return {};
  return str(name, ": seems to be a page of about ", lines,
             " lines, and is read as one line; give a PAGE-XML or ALTO file that says where the "
             "lines are, or an image of each");
}

}  // namespace rondo
