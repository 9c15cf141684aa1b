#include "engine/train/combinations.h"

#include "kernels/base/error.h"

namespace rondo {
namespace {

bool asks_for(Way way, const Config& config, const TrainerOptions& options) {
  const ParallelConfig& p = config.parallel;
  switch (way) {
    case Way::pipeline:
      return p.pipeline > 1;
    case Way::sequence:
      return p.sequence > 1;
    case Way::timeline:
      return !options.timeline.empty();
    case Way::profile:
      return !options.profile.empty();
    case Way::tbptt:
      return config.training.tbptt > 0;
    case Way::lockstep:
      return options.lockstep;
    case Way::world_invariant:
      return p.deterministic == Deterministic::world_invariant;
    case Way::divide_optimizer:
      return p.divide_optimizer;
    case Way::async:
      return p.sync == Sync::async;
    case Way::plateau:
      return config.lr.type == LearningRateType::plateau;
  }
  return false;
}

}  // namespace

std::span<const Refusal> refusals() {
  static const std::vector<Refusal> table = {
      {Way::pipeline,
       {Way::async},
       "stages of one model are updated together, with parallel.sync = \"step\""},
      {Way::pipeline, {Way::world_invariant}, "it is for ranks that hold the whole model"},
      {Way::pipeline, {Way::tbptt, Way::lockstep}, "it runs the whole model on one rank"},
      {Way::sequence,
       {Way::async},
       "shards of a sequence make one gradient, with parallel.sync = \"step\""},
      {Way::sequence, {Way::world_invariant}, "shards of a sequence sum in another order"},
      {Way::sequence, {Way::tbptt, Way::lockstep}, "it takes sequences whole, on one rank"},
      {Way::timeline,
       {Way::async, Way::world_invariant, Way::tbptt, Way::lockstep},
       "the picture is of ranks that work in step, on whole sequences or shards of them"},
      {Way::profile,
       {Way::async, Way::lockstep},
       "it shows updates that all ranks make together, as fast as they can"},
      {Way::lockstep, {Way::tbptt}, "it compares whole batches"},
      {Way::divide_optimizer, {Way::world_invariant}, "whose sums every rank makes of all weights"},
      {Way::divide_optimizer, {Way::async}, "where every rank updates all weights"},
      {Way::world_invariant, {Way::async}, "where the result depends on the number of ranks"},
      {Way::plateau, {Way::async}, "where no validation is of all ranks together"},
  };
  return table;
}

std::string name_of(Way way) {
  switch (way) {
    case Way::pipeline:
      return "parallel.pipeline";
    case Way::sequence:
      return "parallel.sequence";
    case Way::timeline:
      return "--timeline";
    case Way::profile:
      return "--profile";
    case Way::tbptt:
      return "training.tbptt";
    case Way::lockstep:
      return "--lockstep-ref";
    case Way::world_invariant:
      return "parallel.deterministic = \"world_invariant\"";
    case Way::divide_optimizer:
      return "parallel.divide_optimizer";
    case Way::async:
      return "parallel.sync = \"async\"";
    case Way::plateau:
      return "lr.type = \"plateau\"";
  }
  return "";
}

void require_combination(const Config& config, const TrainerOptions& options) {
  if (options.kept && config.parallel.deterministic != Deterministic::world_invariant) {
    fail_input("going on without a lost rank (rondo launch --elastic) takes ",
               "parallel.deterministic=world_invariant, where the result does not depend on the ",
               "number of ranks");
  }
  for (const Refusal& row : refusals()) {
    if (!asks_for(row.one, config, options)) continue;
    for (Way other : row.others) {
      if (!asks_for(other, config, options)) continue;
      fail_input(name_of(row.one), " and ", name_of(other), " do not go together: ", row.reason);
    }
  }
}

}  // namespace rondo
