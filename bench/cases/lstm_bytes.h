// What the three LSTM ops must move: inputs read once, outputs written once. For benchmarks;
// initial and final states and workspaces are not counted.
#pragma once

#include "kernels/lstm/lstm.h"

namespace rondo {

struct LstmTraffic {
  LstmDims dims;
  int64_t rows = 0;  // frames of the whole batch
  DType dtype = DType::f32;
  bool kept = true;         // forward: for training
  bool dx = true;           // backward: the input's gradient
  bool accumulate = false;  // weight_grad: added to what is there
};

inline double lstm_bytes(LstmPhase phase, const LstmTraffic& t) {
  const auto D = static_cast<double>(t.dims.directions), H = static_cast<double>(t.dims.hidden);
  const auto I = static_cast<double>(t.dims.input), P = static_cast<double>(t.dims.output());
  const auto rows = static_cast<double>(t.rows), e = static_cast<double>(size_of(t.dtype));
  const bool projected = t.dims.projection != 0;
  const double x = rows * I * e, y = rows * D * P * e, gates = rows * D * 4 * H * e;
  const double cells = rows * D * H * 4, hidden = projected ? rows * D * H * e : 0;
  const double r = D * (4 * H * P + (projected ? P * H : 0)), w = D * 4 * H * I, b = D * 4 * H;
  switch (phase) {
    case LstmPhase::forward:
      return x + (w + r) * e + b * 4 + y + (t.kept ? gates + cells + hidden : 0);
    case LstmPhase::backward:
      return y + 2 * gates + cells + r * e + (t.dx ? w * e + x : 0) + (projected ? y : 0);
    case LstmPhase::weight_grad:
      return x + y + gates + hidden + (projected ? y : 0) + (w + r + b) * (t.accumulate ? 8 : 4);
  }
  return 0;
}

}  // namespace rondo
