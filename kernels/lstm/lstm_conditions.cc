#include "kernels/lstm/lstm_conditions.h"

namespace rondo {

const LstmConditions* find_lstm_conditions(std::string_view variant) {
  for (const LstmConditions& c : lstm_conditions) {
    if (variant == c.variant) return &c;
  }
  return nullptr;
}

bool lstm_suits(std::string_view variant, Backend backend, const LstmDims& dims, DType compute) {
  const LstmConditions* c = find_lstm_conditions(variant);
  RONDO_CHECK(c, "lstm: no variant '", variant, "' in the table of conditions");
  const int64_t smallest = backend == Backend::sim ? 1 : c->smallest;
  return (compute == DType::bf16 || (c->f32 && compute == DType::f32)) && dims.hidden >= smallest &&
         dims.hidden <= c->largest && (c->projection || dims.projection == 0);
}

}  // namespace rondo
