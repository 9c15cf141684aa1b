// The settings of an update of the weights (engine/update.h). Plain data.
#pragma once

#include <cstdint>

namespace rondo {

struct OptimizerOptions {
  enum Kind : uint8_t { sgd, adam, adamw } kind = adamw;
  double learning_rate = 1e-3;
  double momentum = 0;                                // sgd
  bool nesterov = false;                              // sgd
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adam, adamw
  double weight_decay = 0;  // adamw: decoupled; otherwise added to the gradient
  double clip_norm = 0;     // of the averaged gradient; 0: no clipping
  double ema_decay = 0;     // of the averaged weights; 0: no averaging

  bool operator==(const OptimizerOptions&) const = default;
};

}  // namespace rondo
