// Floats as numbers of few bits: bins of as many values each, that stand for their means (the
// binning of Federico and Bertoldi 2006, section 3.2).
//
// Thread safety: code() and centres() may be called at once.
#pragma once

#include <cstdint>
#include <vector>

namespace rondo::lm {

class Quantizer {
 public:
  void add(float value) { values_.push_back(value); }
  // After the last value. Where there are no more different values than numbers, each keeps its
  // own. With `keep_zero`, 0 stays 0 exactly.
  void finish(uint32_t bits, bool keep_zero);
  // The number of the centre nearest to a value.
  uint32_t code(float value) const;
  // 2^bits of them, ascending.
  const std::vector<float>& centres() const { return centres_; }

 private:
  std::vector<float> values_, centres_;
};

}  // namespace rondo::lm
