#include "engine/data/image/ink_levels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace rondo::image {

float level(const Greys& greys, double share) {
  int64_t all = 0;
  for (int64_t n : greys) all += n;
  const auto wanted = static_cast<int64_t>(share * static_cast<double>(all - 1));
  int64_t below = 0;
  for (size_t grey = 0; grey < greys.size(); ++grey) {
    below += greys[grey];
    if (below > wanted) return static_cast<float>(grey);
  }
  return 255;
}

namespace {

// The grey below which this share of the pixels is, between the whole greys: of those that have
// one grey, all are taken to be spread up to the next.
double quantile(const Greys& greys, double share) {
  const auto all = static_cast<double>(std::accumulate(greys.begin(), greys.end(), int64_t{0}));
  const double wanted = std::clamp(share * all, 1.0, all);
  double below = 0;
  for (size_t grey = 0; grey < greys.size(); ++grey) {
    const auto here = static_cast<double>(greys[grey]);
    if (below + here >= wanted) return static_cast<double>(grey) + (wanted - below) / here;
    below += here;
  }
  return 255;
}

// The lower quartile of the places that are darker than those beside them, and the upper one of
// those that are lighter; black and white where there are none.
std::pair<double, double> stroke_levels(std::span<const float> row) {
  Greys dark{}, light{};
  const auto grey = [&](size_t i) {
    return static_cast<size_t>(std::lround(std::clamp(row[i], 0.0f, 255.0f)));
  };
  for (size_t i = 1; i + 1 < row.size(); ++i) {
    const size_t before = grey(i - 1), here = grey(i), after = grey(i + 1);
    if (before == here && here == after) continue;
    if (here <= before && here <= after) ++dark[here];
    if (here >= before && here >= after) ++light[here];
  }
  const auto any = [](const Greys& g) {
    return std::any_of(g.begin(), g.end(), [](int64_t n) { return n > 0; });
  };
  return {any(dark) ? quantile(dark, 0.25) : 1, any(light) ? quantile(light, 0.75) : 256};
}

}  // namespace

InkScale::InkScale(const Greys& greys, Ink ink, bool contrast, std::span<const float> row) {
  // Whichever is the smaller part of the image is further from its median.
  light_ = ink == Ink::light ||
           (ink == Ink::automatic &&
            level(greys, 0.5) - level(greys, 0.01) < level(greys, 0.99) - level(greys, 0.5));
  if (!contrast) return;
  if (!row.empty()) {
    std::vector<float> shown(row.begin(), row.end());
    for (float& v : shown) v = light_ ? 255 - v : v;
    const auto [black, white] = stroke_levels(shown);
    paper_ = static_cast<float>(white);
    range_ = white > black ? static_cast<float>(white - black) : 2;
    return;
  }
  Greys darker = greys;
  if (light_) std::reverse(darker.begin(), darker.end());
  paper_ = level(darker, 0.75);
  range_ = std::max(paper_ - level(darker, 0.01), least_contrast);
}

float InkScale::operator()(float grey) const {
  return std::clamp((paper_ - (light_ ? 255 - grey : grey)) / range_, 0.0f, 1.0f);
}

}  // namespace rondo::image
