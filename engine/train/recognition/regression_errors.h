// How far numbers that a model says are from those that it should say.
//
//   MAE    mean of |answer - target|
//   RMSE   root of the mean of (answer - target)^2
//   R2     1 - sum of (answer - target)^2 / sum of (target - mean target)^2: 1 is perfect, 0 what
//   the
//          mean of the targets would get as the answer to all
//
// Of several numbers per utterance each column counts by itself; the whole is the mean over columns
// of MAE and of R2, and of RMSE's squares. Plain data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

class RegressionErrors {
 public:
  struct Figures {
    double mae = 0, rmse = 0;
    double r2 = 0;  // NaN where all targets are equal
  };

  void add(std::span<const float> target, std::span<const float> answer);

  int64_t count() const { return count_; }
  // NaN without an utterance.
  Figures all() const;
  std::vector<Figures> columns() const;

 private:
  struct Column {
    double absolute = 0, squares = 0;  // of errors
    double mean = 0, spread = 0;       // of targets: sum of squares around the mean (Welford)
  };
  Figures of(const Column& column) const;

  int64_t count_ = 0;
  std::vector<Column> columns_;
};

}  // namespace rondo
