// How much of a GPU the persistent kernels of the LSTM's time loops keep from their first step to
// their last, as arithmetic: for who plans what runs beside them. Every block has a multiprocessor
// of its own, because registers hold R, and there is no room for a second one.
#pragma once

#include <string_view>

#include "kernels/lstm/lstm.h"

namespace rondo {

struct LstmHold {
  std::string_view variant = {};  // of lstm_conditions.h; empty: none is persistent
  int64_t multiprocessors = 0;
};

// Of the variant that is the default on an H100 or H200 with so many multiprocessors (an H200: 132)
// once all have a proof (lstm_quickest in lstm_prediction.h); none where that has launches per
// step. Directions are computed at once. `phase`: forward or backward.
LstmHold lstm_hold(LstmPhase phase, const LstmDims& dims, DType compute, int64_t sequences,
                   int64_t multiprocessors);

// Of this variant; none where it does not fit.
LstmHold lstm_hold_of(std::string_view variant, LstmPhase phase, const LstmDims& dims,
                      DType compute, int64_t sequences, int64_t multiprocessors);

}  // namespace rondo
