// Which shapes each GPU variant of the LSTM's time loops takes, in one table. Beside this a variant
// asks the machine. `portable` takes every shape, and runs unless a trial on the device chose
// another one (engine/trial/trial.h), or one is preferred by name (prefer_variant).
#pragma once

#include <iosfwd>
#include <limits>
#include <string>
#include <string_view>

#include "kernels/lstm/lstm.h"

namespace rondo {

struct LstmConditions {
  const char* variant;
  int64_t smallest, largest;  // H
  int64_t largest_f32;        // the same in f32; 0: bf16 alone
  bool projection;
  int architecture;     // sm_..., at least
  const char* machine;  // what else it asks of the machine, in words; empty: nothing
};

inline constexpr int64_t lstm_unbounded = std::numeric_limits<int64_t>::max();

inline constexpr LstmConditions lstm_conditions[] = {
    // f32: beyond, R does not fit into the registers of a cluster (docs/kernels/lstm_gpu.md).
    {"cluster_split", 1, 512, 256, false, 90, "a cluster that fits"},
    // Below, a cluster holds all of R.
    {"grid_cluster", 513, 1024, 0, false, 90, "all blocks resident; polls"},
    {"grid", 1, 1024, 1024, false, 80, "all blocks resident; polls"},
    {"portable", 1, lstm_unbounded, lstm_unbounded, true, 80, ""},
};

// Null for names that are not in the table.
const LstmConditions* find_lstm_conditions(std::string_view variant);

// The simulator takes small H in every variant, so that tests reach every edge.
bool lstm_suits(std::string_view variant, Backend backend, const LstmDims& dims, DType compute);

// The same for people: "bf16, or f32 up to H = 256; H <= 512; no projection; sm_90; a cluster that
// fits".
std::string lstm_conditions_in_words(const LstmConditions& conditions, Backend backend);

}  // namespace rondo
