// The trial at first use: where a program meets a GPU, driver or build for the first time, the
// kernels that a model needs are tried there, and what is right and quickest runs.
//
// A helper program tries them in a process of its own (bench/cases/check/trial.h): a kernel that
// traps or hangs ends that process, and the next one goes on without it. What was found is kept in
// the cache of the user (trial_table.h). The environment's RONDO_TRIAL: "off" keeps the order of
// the tables, "on" tries on the simulator too, where nothing is worth trying otherwise.
//
// Thread safety: as set_choices(): before kernels run.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/parallel/child_process.h"
#include "engine/reduce/ranks.h"
#include "engine/trial/trial_table.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"

namespace rondo {

// The calls of a graph that are tried, with 1, 2, 4, ... sequences up to the power of two that is
// not below `sequences`; the largest first.
std::vector<TriedCalls> tried_calls(const Graph& graph, int64_t sequences);

// What train() throws before the first step where no variant of a kernel that the model needs is
// right on the device.
class UnfitDevice : public InputError {
 public:
  using InputError::InputError;
};

struct TrialSettings {
  // A program whose command `try-kernels` runs trials as that of `rondo` does.
  std::string helper = ChildProcess::itself;
  std::vector<std::string> arguments = {"rondo", "try-kernels"};
  // A variant is given up that says nothing for so long, and what is left when all took so long.
  std::chrono::milliseconds patience{4000}, longest{30000};
  bool again = false;                // what the cache knows too
  std::vector<KernelChoice> before;  // of a run that goes on
  // Hears that a trial of so many classes of calls begins, on the rank that tries.
  std::function<void(size_t calls)> begins;
  // Hears of each variant that is tried.
  std::function<void(const TrialRow&)> tried;
};

// Runs helpers until all of the calls are tried, or settings.longest is over. Rows of the calls
// that are through, in the order in which they were tried; *trouble says why calls are missing,
// empty where none are. Throws InputError where the helper cannot be started.
std::vector<TrialRow> run_trials(const DeviceId& device, const std::vector<TriedCalls>& calls,
                                 const TrialSettings& settings, std::string* trouble);

struct TrialOutcome {
  TrialTable table;                   // empty where nothing is tried
  std::vector<KernelChoice> choices;  // what runs from now on
  std::vector<std::string> messages;  // for a person
  std::vector<std::string> changed;   // as choices_after()
  // Of the calls asked for there is one that no variant of is right.
  bool failed = false;
};

// Finds what the calls run on this device, in the cache or by a trial, and has them run it from now
// on (set_choices()). Rank 0 tries for all ranks, which are on devices alike; where they are not,
// the static order stays. Called by all ranks. `settings.helper` empty: the cache alone.
TrialOutcome choose_kernels(const Ranks& ranks, const DeviceId& device,
                            const std::vector<TriedCalls>& calls, const TrialSettings& settings);

// For programs that try nothing themselves: what the cache knows of this device runs from now on,
// unless RONDO_TRIAL is "off". InputError for a RONDO_TRIAL that is no such word.
void choose_known_kernels(const DeviceId& device);

}  // namespace rondo
