// Cepstral mean and variance normalisation: of each utterance by itself, or by statistics of the
// whole training set, which the model stores.
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/features/matrix.h"

namespace rondo {

// whole: all values of an utterance have one mean and one variance (the pixels of a line).
enum class CmvnMode : uint8_t { none, mean, mean_variance, global, whole };
const char* name_of(CmvnMode mode);

// Per column, or of all values as one: minus the mean, and with mean_variance and whole divided by
// the standard deviation. What has no variance becomes zeros.
void normalize_utterance(Matrix& features, CmvnMode mode);

struct GlobalCmvn {
  std::vector<float> mean, scale;  // [dim]; (x - mean) * scale

  bool operator==(const GlobalCmvn&) const = default;
};
// Throws Error when the dimensions differ.
void apply(const GlobalCmvn& cmvn, Matrix& features);

// Sums in double. Merging is exact up to rounding, so merge in a fixed order.
class CmvnStats {
 public:
  void add(const Matrix& features);  // throws Error when the dimension differs from earlier ones
  CmvnStats& operator+=(const CmvnStats& other);
  int64_t frames() const { return frames_; }
  // Throws InputError when there were no frames.
  GlobalCmvn finish() const;

 private:
  int64_t frames_ = 0;
  std::vector<double> sum_, squares_;
};

}  // namespace rondo
