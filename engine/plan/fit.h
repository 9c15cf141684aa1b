// Rates of a device from measured times of graph nodes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/machine.h"

namespace rondo::plan {

// One node, timed.
struct Sample {
  std::string op;
  DType dtype = DType::f32;
  NodeWork work;
  double seconds = 0;
  int shape = 0;  // which model and batch it belongs to
};

double median(std::vector<double> values);

// The non-negative rates with the least errors, relative to what they predict: squared while they
// are small, by their size where not (Huber's loss), so that a few times that are far too long do
// not move them. Sums of predictions are neither too long nor too short where times scatter evenly
// about them. (Least squares weighted anew by the last round's predictions; each is convex, and
// solved by coordinate descent on the normal equations.) All samples count, whatever their op.
Rates fit_rates(std::span<const Sample> samples);

// One fit per op and dtype, and one per class and dtype: DeviceModel::rates.
std::map<std::string, Rates> fit_all_rates(std::span<const Sample> samples);

// How far off a device's rates are for whole steps, the sums over all nodes of a shape: the median
// of |predicted - measured| / measured.
double step_error(const DeviceModel& device, std::span<const Sample> samples);

}  // namespace rondo::plan
