// The rule of kernels/gemm/int8.h in plain loops, for the references of ops that follow it.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/gemm/int8.h"

namespace rondo {

struct Int8Row {
  std::vector<int8_t> values;
  float scale = 0;

  // k values, `stride` apart.
  Int8Row(const float* x, int64_t k, int64_t stride = 1) {
    float most = 0;
    for (int64_t i = 0; i < k && !std::isnan(most); ++i) {
      const float magnitude = std::fabs(x[i * stride]);
      if (!(magnitude <= most)) most = magnitude;
    }
    const Int8Scale s = int8_scale(most);
    for (int64_t i = 0; i < k; ++i) values.push_back(int8_of(x[i * stride], s.inverse));
    scale = s.scale;
  }

  float times(const Int8Row& other) const {
    int32_t sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[i] * other.values[i];
    const float both = scale * other.scale;
    return static_cast<float>(sum) * both;
  }
};

}  // namespace rondo
