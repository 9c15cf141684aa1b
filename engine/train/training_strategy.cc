#include "engine/train/training_strategy.h"

#include <algorithm>

#include "engine/io/file.h"
#include "engine/report/timeline.h"
#include "engine/train/model/build_model.h"
#include "engine/train/require_split.h"
#include "engine/train/training_batches.h"
#include "engine/trial/trial.h"
#include "kernels/base/error.h"

namespace rondo {

SplitSettings split_settings(const Config& config) {
  const ParallelConfig& p = config.parallel;
  SplitSettings s;
  s.schedule = p.schedule;
  if (spreads_model(config)) {
    s.micro_batches = p.micro_batches > 0 ? p.micro_batches : p.pipeline > 1 ? 2 * p.pipeline : 1;
  }
  s.placement = p.placement;
  s.stage_memory = static_cast<size_t>(p.stage_memory_mb) * 1024 * 1024;
  s.bucket_bytes = p.bucket_kb * 1024;
  s.divide_optimizer = p.divide_optimizer;
  if (p.deterministic == Deterministic::world_invariant) s.batch_parts = p.batch_parts;
  s.options.wire = p.wire == DType::bf16 ? Wire::bf16 : Wire::exact;
  s.options.timeout = std::chrono::duration_cast<CommClock::duration>(
      std::chrono::duration<double>(p.timeout_seconds));
  return s;
}

namespace {

// The graph of the whole model, to count its weights before it is cut.
int64_t count_weights(const ModelFunction& model) {
  Graph graph;
  model(graph);
  int64_t flat_size = 0, weights = 0;
  for (const auto& e : Parameters::entries_of(graph, &flat_size)) weights += e.numel();
  return weights;
}

class Maker {
 public:
  Maker(const StrategyOptions& options, TrainingSetup& setup)
      : o_(options), config_(options.config), setup_(setup) {}

  TrainingStrategy make() {
    const ParallelConfig& p = config_.parallel;
    o_.setup.together([&] { require_split(config_, o_.ranks.size(), *setup_.train, model()); });
    const bool whole = !spreads_model(config_), async = p.sync == Sync::async;
    const SplitSettings settings = settings_here();
    BatchCapacity largest;
    if (whole) {
      s_.grid = async ? std::make_unique<RankGrid>() : std::make_unique<RankGrid>(o_.ranks);
    } else {
      RONDO_CHECK(o_.trainer.transport, "a group without its transport");
      s_.grid = std::make_unique<RankGrid>(
          *o_.trainer.transport, split_world(o_.ranks.size(), p.pipeline, p.data, p.sequence),
          settings.options.timeout, o_.trainer.devices);
      largest = capacity(s_.grid->split(), settings.micro_batches);
    }
    s_.model = std::make_unique<RankModel>(model(), session_options_here(), settings, o_.setup,
                                           *s_.grid, largest);
    if (async) {
      s_.async = std::make_unique<AsyncRanks>(
          *s_.model, o_.ranks, o_.lasting,
          AsyncOptions{p.sync_every, p.max_staleness, settings.options.timeout});
    }
    if (p.pipeline > 1) setup_.state.placement = s_.model->placement();
    s_.name = name(settings);
    note(settings);
    return std::move(s_);
  }

 private:
  SessionOptions session_options_here() const {
    SessionOptions o = session_options(config_, o_.trainer.device);
    o.lockstep = o_.trainer.lockstep;
    if (o_.trainer.threads > 0) o.threads = o_.trainer.threads;
    return o;
  }
  ModelFunction model() const {
    return build_model(config_.model, config_.task, setup_.description.sizes, config_.training);
  }

  SplitSettings settings_here() const {
    SplitSettings s = split_settings(config_);
    s.votes = o_.ballot;
    s.options.timeline = !o_.trainer.timeline.empty();
    if (s.batch_parts > 0 && s.batch_parts < o_.ranks.size()) {
      fail_input("parallel.batch_parts is ", s.batch_parts, ", fewer than the ", o_.ranks.size(),
                 " ranks");
    }
    // Where the clock chose the stages of a run that goes on, they stay where they were.
    const std::string& before = setup_.state.placement;
    const auto stages = std::count(before.begin(), before.end(), ',') + 1;
    if (s.placement.empty() && stages == config_.parallel.pipeline) s.placement = before;
    return s;
  }

  std::string name(const SplitSettings& settings) const {
    const WorldSplit& split = s_.grid->split();
    if (split.whole()) return split.data == 1 ? "one rank" : str(split.data, " ranks");
    if (split.pipeline == 1) return str(split.sequence, " shards of each sequence");
    return str(name_of(settings.schedule), ", ", describe(split), ", ", settings.micro_batches,
               settings.micro_batches == 1 ? " micro-batch" : " micro-batches");
  }

  BatchCapacity capacity(const WorldSplit& split, int micro_batches) const {
    const int begin = s_.grid->replica() * micro_batches;
    const DataShare share{{begin, begin + micro_batches}, split.data * micro_batches};
    BatchCapacity largest;
    o_.setup.together([&] {
      TrainingBatches batches(config_, *setup_.train, share, count_weights(model()));
      largest = batches.largest(3);
    });
    return largest;
  }

  void note(const SplitSettings& settings) {
    const ParallelConfig& p = config_.parallel;
    if (!s_.model->link_text().empty()) s_.messages.push_back(s_.model->link_text());
    if (p.pipeline > 1) {
      s_.messages.push_back(str("stages (parallel.placement=", s_.model->placement(),
                                "): ", s_.model->placement_text(), "; ", name_of(settings.schedule),
                                ", ", settings.micro_batches, " micro-batches"));
    }
    if (s_.model->whole()) {
      if (p.micro_batches > 1) {
        s_.messages.push_back(str("warning: parallel.micro_batches=", p.micro_batches,
                                  " changes nothing without stages or shards; a batch in parts is ",
                                  "training.accumulation, with a smaller data.batch_frames"));
      }
      return;
    }
    const Session::Memory m = s_.model->memory();
    s_.messages.push_back(str(
        "rank ", o_.ranks.rank(), " holds ", m.total() / 1024, " KiB: weights ", m.weights / 1024,
        ", gradients ", m.gradients / 1024, ", optimizer ", m.optimizer / 1024, ", activations ",
        m.activations / 1024, ", batches ", m.batch / 1024));
  }

  const StrategyOptions& o_;
  const Config& config_;
  TrainingSetup& setup_;
  TrainingStrategy s_;
};

}  // namespace

bool spreads_model(const Config& config) {
  return config.parallel.pipeline > 1 || config.parallel.sequence > 1;
}

TrainingStrategy make_strategy(const StrategyOptions& options, TrainingSetup& setup) {
  return Maker(options, setup).make();
}

void try_kernels(const StrategyOptions& options, const RankModel& model, int64_t sequences,
                 TrainingState& state, TrainingReport& report) {
  const DeviceId device = options.trainer.device;
  TrialSettings settings;
  settings.helper = options.trainer.trial_helper;
  settings.before = choices_written(state.kernels);
  settings.begins = [&](size_t calls) {
    report.message(str("trying kernels for ", calls, " kinds of calls that are new to ",
                       require_device(device.kind, device.index).describe()));
  };
  const TrialOutcome outcome =
      choose_kernels(options.ranks, device, tried_calls(model.graph(), sequences), settings);
  for (const std::string& message : outcome.messages) report.message(message);
  if (outcome.failed) {
    throw UnfitDevice(str("no variant of a kernel that the model needs is right on ",
                          require_device(device.kind, device.index).describe(),
                          " ('rondo info --device' says more); --device cpu trains without it"));
  }
  for (const std::string& change : outcome.changed) {
    if (options.config.parallel.deterministic == Deterministic::world_invariant) {
      fail_input("parallel.world_invariant keeps every bit, and ", change,
                 "; go on where the run was, or start anew");
    }
    report.message("warning: " + change + "; results differ in their last bits from here on");
  }
  if (!outcome.choices.empty()) state.kernels = written(outcome.choices);
}

void draw_timeline(const Ranks& ranks, const Config& config, const TrainingStrategy& strategy,
                   int64_t step, const std::string& path) {
  const std::vector<std::string> all = ranks.gather(timeline_text(strategy.model->timeline()));
  ranks.at_first([&] {
    PipelineTimeline timeline;
    for (const std::string& text : all) timeline.ranks.push_back(parse_timeline(text));
    const ParallelConfig& p = config.parallel;
    const bool shards = p.pipeline == 1 && p.sequence > 1;  // whose neighbours are shards
    const std::string title = str("update ", step, ", ", strategy.name);
    replace_text_file(path, shards ? timeline_svg(timeline, p.sequence, title)
                                   : timeline_svg(timeline, p.pipeline, title, p.sequence));
  });
}

}  // namespace rondo
