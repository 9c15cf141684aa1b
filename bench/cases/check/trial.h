// A trial of an op's variants on this device, for one class of calls: which of them are right, and
// how long each takes. engine/trial decides by that which of them runs.
//
// `portable` is compared with the CPU's kernels, on short ragged sequences; the others with
// `portable`, on these and on long ones, each twice, as the same bits must come; by the tolerances
// of checkop's cases, between guard zones, on random data. Then it is timed on the long ones.
//
// A kernel may end this process or hang: who calls this is a process that another one watches.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "bench/cases/check/check.h"

namespace rondo::check {

struct TrialOptions {
  Device* device = nullptr;  // sim or cuda
  uint64_t seed = 1;
  int short_frames = 32, long_frames = 512;
  double seconds = 0.05;               // that a variant is timed for
  std::set<std::string> known;         // variants that are not tried again
  std::span<const Variant> more = {};  // candidates beside those of the program
};

// What is said of a variant: first `begins`, then one of the others.
struct TrialLine {
  enum State : uint8_t { begins, right, wrong, declines };
  std::string variant;
  State state = begins;
  double us = 0;    // of a time step, where it is right
  std::string why;  // where it is wrong
};
const char* name_of(TrialLine::State state);

// Says each line when it is known. InputError for an op or a class that is not tried.
void run_trial(const std::string& op, const std::string& call_class, const TrialOptions& options,
               const std::function<void(const TrialLine&)>& say);

// Calls of a class as a case, with these lengths, as many as the class has sequences; in
// bench/cases/lstm.cc.
CaseFunction lstm_trial_case(const std::string& op, const std::string& call_class,
                             const std::vector<int32_t>& lengths);

}  // namespace rondo::check
