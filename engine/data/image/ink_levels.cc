#include "engine/data/image/ink_levels.h"

#include <algorithm>

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

InkScale::InkScale(const Greys& greys, Ink ink, bool contrast) {
  // Whichever is the smaller part of the image is further from its median.
  light_ = ink == Ink::light ||
           (ink == Ink::automatic &&
            level(greys, 0.5) - level(greys, 0.01) < level(greys, 0.99) - level(greys, 0.5));
  if (!contrast) return;
  Greys darker = greys;
  if (light_) std::reverse(darker.begin(), darker.end());
  paper_ = level(darker, 0.75);
  range_ = std::max(paper_ - level(darker, 0.01), least_contrast);
}

float InkScale::operator()(float grey) const {
  return std::clamp((paper_ - (light_ ? 255 - grey : grey)) / range_, 0.0f, 1.0f);
}

}  // namespace rondo::image
