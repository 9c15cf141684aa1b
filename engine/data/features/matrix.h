// Rows of floats: the features of one recording, one row per frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rondo {

struct Matrix {
  int64_t frames = 0;
  int32_t dim = 0;
  std::vector<float> data;  // [frames, dim], row-major

  Matrix() = default;
  Matrix(int64_t frames_, int32_t dim_)
      : frames(frames_),
        dim(dim_),
        data(static_cast<size_t>(frames_) * static_cast<size_t>(dim_)) {}
  float* row(int64_t t) { return data.data() + t * dim; }
  const float* row(int64_t t) const { return data.data() + t * dim; }
  bool operator==(const Matrix&) const = default;
};

}  // namespace rondo
