// What the planner simulates is what the engine does: stages that share sequences, rank by rank.
#include <mutex>

#include "comm/in_process/run_ranks.h"
#include "engine/plan/simulation.h"
#include "engine/rank_model.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int classes = 5, layers = 5;  // recurrent ones; "out" follows

Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "a", {.hidden = 8, .layers = 3, .bidirectional = true});
  x = layers::lstm(g, x, "b", {.hidden = 8, .layers = 2});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

struct Setting {
  int pipeline, shards, micro_batches;
  ScheduleKind schedule;
  std::string placement;  // of six layers
};

// One direction of one layer's time loop, and the shard that gets its last state.
struct Turn {
  bool forward = false;
  int layer = 0, micro_batch = 0, to = -1;
  bool operator==(const Turn&) const = default;
};
using Turns = std::vector<std::vector<Turn>>;  // by rank: of the pipeline, and shard

Turns recorded(const Setting& s) {
  std::vector<RandomBatch> batches;
  std::vector<BatchView> views;
  Graph g;
  model(g);
  batches.reserve(static_cast<size_t>(s.micro_batches));
  BatchCapacity capacity;
  for (int m = 0; m < s.micro_batches; ++m) {
    batches.emplace_back(std::vector<int32_t>{11 + m, 9, 7}, classes, static_cast<unsigned>(m));
    views.push_back(batches.back().view(g, classes, static_cast<unsigned>(m)));
    capacity = BatchCapacity::merge(capacity, views.back().extent());
  }
  const int ranks = s.pipeline * s.shards;
  Turns turns(static_cast<size_t>(ranks));
  std::mutex mutex;
  run_ranks(ranks, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    const Ranks world(*group, std::chrono::seconds(60));
    RankGrid grid(transport, {1, s.pipeline, s.shards}, std::chrono::seconds(60));
    SplitSettings p;
    p.schedule = s.schedule;
    p.micro_batches = s.micro_batches;
    p.placement = s.placement;
    SessionOptions o;
    o.threads = 1;
    RankModel trainer(model, o, p, world, grid, capacity);
    trainer.accumulate(views, true);
    std::vector<Turn> mine;
    for (const TimedAction& t : trainer.shards()->timeline()) {
      switch (t.action.kind) {
        case ActionKind::forward:
        case ActionKind::input_backward:
          mine.push_back(
              {t.action.kind == ActionKind::forward, t.action.stage, t.action.micro_batch});
          break;
        case ActionKind::send_activation:
        case ActionKind::send_gradient:
          mine.back().to = t.action.peer;
          break;
        default:
          break;
      }
    }
    trainer.update();  // ends the sums that the last pass has begun
    const std::lock_guard lock(mutex);
    turns[static_cast<size_t>(rank)] = std::move(mine);
  });
  return turns;
}

Turns planned(const Setting& s) {
  std::vector<plan::BlockCost> blocks(layers + 1);
  const int directions[] = {2, 2, 2, 1, 1, 0};
  for (size_t l = 0; l < blocks.size(); ++l) blocks[l].directions = directions[l];
  blocks.back().loss = 2;
  plan::StepCosts c;
  c.schedule = {make_schedule(s.schedule, s.pipeline, s.micro_batches), {}, s.shards};
  const plan::LinkModel link{"link", false, 1, 1};
  c.beside.assign(static_cast<size_t>(s.shards), link);
  int first = 0;
  for (const char digit : s.placement) {
    if (digit == ',') continue;
    c.stages.push_back(plan::costs_of_stage(blocks, first, first + digit - '0', true));
    first += digit - '0';
  }
  c.output_bytes.assign(c.stages.size(), 1);
  c.reduce = c.output_bytes;
  c.up.assign(static_cast<size_t>(s.pipeline), link);
  c.down = c.up;
  CHECK(plan::simulate(c).end > 0);
  // What is simulated are these lists, in which a turn is an exchange.
  const ShardedSchedule schedule = c.listed();
  Turns turns;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const int stage = rank / s.shards, shard = rank % s.shards;
    std::vector<Turn>& mine = turns.emplace_back();
    for (const Step& step : rank_steps(schedule, stage, shard)) {
      if (step.kind != Step::Kind::exchange) continue;
      const auto& exchange =
          c.stages[static_cast<size_t>(stage)].exchanges.at(static_cast<size_t>(step.exchange));
      mine.push_back({!exchange.order.backward, std::min(exchange.block, layers),
                      step.action.micro_batch,
                      shard_after(exchange.order, step.direction, shard, s.shards)});
    }
  }
  return turns;
}

}  // namespace

TEST_CASE("the planner's lists of stages and shards are what the engine's ranks record") {
  const Setting setting = GENERATE(Setting{2, 2, 3, ScheduleKind::one_f_one_b, "3,3"},
                                   Setting{2, 3, 2, ScheduleKind::zero_bubble, "4,2"},
                                   Setting{3, 2, 3, ScheduleKind::one_f_one_b, "1,2,3"});
  INFO(name_of(setting.schedule) << ": " << setting.pipeline << " x " << setting.shards);
  const Turns engine = recorded(setting), planner = planned(setting);
  REQUIRE(engine.size() == planner.size());
  for (size_t rank = 0; rank < engine.size(); ++rank) {
    INFO("rank " << rank);
    REQUIRE(!engine[rank].empty());
    REQUIRE(engine[rank].size() == planner[rank].size());
    for (size_t i = 0; i < engine[rank].size(); ++i) {
      const Turn& a = engine[rank][i];
      const Turn& b = planner[rank][i];
      INFO(i << ": engine " << a.forward << " " << a.layer << " " << a.micro_batch << " " << a.to
             << ", planner " << b.forward << " " << b.layer << " " << b.micro_batch << " " << b.to);
      REQUIRE((a == b));
    }
  }
}
