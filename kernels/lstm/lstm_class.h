// The classes of calls of the LSTM's time loops that a trial on a device decides for
// (kernels/base/dispatch.h): whatever lengths and inputs calls of a class have, the same variant is
// the quickest, as far as a table can say.
//
// Pure functions; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/lstm/lstm.h"

namespace rondo {

// "bf16 h512 d2 n32", with a projection "bf16 h512 p128 d2 n32".
struct LstmClass {
  DType compute = DType::f32;
  LstmDims dims;          // without the input, whose products are outside the loop
  int64_t sequences = 1;  // N of the capacity, up to the next power of two

  std::string text() const;
  // Nothing for a text that text() does not write.
  static std::optional<LstmClass> parse(std::string_view text);
};

LstmClass lstm_class(DType compute, const LstmDims& dims, int64_t sequences);

// CallClass of LstmForwardArgs and LstmBackwardArgs. One direction of two is not tried: only
// variants with launches per step take it.
template <class Args>
std::string lstm_class_of(const void* args);

}  // namespace rondo
