// Which greys of a line are ink and which are paper (internal to engine/data/image).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/data/image/line_features.h"

namespace rondo::image {

using Greys = std::array<int64_t, 256>;  // how many pixels have each

// The grey below which this share of the pixels is.
float level(const Greys& greys, double share);

// Fewer grey levels than this between ink and paper are noise, and are not stretched to 0 and 1.
inline constexpr float least_contrast = 32;

// A line's own: the paper, the grey of three quarters of its pixels, is 0, and the darkest
// hundredth
// 1. Without `contrast`, white and black. With a `row` the levels are of its strokes (LineScaling).
class InkScale {
 public:
  InkScale(const Greys& greys, Ink ink, bool contrast, std::span<const float> row = {});
  float operator()(float grey) const;
  bool is_light() const { return light_; }
  // The grey that is nothing.
  float paper() const { return light_ ? 255 - paper_ : paper_; }

 private:
  bool light_ = false;
  float paper_ = 255, range_ = 255;
};

}  // namespace rondo::image
