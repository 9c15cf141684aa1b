#include "engine/parallel/wave_order.h"

namespace rondo {

int early_direction(const WaveExchange& exchange, int shard, int shards) {
  const bool near_left = 2 * shard < shards - 1;
  return exchange.directions == 1 || near_left != exchange.backward ? 0 : 1;
}

int shard_before(const WaveExchange& exchange, int direction, int shard, int shards) {
  const bool rightward = (direction == 0) != exchange.backward;
  const int from = rightward ? shard - 1 : shard + 1;
  return from < shards ? from : -1;
}

int shard_after(const WaveExchange& exchange, int direction, int shard, int shards) {
  const bool rightward = (direction == 0) != exchange.backward;
  const int to = rightward ? shard + 1 : shard - 1;
  return to < shards ? to : -1;
}

std::vector<WaveStep> wave_steps(std::span<const WaveExchange> exchanges, int micro_batches,
                                 int shard, int shards) {
  using Kind = WaveStep::Kind;
  std::vector<WaveStep> steps;
  const auto each = [&](Kind kind, int exchange, int direction) {
    for (int m = 0; m < micro_batches; ++m) steps.push_back({kind, exchange, m, direction});
  };
  const auto count = static_cast<int>(exchanges.size());
  for (int i = 0; i < count; ++i) {
    const WaveExchange& e = exchanges[static_cast<size_t>(i)];
    each(Kind::nodes, i, 0);
    if (e.pooled) {
      steps.push_back({Kind::pooled, i, 0, 0});
      continue;
    }
    const int early = early_direction(e, shard, shards);
    each(Kind::exchange, i, early);
    if (e.directions == 2) each(Kind::exchange, i, 1 - early);
  }
  each(Kind::nodes, count, 0);
  each(Kind::weight_gradients, count, 0);
  return steps;
}

}  // namespace rondo
