#include "engine/train/training_strategy.h"

#include <algorithm>

#include "engine/io/file.h"
#include "engine/report/timeline.h"
#include "engine/sync/pipeline_synchronizer.h"
#include "engine/train/make_synchronizer.h"
#include "engine/train/require_split.h"
#include "engine/train/training_batches.h"
#include "kernels/base/error.h"

namespace rondo {

PipelineSettings pipeline_settings(const Config& config) {
  const ParallelConfig& p = config.parallel;
  PipelineSettings s;
  s.schedule = p.schedule;
  s.micro_batches = p.micro_batches > 0 ? p.micro_batches : p.pipeline > 1 ? 2 * p.pipeline : 1;
  s.placement = p.placement;
  s.stage_memory = static_cast<size_t>(p.stage_memory_mb) * 1024 * 1024;
  s.bucket_bytes = p.bucket_kb * 1024;
  s.shard_optimizer = p.shard_optimizer;
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
    // Pipelines record what they do; one of a single stage is any other run.
    const bool pipelines = wants_pipeline(config_) || !o_.trainer.timeline.empty();
    o_.setup.together([&] { require_split(config_, o_.ranks.size(), *setup_.train, model()); });
    if (pipelines) {
      make_pipeline();
    } else {
      make_session();
    }
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

  void make_session() {
    if (config_.parallel.micro_batches > 1) {
      s_.messages.push_back(str("warning: parallel.micro_batches=", config_.parallel.micro_batches,
                                " changes nothing without stages or shards; a batch in parts is ",
                                "training.accumulation, with a smaller data.batch_frames"));
    }
    o_.setup.together([&] {
      SessionOptions o = session_options_here();
      if (config_.parallel.shard_optimizer && o_.ranks.size() > 1) {
        o.ranks = {o_.ranks.group(), o_.ranks.sums(), true};
      }
      s_.session = std::make_unique<Session>(model(), o);
    });
    const std::string mine = str(s_.session->training_graph().hash());
    const std::string first = o_.setup.broadcast(mine);
    o_.setup.together([&] {
      if (mine != first) fail_input("its model is another one than that of rank 0");
    });
    s_.model = std::make_unique<SessionModelInTraining>(*s_.session);
    s_.sync = make_synchronizer(config_, o_.ranks, *s_.session, o_.ballot,
                                [&](const std::string& text) { s_.messages.push_back(text); });
  }

  void make_pipeline() {
    RONDO_CHECK(!o_.trainer.group || o_.trainer.transport, "a group without its transport");
    const ParallelConfig& p = config_.parallel;
    const WorldSplit split = split_world(o_.ranks.size(), p.pipeline, p.data, p.sequence);
    const PipelineSettings settings = settings_here(split);
    const auto patience = settings.options.timeout;
    if (!o_.trainer.transport) s_.world_of_one = std::make_unique<InProcessWorld>(1);
    s_.grid = std::make_unique<RankGrid>(
        o_.trainer.transport ? *o_.trainer.transport : s_.world_of_one->transport(0), split,
        patience, o_.trainer.devices);
    s_.pipeline =
        std::make_unique<PipelineTrainer>(model(), session_options_here(), settings, o_.setup,
                                          *s_.grid, capacity(split, settings.micro_batches));
    if (p.pipeline > 1) setup_.state.placement = s_.pipeline->placement();
    s_.model = std::make_unique<PipelineModelInTraining>(*s_.pipeline,
                                                         Ranks(s_.grid->pipeline(), patience),
                                                         Ranks(s_.grid->same_stages(), patience));
    s_.sync = std::make_unique<PipelineSynchronizer>(*s_.pipeline, o_.ranks, s_.grid->replica(),
                                                     split.data);
    s_.name = p.pipeline == 1 && p.sequence > 1
                  ? str(p.sequence, " shards of each sequence")
                  : str(name_of(settings.schedule), ", ", describe(split), ", ",
                        settings.micro_batches, " micro-batches");
    note_pipeline(settings);
  }

  // Where the clock chose the stages of a run that goes on, they stay where they were.
  PipelineSettings settings_here(const WorldSplit& split) const {
    PipelineSettings s = pipeline_settings(config_);
    s.options.timeline = !o_.trainer.timeline.empty();
    const std::string& before = setup_.state.placement;
    const auto stages = std::count(before.begin(), before.end(), ',') + 1;
    if (s.placement.empty() && stages == split.pipeline) s.placement = before;
    return s;
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

  void note_pipeline(const PipelineSettings& settings) {
    if (config_.parallel.pipeline > 1) {
      s_.messages.push_back(str("stages (parallel.placement=", s_.pipeline->placement(), "): ",
                                s_.pipeline->placement_text(), "; ", name_of(settings.schedule),
                                ", ", settings.micro_batches, " micro-batches"));
    }
    const Session::Memory m = s_.pipeline->memory();
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

bool wants_pipeline(const Config& config) {
  return config.parallel.pipeline > 1 || config.parallel.sequence > 1;
}

TrainingStrategy make_strategy(const StrategyOptions& options, TrainingSetup& setup) {
  return Maker(options, setup).make();
}

void draw_timeline(const Ranks& ranks, const Config& config, const TrainingStrategy& strategy,
                   int64_t step, const std::string& path) {
  const std::vector<std::string> all = ranks.gather(timeline_text(strategy.sync->timeline()));
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
