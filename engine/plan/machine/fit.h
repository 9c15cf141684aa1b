// Constants of a device from measured times of graph nodes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/machine/cost.h"

namespace rondo::plan {

// One node, timed.
struct Sample {
  std::string key;  // of DeviceModel::costs: "lstm/f32"
  NodeWork work;
  double seconds = 0;
  int shape = 0;  // which model and batch it belongs to
};

// The non-negative constants with the least errors, relative to what they predict: squared while
// they are small, by their size where not (Huber's loss), so that a few times that are far too long
// do not move them. Sums of predictions are neither too long nor too short where times scatter
// evenly about them. (Least squares weighted anew by the last round's predictions; each is convex,
// and solved by coordinate descent on the normal equations.) All samples count, whatever their key.
OpCost fit_cost(std::span<const Sample> samples);

// One fit per key, and one of all that only move data, "other", for those that were not measured.
std::map<std::string, OpCost> fit_costs(std::span<const Sample> samples);

// |predicted - measured| / measured: the median and the largest, and the median with its sign.
struct FitError {
  size_t samples = 0;
  double median = 0, largest = 0;
  double bias = 0;
};
// How well a model predicts samples, by key, those that only move data together as "other"; under
// "step", the sums over all nodes of a shape.
std::map<std::string, FitError> fit_errors(const DeviceModel& device,
                                           std::span<const Sample> samples);

}  // namespace rondo::plan
