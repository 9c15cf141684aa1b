#include "engine/lm/quantizer.h"

#include <algorithm>
#include <cmath>

namespace rondo::lm {

void Quantizer::finish(uint32_t bits, bool keep_zero) {
  const size_t most = size_t{1} << bits;
  std::sort(values_.begin(), values_.end());
  std::vector<float> different;
  for (const float v : values_) {
    if (different.size() > most) break;
    if (different.empty() || v != different.back()) different.push_back(v);
  }
  if (different.size() <= most) {
    centres_ = different;
  } else {
    if (keep_zero) {
      values_.erase(std::remove(values_.begin(), values_.end(), 0.0f), values_.end());
      centres_.push_back(0);
    }
    const size_t bins = most - centres_.size();
    for (size_t b = 0; b < bins; ++b) {
      const size_t begin = values_.size() * b / bins, end = values_.size() * (b + 1) / bins;
      double sum = 0;
      for (size_t i = begin; i < end; ++i) sum += values_[i];
      if (begin < end) centres_.push_back(static_cast<float>(sum / double(end - begin)));
    }
    std::sort(centres_.begin(), centres_.end());
  }
  if (centres_.empty()) centres_.push_back(0);
  centres_.resize(most, centres_.back());
  values_ = {};
}

uint32_t Quantizer::code(float value) const {
  const auto above = std::lower_bound(centres_.begin(), centres_.end(), value);
  if (above == centres_.begin()) return 0;
  if (above == centres_.end()) return static_cast<uint32_t>(centres_.size() - 1);
  const auto below = above - 1;
  const bool nearer_below = value - *below < *above - value;
  return static_cast<uint32_t>((nearer_below ? below : above) - centres_.begin());
}

}  // namespace rondo::lm
