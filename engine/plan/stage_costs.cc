#include "engine/plan/stage_costs.h"

#include <algorithm>
#include <utility>

namespace rondo::plan {

StageExchanges StageCosts::order() const {
  StageExchanges all;
  for (const Exchange& e : exchanges) all.push_back(e.order);
  return all;
}

StageCosts costs_of_passes(const LayerSeconds& l) {
  return {{}, l.forward, l.input_backward, l.weight_backward};
}

double ShardCosts::weights(size_t layer) const {
  const ModelLayers::Parts& p = layers[layer];
  return p.rest.weight_backward + std::max(1, directions[layer]) * p.direction.weight_backward;
}

StageCosts ShardCosts::of_layers(int begin, int end) const {
  StageCosts row;
  double between = 0;
  const auto add = [&](int layer, int both, bool backward, double seconds, double bytes) {
    row.exchanges.push_back({{both, backward}, layer, seconds, bytes, std::exchange(between, 0)});
  };
  const auto recurrent = [&](int l, bool backward) {
    const auto at = static_cast<size_t>(l);
    if (directions[at] == 0) return;
    const LayerSeconds& one = layers[at].direction;
    add(l, directions[at], backward, backward ? one.input_backward : one.forward, state_bytes[at]);
  };
  const auto count = static_cast<int>(layers.size());
  const bool ctc = end == count && (alpha > 0 || beta > 0);
  for (int l = begin; l < end; ++l) {
    recurrent(l, false);
    between += layers[static_cast<size_t>(l)].rest.forward;
  }
  if (ctc) add(count, 1, false, alpha, ctc_bytes);
  row.after_forward = std::exchange(between, 0);
  if (ctc) add(count, 1, true, beta, ctc_bytes);
  for (int l = end - 1; l >= begin; --l) {
    between += layers[static_cast<size_t>(l)].rest.input_backward;
    recurrent(l, true);
    row.weights += weights(static_cast<size_t>(l));
  }
  row.after_backward = between;
  return row;
}

}  // namespace rondo::plan
