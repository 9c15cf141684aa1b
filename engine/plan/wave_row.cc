#include "engine/plan/wave_row.h"

#include <algorithm>
#include <utility>

namespace rondo::plan {

std::vector<WaveExchange> WaveRow::order() const {
  std::vector<WaveExchange> all;
  for (const Exchange& e : exchanges) all.push_back(e.order);
  return all;
}

WaveRow wave_row(const WaveCosts& c, int begin, int end) {
  WaveRow row;
  double between = 0;
  const auto add = [&](int layer, int directions, bool backward, double seconds, double bytes) {
    row.exchanges.push_back(
        {{directions, backward, false}, layer, seconds, bytes, std::exchange(between, 0)});
  };
  const auto recurrent = [&](int l, bool backward) {
    const auto at = static_cast<size_t>(l);
    if (c.directions[at] == 0) return;
    const LayerSeconds& one = c.layers[at].direction;
    add(l, c.directions[at], backward, backward ? one.input_backward : one.forward,
        c.state_bytes[at]);
  };
  const auto layers = static_cast<int>(c.layers.size());
  const bool ctc = end == layers && (c.alpha > 0 || c.beta > 0);
  for (int l = begin; l < end; ++l) {
    recurrent(l, false);
    between += c.layers[static_cast<size_t>(l)].rest.forward;
  }
  if (ctc) add(layers, 1, false, c.alpha, c.ctc_bytes);
  row.after_forward = std::exchange(between, 0);
  if (ctc) add(layers, 1, true, c.beta, c.ctc_bytes);
  for (int l = end - 1; l >= begin; --l) {
    const auto at = static_cast<size_t>(l);
    between += c.layers[at].rest.input_backward;
    recurrent(l, true);
    row.weights += c.layers[at].rest.weight_backward +
                   std::max(1, c.directions[at]) * c.layers[at].direction.weight_backward;
  }
  row.after_backward = between;
  return row;
}

}  // namespace rondo::plan
