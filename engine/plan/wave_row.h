// Layers as a shard computes them: a row of nodes, in which some have to be given what a neighbour
// has (exchanges, engine/parallel/wave_order.h), with what each piece of it costs.
#pragma once

#include <vector>

#include "engine/plan/wave.h"

namespace rondo::plan {

struct WaveRow {
  struct Exchange {
    WaveExchange order;
    int layer = 0;                  // the number of layers: CTC
    double seconds = 0, bytes = 0;  // of one direction
    double before = 0;              // seconds of the nodes between it and the one before it
  };
  std::vector<Exchange> exchanges;  // of the forward pass, then of the backward pass
  // Seconds of the nodes behind the last exchange of each pass, and of the weight gradients.
  double after_forward = 0, after_backward = 0, weights = 0;

  std::vector<WaveExchange> order() const;
};

// Layers [begin, end) of the costs. The last layer is followed by CTC's recursions.
WaveRow wave_row(const WaveCosts& costs, int begin, int end);

}  // namespace rondo::plan
