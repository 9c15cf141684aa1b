// What trials of kernels on a device found, in memory and in the cache of the user.
//
// The cache is a file per device, driver and build, under $XDG_CACHE_HOME/rondo or ~/.cache/rondo.
// A file that cannot be read counts as none.
//
// Thread safety: none needed; processes may read and write one file at once, the last one counts.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/dispatch.h"

namespace rondo {

// Calls that are tried together (CallClass in kernels/base/dispatch.h).
struct TriedCalls {
  std::string op, call_class;
  bool operator==(const TriedCalls&) const = default;
};

// One variant of such calls.
struct TrialRow {
  enum Outcome : unsigned char {
    right,
    wrong,     // `why`: the numbers that differ, a write out of bounds, other bits in a second run
    ended,     // the process that tried it: `why` says how
    declines,  // the variant does not take such calls here
  };
  TriedCalls calls;
  std::string variant;
  Outcome outcome = right;
  double us = 0;  // of a time step, where it is right
  std::string why;
  bool operator==(const TrialRow&) const = default;
};
const char* name_of(TrialRow::Outcome outcome);

struct TrialTable {
  std::string device;  // identity_of() it
  std::vector<TrialRow> rows;

  bool knows(const TriedCalls& calls) const;
  // In place of what is there of the calls of `more`.
  void add(const std::vector<TrialRow>& more);
};

// The variant that runs: the first one that was tried, which is the static order's, unless another
// right one is quicker by `worth` or more, so that noise changes nothing. Empty: none is right.
inline constexpr double worth = 1.15;
std::string chosen_of(const TrialTable& table, const TriedCalls& calls);

// Of all calls that the table knows.
std::vector<KernelChoice> choices_of(const TrialTable& table, Backend backend);

// Choices as a run keeps them: "cuda lstm_forward/bf16 h512 d2 n32" has a variant. Entries that
// written() does not write are left out.
std::map<std::string, std::string> written(const std::vector<KernelChoice>& choices);
std::vector<KernelChoice> choices_written(const std::map<std::string, std::string>& text);

// What a run goes on with that had `before`: these, where the table does not say that they are not
// right here, and what the table says of other calls. *changed gets a sentence for each that is no
// longer what it was, after which results differ in their last bits.
std::vector<KernelChoice> choices_after(const std::vector<KernelChoice>& before,
                                        const TrialTable& table, Backend backend,
                                        std::vector<std::string>* changed);

// One line for calls that the table knows: "lstm_forward bf16 h512 d2 n32: cluster_split, 1.7 us a
// time step (portable 4.2)".
std::string line_of(const TrialTable& table, const TriedCalls& calls);

std::string to_json(const TrialTable& table);
// Throws InputError, with `name` for the text, for what to_json() does not write.
TrialTable trial_table_from_json(std::string_view text, const std::string& name);

// Where the cache of this device lies; empty where the environment names no home.
std::filesystem::path trial_cache(const std::string& device);
// An empty table of the device where there is no file, or none that can be read.
TrialTable read_trial_cache(const std::string& device);
// The reason where it cannot be written; else empty.
std::string write_trial_cache(const TrialTable& table);

}  // namespace rondo
