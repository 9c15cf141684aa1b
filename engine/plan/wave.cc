#include "engine/plan/wave.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "engine/parallel/wave_order.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

enum Direction : int { right = +1, left = -1 };

// Stages and shards, by priorities.
class StagedWave {
 public:
  explicit StagedWave(const WaveCosts& costs)
      : c_(costs), layers_(static_cast<int>(costs.layers.size())) {
    wave_.ranks = (c_.stage_of_layer.back() + 1) * c_.shards;
    for (int r = 0; r < wave_.ranks; ++r) wave_.work.add_resource(Order::priority);
    // One link per rank and direction: to the shards beside it, to the stages above and below.
    for (int r = 0; r < 4 * wave_.ranks; ++r) wave_.work.add_resource(Order::priority);
  }

  Wave build() {
    for (int m = 0; m < c_.micro_batches; ++m) add_micro_batch(m);
    return std::move(wave_);
  }

 private:
  int rank(int layer, int shard) const {
    return c_.stage_of_layer[static_cast<size_t>(layer)] * c_.shards + shard;
  }
  const ModelLayers::Parts& parts(int layer) const { return c_.layers[static_cast<size_t>(layer)]; }

  int64_t priority(Phase phase, int m, int layer) const {
    const int64_t turn = int64_t{m} * layers_;
    const int64_t phases = int64_t{layers_} * c_.micro_batches;
    switch (phase) {
      case Phase::backward:
        return turn + (layers_ - 1 - layer);
      case Phase::forward:
        return phases + turn + layer;
      case Phase::weight_gradient:
        return 2 * phases + turn + (layers_ - 1 - layer);
    }
    return 0;
  }

  int compute(Phase phase, int m, int layer, int shard, double seconds, std::vector<int> after) {
    return wave_.work.add({rank(layer, shard), seconds, std::move(after), priority(phase, m, layer),
                           static_cast<int>(phase), layer, m});
  }
  // What `task` made, after its way over one of its rank's links.
  int message(int task, int from_rank, int link, double seconds) {
    return wave_.work.add({wave_.ranks * (1 + link) + from_rank, seconds, {task}});
  }
  int beside(int task, int layer, int shard, Direction to, double bytes) {
    const LinkModel& link = c_.beside[static_cast<size_t>(to == right ? shard : shard - 1)];
    return message(task, rank(layer, shard), to == right ? 0 : 1, link.seconds(bytes));
  }

  // One task per shard that waits for `after[shard]` and for the shard before it in direction `to`.
  std::vector<int> chain(Phase phase, int m, int layer, Direction to, double seconds, double bytes,
                         const std::vector<std::vector<int>>& after) {
    std::vector<int> tasks(static_cast<size_t>(c_.shards));
    int carried = -1;
    for (int i = 0; i < c_.shards; ++i) {
      const int k = to == right ? i : c_.shards - 1 - i;
      std::vector<int> wait = after[static_cast<size_t>(k)];
      if (carried >= 0) wait.push_back(carried);
      const int task = compute(phase, m, layer, k, seconds, std::move(wait));
      tasks[static_cast<size_t>(k)] = task;
      carried = i + 1 < c_.shards ? beside(task, layer, k, to, bytes) : -1;
    }
    return tasks;
  }

  using ByShard = std::vector<std::vector<int>>;
  static ByShard each(const std::vector<int>& tasks) {
    ByShard lists;
    for (int t : tasks) lists.push_back({t});
    return lists;
  }

  // A layer's time loops in one phase, and the rest of it; what each shard's next work waits for.
  ByShard add_layer(Phase phase, int m, int layer, const ByShard& before) {
    const bool forward = phase == Phase::forward;
    const auto& p = parts(layer);
    const double one = forward ? p.direction.forward : p.direction.input_backward;
    const double rest = forward ? p.rest.forward : p.rest.input_backward;
    const double handover = c_.state_bytes[static_cast<size_t>(layer)];
    const Direction first = forward ? right : left;
    switch (c_.directions[static_cast<size_t>(layer)]) {
      case 0: {
        std::vector<int> tasks;
        for (int k = 0; k < c_.shards; ++k) {
          tasks.push_back(compute(phase, m, layer, k, rest, before[static_cast<size_t>(k)]));
        }
        return each(tasks);
      }
      case 1:
        return each(chain(phase, m, layer, first, one + rest, handover, before));
      default: {
        const auto a = chain(phase, m, layer, first, one, handover, before);
        const auto b = chain(phase, m, layer, first == right ? left : right, one, handover, before);
        std::vector<int> tasks;
        for (size_t k = 0; k < a.size(); ++k) {
          tasks.push_back(compute(phase, m, layer, static_cast<int>(k), rest, {a[k], b[k]}));
        }
        return each(tasks);
      }
    }
  }

  // Over the boundary between `layer` and the one that follows in this phase, where they are on
  // different stages.
  ByShard cross(const ByShard& done, int layer, int next) {
    if (rank(layer, 0) == rank(next, 0)) return done;
    const auto at = static_cast<size_t>(std::min(layer, next));
    const auto stage = static_cast<size_t>(c_.stage_of_layer[at]);
    const double seconds = c_.above[stage].seconds(c_.output_bytes[at]);
    ByShard arrived;
    for (int k = 0; k < c_.shards; ++k) {
      const int task = done[static_cast<size_t>(k)].front();
      arrived.push_back({message(task, rank(layer, k), next > layer ? 2 : 3, seconds)});
    }
    return arrived;
  }

  void add_micro_batch(int m) {
    ByShard ready(static_cast<size_t>(c_.shards));
    for (int l = 0; l < layers_; ++l) {
      ready = add_layer(Phase::forward, m, l, ready);
      if (l + 1 < layers_) ready = cross(ready, l, l + 1);
    }
    const int last = layers_ - 1;
    if (c_.alpha > 0 || c_.beta > 0) {
      const auto alpha = chain(Phase::forward, m, last, right, c_.alpha, c_.ctc_bytes, ready);
      // log P travels with beta: it is known where alpha ends.
      ByShard after = each(alpha);
      after.back().push_back(alpha.back());
      ready = each(chain(Phase::backward, m, last, left, c_.beta, c_.ctc_bytes, after));
    }
    for (int l = last; l >= 0; --l) {
      ready = add_layer(Phase::backward, m, l, ready);
      const auto& p = parts(l);
      const double weights =
          p.rest.weight_backward +
          p.direction.weight_backward * std::max(1, c_.directions[static_cast<size_t>(l)]);
      for (int k = 0; k < c_.shards; ++k) {
        compute(Phase::weight_gradient, m, l, k, weights, ready[static_cast<size_t>(k)]);
      }
      if (l > 0) ready = cross(ready, l, l - 1);
    }
  }

  const WaveCosts& c_;
  const int layers_;
  Wave wave_;
};

// One stage, in the engine's order.
class ShardWave {
 public:
  explicit ShardWave(const WaveCosts& costs) : c_(costs) {
    wave_.ranks = c_.shards;
    for (int k = 0; k < c_.shards; ++k) wave_.work.add_resource(Order::listed);
    for (int k = 0; k < 2 * c_.shards; ++k) wave_.work.add_resource(Order::priority);
    list_exchanges();
  }

  Wave build() {
    for (int k = 0; k < c_.shards; ++k) add_shard(k);
    for (const auto& [task, key] : waiting_) wave_.work.wait_for(task, messages_.at(key));
    return std::move(wave_);
  }

 private:
  struct Exchange {
    WaveExchange order;
    int layer = 0;
    double seconds = 0, bytes = 0;  // of one direction
  };
  // Exchange, micro-batch, direction, and the shard that its result goes to.
  using Key = std::tuple<int, int, int, int>;

  // The engine's row of nodes: forward, CTC, backward. `before_` is what lies between exchanges.
  void list_exchanges() {
    const auto layers = static_cast<int>(c_.layers.size());
    double between = 0;
    const auto exchange = [&](Exchange e) {
      exchanges_.push_back(e);
      before_.push_back(std::exchange(between, 0));
    };
    const auto recurrent = [&](int l, bool backward) {
      const auto at = static_cast<size_t>(l);
      if (c_.directions[at] == 0) return;
      const LayerSeconds& one = c_.layers[at].direction;
      exchange({{c_.directions[at], backward, false},
                l,
                backward ? one.input_backward : one.forward,
                c_.state_bytes[at]});
    };
    for (int l = 0; l < layers; ++l) {
      recurrent(l, false);
      between += c_.layers[static_cast<size_t>(l)].rest.forward;
    }
    if (c_.alpha > 0 || c_.beta > 0) {
      exchange({{1, false, false}, layers - 1, c_.alpha, c_.ctc_bytes});
      exchange({{1, true, false}, layers - 1, c_.beta, c_.ctc_bytes});
    }
    for (int l = layers - 1; l >= 0; --l) {
      between += c_.layers[static_cast<size_t>(l)].rest.input_backward;
      recurrent(l, true);
    }
    before_.push_back(between);
    for (int l = 0; l < layers; ++l) {
      const auto& p = c_.layers[static_cast<size_t>(l)];
      const int directions = std::max(1, c_.directions[static_cast<size_t>(l)]);
      weights_ += p.rest.weight_backward + directions * p.direction.weight_backward;
    }
  }

  void add_shard(int shard) {
    std::vector<WaveExchange> order;
    for (const Exchange& e : exchanges_) order.push_back(e.order);
    const auto count = static_cast<int>(exchanges_.size());
    for (const WaveStep& s : wave_steps(order, c_.micro_batches, shard, c_.shards)) {
      const bool weights = s.kind == WaveStep::Kind::weight_gradients;
      if (s.kind == WaveStep::Kind::exchange) {
        add_exchange(s, shard);
      } else {
        const Phase phase = weights                  ? Phase::weight_gradient
                            : 2 * s.exchange > count ? Phase::backward
                                                     : Phase::forward;
        wave_.work.add({shard,
                        weights ? weights_ : before_[static_cast<size_t>(s.exchange)],
                        {},
                        0,
                        static_cast<int>(phase),
                        0,
                        s.micro_batch});
      }
    }
  }

  void add_exchange(const WaveStep& s, int shard) {
    const Exchange& e = exchanges_[static_cast<size_t>(s.exchange)];
    const bool rightward = (s.direction == 0) != e.order.backward;
    const Phase phase = e.order.backward ? Phase::backward : Phase::forward;
    const int task =
        wave_.work.add({shard, e.seconds, {}, 0, static_cast<int>(phase), e.layer, s.micro_batch});
    const int from = rightward ? shard - 1 : shard + 1, to = rightward ? shard + 1 : shard - 1;
    if (from >= 0 && from < c_.shards) {
      waiting_.push_back({task, {s.exchange, s.micro_batch, s.direction, shard}});
    }
    if (to < 0 || to >= c_.shards) return;
    const LinkModel& link = c_.beside[static_cast<size_t>(std::min(shard, to))];
    messages_[{s.exchange, s.micro_batch, s.direction, to}] =
        wave_.work.add({c_.shards * (rightward ? 1 : 2) + shard, link.seconds(e.bytes), {task}});
  }

  const WaveCosts& c_;
  std::vector<Exchange> exchanges_;
  std::vector<double> before_;  // by exchange, and one more: seconds of the nodes before it
  double weights_ = 0;
  std::map<Key, int> messages_;
  std::vector<std::pair<int, Key>> waiting_;
  Wave wave_;
};

}  // namespace

Wave build_wave(const WaveCosts& costs) {
  RONDO_CHECK(costs.shards >= 1 && costs.micro_batches >= 1 && !costs.layers.empty(), costs.shards,
              " shards of ", costs.micro_batches, " micro-batches");
  RONDO_CHECK(static_cast<int>(costs.beside.size()) >= costs.shards - 1, "links for ",
              costs.beside.size(), " shards of ", costs.shards);
  if (costs.stage_of_layer.back() == 0) return ShardWave(costs).build();
  return StagedWave(costs).build();
}

}  // namespace rondo::plan
