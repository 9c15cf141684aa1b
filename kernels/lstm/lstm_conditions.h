// Which shapes each GPU variant of the LSTM's time loops takes, in one table, in the order of
// choice: the first that takes a call runs it, unless another is preferred by name
// (prefer_variant). Beside this a variant asks the machine (kernels/lstm/lstm_proven.h says what is
// asked on GPUs before a variant may be chosen at all). On the simulator `portable` comes first.
#pragma once

#include <limits>
#include <string_view>

#include "kernels/lstm/lstm.h"

namespace rondo {

struct LstmConditions {
  const char* variant;
  bool f32;                   // bf16: always
  int64_t smallest, largest;  // H
  bool projection;
  int architecture;  // sm_..., at least
};

inline constexpr LstmConditions lstm_conditions[] = {
    {"cluster", false, 1, 512, false, 90},
    // Below, a cluster holds all of R.
    {"grid_cluster", false, 513, 1024, false, 90},
    {"grid", true, 1, 1024, false, 80},
    {"portable", true, 1, std::numeric_limits<int64_t>::max(), true, 80},
};

// Null for names that are not in the table.
const LstmConditions* find_lstm_conditions(std::string_view variant);

// The simulator takes small H in every variant, so that tests reach every edge.
bool lstm_suits(std::string_view variant, Backend backend, const LstmDims& dims, DType compute);

}  // namespace rondo
