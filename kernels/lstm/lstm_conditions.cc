#include "kernels/lstm/lstm_conditions.h"

#include "kernels/base/error.h"

namespace rondo {
namespace {

// What lifts the lower bound of H.
bool takes_small(Backend backend) { return backend == Backend::sim; }

}  // namespace

const LstmConditions* find_lstm_conditions(std::string_view variant) {
  for (const LstmConditions& c : lstm_conditions) {
    if (variant == c.variant) return &c;
  }
  return nullptr;
}

bool lstm_suits(std::string_view variant, Backend backend, const LstmDims& dims, DType compute) {
  const LstmConditions* c = find_lstm_conditions(variant);
  RONDO_CHECK(c, "lstm: no variant '", variant, "' in the table of conditions");
  const bool small = takes_small(backend);
  const int64_t largest = compute == DType::bf16  ? c->largest
                          : compute == DType::f32 ? c->largest_f32
                                                  : 0;
  return !dims.int8 && (small || dims.hidden >= c->smallest) && dims.hidden <= largest &&
         (c->projection || dims.projection == 0);
}

std::string lstm_conditions_in_words(const LstmConditions& c, Backend backend) {
  const bool small = takes_small(backend);
  std::string words = c.largest_f32 == c.largest ? "f32 or bf16"
                      : c.largest_f32 > 0        ? str("bf16, or f32 up to H = ", c.largest_f32)
                                                 : "bf16";
  const int64_t smallest = small ? 1 : c.smallest;
  if (c.largest == lstm_unbounded) {
    words += smallest > 1 ? str("; H >= ", smallest) : "; any H";
  } else {
    words += smallest > 1 ? str("; H ", smallest, " to ", c.largest) : str("; H <= ", c.largest);
  }
  if (!c.projection) words += "; no projection";
  words += str("; sm_", c.architecture);
  if (*c.machine) words += str("; ", c.machine);
  return words;
}

}  // namespace rondo
