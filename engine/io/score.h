// What a validation is worth: the order by which one model is better than another.
//
// Thread safety: plain data.
#pragma once

#include <algorithm>
#include <limits>

namespace rondo {

// An error rate, or the loss itself, and the loss beside it; of both less is better. What is not
// known is infinite.
//
// A rate of 100 % or more says nothing: a model that writes nothing at all has 100 %, one that
// writes noise may have more. Such rates are equal, and of equal rates the lower loss is better. So
// of two validations the loss decides while the rate stands at its worst. (For a loss as the metric
// it comes to the same.)
struct Score {
  double metric = std::numeric_limits<double>::infinity();
  double loss = std::numeric_limits<double>::infinity();

  Score() = default;
  Score(double metric_of, double loss_of = std::numeric_limits<double>::infinity())
      : metric(metric_of), loss(loss_of) {}

  bool at_worst() const { return metric >= 1; }
  // A total order, unless something is NaN.
  bool better_than(const Score& other) const {
    const double mine = std::min(metric, 1.0), theirs = std::min(other.metric, 1.0);
    return mine != theirs ? mine < theirs : loss < other.loss;
  }
  bool operator==(const Score&) const = default;
};

}  // namespace rondo
