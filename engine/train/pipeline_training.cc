#include "engine/train/pipeline_training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>

#include "comm/in_process.h"
#include "engine/io/checkpoint.h"
#include "engine/io/file.h"
#include "engine/io/signals.h"
#include "engine/parallel/pipeline_trainer.h"
#include "engine/report/timeline.h"
#include "engine/train/average.h"
#include "engine/train/evaluation.h"
#include "engine/train/open_data.h"
#include "engine/train/shared_evaluation.h"
#include "engine/train/training_batches.h"
#include "engine/train/training_report.h"
#include "engine/train/training_setup.h"
#include "engine/train/whole_model.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What the ranks tell each other before every batch. Clocks are rank 0's.
enum Vote : size_t { vote_stop, vote_time_up, vote_save, vote_failed, vote_seconds /* by rank */ };

int64_t count_weights(const ModelFunction& model) {
  Graph graph;
  model(graph);
  int64_t flat_size = 0, weights = 0;
  for (const auto& e : Parameters::entries_of(graph, &flat_size)) weights += e.numel();
  return weights;
}

class PipelineTraining {
 public:
  PipelineTraining(const Config& config, const TrainerOptions& options)
      : config_(config),
        options_(options),
        ranks_(make_ranks(1)),
        split_(split_world(ranks_.size(), config.parallel.pipeline, config.parallel.data)) {
    const Ranks setup = make_ranks(10);
    require_same_settings(setup, config_, options.version);
    setup.together([&] { refuse_unsupported(); });
    setup.at_first([&] {
      store_ = std::make_unique<CheckpointStore>(config_.training.checkpoint_dir, policy());
    });
    setup.together([&] {
      fs::create_directories(config_.training.checkpoint_dir);
      report_ = std::make_unique<TrainingReport>(config_, options_.out, ranks_);
    });
    if (store_) report_->warnings(store_->take_warnings());
    s_ = set_up_data(setup, config_, options_, *report_);
    grid_ = std::make_unique<RankGrid>(transport(), split_, patience(1));
    replicas_ = Ranks(grid_->data(), patience(1));
    PipelineSettings pipeline = pipeline_settings(config_);
    pipeline.options.timeline = !options_.timeline.empty();
    load_state(setup, pipeline);
    micro_batches_ = pipeline.micro_batches;
    const ModelFunction model = build_model(config_.model, config_.task, s_.description.sizes);
    const int begin = grid_->replica() * micro_batches_;
    BatchCapacity capacity;
    setup.together([&] {
      batches_ = std::make_unique<TrainingBatches>(
          config_, *s_.train,
          DataShare{{begin, begin + micro_batches_}, split_.data * micro_batches_},
          count_weights(model));
      capacity = batches_->largest(3);
    });
    SessionOptions o = session_options(config_, options_.device);
    if (options_.threads > 0) o.threads = options_.threads;
    trainer_ = std::make_unique<PipelineTrainer>(model, o, pipeline, setup, *grid_, capacity);
    load_weights(setup);
    ranks_.at_first([&] {
      replace_text_file(fs::path(config_.training.checkpoint_dir) / "config.toml",
                        to_toml(config_));
    });
    introduce();
  }

  TrainingSummary run() {
    const double started = now_seconds();
    started_ = started - s_.state.seconds;
    last_checkpoint_ = started;
    plan();
    votes_.assign(vote_seconds + static_cast<size_t>(ranks_.size()), 0.0);
    vote(false);
    batches_->start({s_.state.epoch, s_.state.step_in_epoch});
    if (s_.dev && s_.state.validation_pending && votes_[vote_stop] == 0) validate();
    bool done = finished();
    while (!done) {
      const bool epoch_ends = update();
      done = finished();
      if (s_.dev && (epoch_ends || validation_is_due() || (done && !stopped_))) {
        validate();  // and save
        done = finished();
      } else if (done || epoch_ends || checkpoint_is_due()) {
        save(std::nullopt);
      }
    }
    draw_timeline();
    if (!stopped_) {
      finish();
      if (!stopped_ && !config_.data.test.empty()) test();
    }
    report_->end();
    TrainingSummary s;
    s.steps = s_.state.step;
    s.epochs = static_cast<int64_t>(s_.state.epoch);
    s.seconds = now_seconds() - started_;
    s.best_metric = s_.dev ? s_.state.best_metric : std::numeric_limits<double>::quiet_NaN();
    s.input_wait_share = batches_->wait_seconds() / std::max(now_seconds() - started, 1e-9);
    s.stopped_by_signal = stopped_;
    return s;
  }

 private:
  CheckpointPolicy policy() const {
    return {std::max(config_.training.keep_last, 1),
            std::max(config_.training.keep_best, config_.training.average_best)};
  }

  CommClock::duration patience(double factor) const {
    return std::chrono::duration_cast<CommClock::duration>(
        std::chrono::duration<double>(factor * config_.parallel.timeout_seconds));
  }
  Ranks make_ranks(double factor) const {
    return options_.group ? Ranks(*options_.group, patience(factor)) : Ranks();
  }
  Transport& transport() {
    return options_.transport ? *options_.transport : world_of_one_.transport(0);
  }

  void refuse_unsupported() const {
    RONDO_CHECK(!options_.group || options_.transport, "a group without its transport");
    if (config_.parallel.deterministic == Deterministic::world_invariant) {
      fail_input(
          "parallel.deterministic = \"world_invariant\" is for ranks that hold the whole "
          "model, not for pipelines");
    }
    if (options_.lockstep) fail_input("--lockstep-ref runs on one rank, not in pipelines");
    if (config_.parallel.sequence > 1) {
      fail_input("parallel.sequence and pipelines (parallel.pipeline, data, chunks) do not go ",
                 "together yet");
    }
    if (config_.training.tbptt > 0) fail_input("training.tbptt does not go with pipelines");
  }

  // Of a run that goes on. Where the clock chose the stages, they stay where they were.
  void load_state(const Ranks& setup, PipelineSettings& settings) {
    setup.at_first([&] {
      if (!s_.checkpoint) return;
      s_.state = TrainingState::from_json(s_.checkpoint->text("state.json"),
                                          s_.checkpoint->directory().string() + "/state.json");
    });
    if (s_.resumed) {
      const std::string text = setup.broadcast(s_.state.to_json());
      s_.state = TrainingState::from_json(text, "the state of rank 0");
    } else {
      s_.state.data_hash = hash_of(*s_.train);
    }
    require_same_data(setup, config_, s_.state, *s_.train);
    const std::string& before = s_.state.placement;
    const auto stages = std::count(before.begin(), before.end(), ',') + 1;
    if (settings.placement.empty() && stages == split_.pipeline * settings.chunks) {
      settings.placement = before;
    }
  }

  void load_weights(const Ranks& setup) {
    std::vector<float> weights;
    const auto take = [&](const SafetensorsFile& file) {
      weights = flat_weights(file, trainer_->entries(), trainer_->flat_size());
    };
    setup.at_first([&] {
      if (s_.checkpoint) {
        take(s_.checkpoint->tensors(best_model_file));
      } else if (!config_.training.init_from.empty()) {
        std::vector<std::string> warnings;
        const SafetensorsFile file = open_model(config_.training.init_from, &warnings);
        report_->warnings(warnings);
        take(file);
        report_->message("weights from " + file.name());
      }
    });
    if (s_.resumed || !config_.training.init_from.empty()) trainer_->scatter("", weights);
    Optimizer& optimizer = trainer_->optimizer();
    if (optimizer.averages()) optimizer.reset_average(trainer_->context());
    s_.state.placement = trainer_->placement();
    if (!s_.resumed) return;
    optimizer.set_steps(s_.state.optimizer_steps);
    for (const auto& slot : optimizer.state()) load_slot(setup, slot.name);
    s_.checkpoint.reset();
  }

  void load_slot(const Ranks& setup, const std::string& name) {
    std::vector<float> values;
    setup.at_first([&] {
      const SafetensorsFile file = s_.checkpoint->tensors("optimizer.safetensors");
      const int64_t shape[] = {trainer_->flat_size()};
      const auto stored = file.at(name, DType::f32, shape).as<float>();
      values.assign(stored.begin(), stored.end());
    });
    trainer_->scatter(name, values);
  }

  void introduce() {
    const Context& c = trainer_->context();
    report_->begin(trainer_->trainable(),
                   str("on ", c.device->describe(), " with ", c.pool->size(), " threads, ",
                       split_.data, split_.data == 1 ? " pipeline of " : " pipelines of ",
                       split_.pipeline, split_.pipeline == 1 ? " rank" : " ranks"),
                   *s_.train, s_.dev.get(), s_.state, s_.resumed);
    report_->message(
        str("stages (parallel.placement=", trainer_->placement(), "): ", trainer_->placement_text(),
            "; ", name_of(config_.parallel.schedule), ", ", micro_batches_, " micro-batches"));
    const Session::Memory m = trainer_->memory();
    report_->message(str("rank ", ranks_.rank(), " holds ", m.total() / 1024, " KiB: weights ",
                         m.weights / 1024, ", gradients ", m.gradients / 1024, ", optimizer ",
                         m.optimizer / 1024, ", activations ", m.activations / 1024, ", batches ",
                         m.batch / 1024));
  }

  void plan() {
    expected_steps_ = batches_->updates_per_epoch() * config_.training.epochs;
    if (config_.training.max_steps > 0) {
      expected_steps_ = std::min(expected_steps_, config_.training.max_steps);
    }
  }

  // The sums over all ranks; what the clock and signals say, and whether somebody failed.
  void vote(bool failed) {
    const double now = now_seconds();
    const TrainingConfig& t = config_.training;
    std::fill(votes_.begin(), votes_.end(), 0.0);
    votes_[vote_stop] = stop_requested() ? 1 : 0;
    votes_[vote_failed] = failed ? 1 : 0;
    votes_[vote_seconds + static_cast<size_t>(ranks_.rank())] = computed_;
    if (ranks_.first()) {
      votes_[vote_time_up] = t.max_seconds > 0 && now - started_ >= t.max_seconds ? 1 : 0;
      votes_[vote_save] =
          t.checkpoint_every_seconds > 0 && now - last_checkpoint_ >= t.checkpoint_every_seconds;
    }
    ranks_.sum(votes_);
  }

  // One update; whether it was the epoch's last.
  bool update() {
    const double rate = learning_rate(config_.schedule, config_.optimizer.lr, s_.state.step + 1,
                                      expected_steps_, s_.state.plateau);
    trainer_->optimizer().set_learning_rate(rate);
    const TrainingBatches::Update extent = batches_->next_update();
    double seconds = 0;
    std::vector<int64_t> utterances;
    for (int i = 0; i < extent.batches; ++i) {
      next_batch();
      const double began = now_seconds();
      trainer_->accumulate(views_, i + 1 == extent.batches);
      seconds += now_seconds() - began;
      note_nonfinite();
      for (const HostBatch& host : hosts_) {
        utterances.insert(utterances.end(), host.utterances.begin(), host.utterances.end());
      }
    }
    computed_ = seconds;
    const StepResult r = trainer_->update();
    advance(extent.end, r);
    StepTimes times;
    times.waited_for_input = batches_->wait_seconds();
    times.rank_seconds.assign(votes_.begin() + vote_seconds, votes_.end());
    times.communication = trainer_->communication();
    report_->step(s_.state, r, rate, extent.epoch, expected_steps_, times);
    if (r.skipped) note_skipped(utterances);
    return extent.epoch_ends;
  }

  // This replica's micro-batches of the next batch. Data that turn out to be bad on any rank must
  // neither leave the others waiting in the pipeline nor cost the updates made before.
  void next_batch() {
    std::exception_ptr failure;
    try {
      hosts_.resize(static_cast<size_t>(micro_batches_));
      inputs_.resize(hosts_.size());
      views_.resize(hosts_.size());
      for (size_t m = 0; m < hosts_.size(); ++m) {
        RONDO_CHECK(batches_->next(hosts_[m]), "the batches have ended before the epochs");
        views_[m] = batch_view(hosts_[m], config_.task, inputs_[m], step_seed(config_, hosts_[m]));
      }
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    vote(failure != nullptr);
    if (votes_[vote_failed] == 0) return;
    if (s_.state.step > 0) save(std::nullopt);
    ranks_.together([&] {
      if (failure) std::rethrow_exception(failure);
    });
    throw Error("a batch was refused by nobody");
  }

  void advance(const BatchPosition& next, const StepResult& r) {
    TrainingState& state = s_.state;
    ++state.step;
    state.epoch = next.epoch;
    state.step_in_epoch = next.step;
    state.frames += r.frames;
    state.optimizer_steps = trainer_->optimizer().steps();
    state.seconds = now_seconds() - started_;
    state.skipped += r.skipped ? 1 : 0;
    state.skipped_in_a_row = r.skipped ? state.skipped_in_a_row + 1 : 0;
  }

  // On the rank of the last stage, in its log.
  void note_nonfinite() {
    size_t at = 0;
    for (const HostBatch& host : hosts_) {
      for (int64_t utterance : host.utterances) {
        if (at < trainer_->losses().size() && std::isnan(trainer_->losses()[at++])) {
          report_->message(
              str("warning: ", s_.train->name(utterance), ": its loss is not a number"));
        }
      }
    }
  }

  void note_skipped(const std::vector<int64_t>& utterances) {
    const TrainingState& state = s_.state;
    report_->message(str("warning: step ", state.step, ": the gradient is not finite; skipped (",
                         state.skipped,
                         " so far); its utterances: ", names_of(*s_.train, utterances)));
    if (config_.training.non_finite != OnNonFinite::stop &&
        state.skipped_in_a_row < config_.training.non_finite_limit) {
      return;
    }
    save(std::nullopt);
    ranks_.at_first([&] {
      fail_input("training stopped at step ", state.step, ": ", state.skipped_in_a_row,
                 " steps in a row had a gradient that is not finite; lower optimizer.lr or "
                 "training.clip, and look at the data");
    });
  }

  bool finished() {
    stopped_ = stopped_ || votes_[vote_stop] > 0;
    const TrainingConfig& t = config_.training;
    return stopped_ || static_cast<int64_t>(s_.state.epoch) >= t.epochs ||
           (t.max_steps > 0 && s_.state.step >= t.max_steps) || votes_[vote_time_up] > 0 ||
           (t.patience > 0 && s_.state.validations_without_progress >= t.patience);
  }
  bool validation_is_due() const {
    const int64_t every = config_.training.validate_every_steps;
    return every > 0 && s_.state.step % every == 0;
  }
  bool checkpoint_is_due() const {
    const int64_t every = config_.training.checkpoint_every_steps;
    return (every > 0 && s_.state.step % every == 0) || votes_[vote_save] > 0;
  }

  // Shared out over replicas; the ranks of a replica evaluate together and all know the result.
  Evaluation evaluate_on(const ManifestDataset& data, std::vector<SampleHypothesis>* samples) {
    PipelineModel model(*trainer_);
    // With several ranks the stages would have to agree on where to stop.
    const std::function<bool()> stop = ranks_.size() == 1 ? stop_requested : nullptr;
    return evaluate_together(replicas_, model, data, config_, s_.alphabet.get(), samples, stop);
  }

  std::string best_model() const {
    return (fs::path(config_.training.checkpoint_dir) / best_model_file).string();
  }
  void save_best() {
    const WholeModel whole(*trainer_, WholeModel::Parts::weights);
    ranks_.at_first([&] { save_model(best_model(), whole.weights(), s_.description); });
  }

  void validate() {
    TrainingState& state = s_.state;
    Optimizer& optimizer = trainer_->optimizer();
    if (optimizer.averages()) optimizer.swap_average();
    std::vector<SampleHypothesis> samples;
    const Evaluation e = evaluate_on(*s_.dev, &samples);
    state.validation_pending = e.stopped;
    if (e.stopped) {
      if (optimizer.averages()) optimizer.swap_average();
      stopped_ = true;
      save(std::nullopt);
      return;
    }
    const double metric = e.metric(config_.task);
    const bool better =
        metric < state.best_metric || (metric == state.best_metric && e.loss < state.best_loss);
    if (better) {
      state.best_metric = metric;
      state.best_loss = e.loss;
      save_best();
    }
    if (optimizer.averages()) optimizer.swap_average();
    state.validations_without_progress = better ? 0 : state.validations_without_progress + 1;
    state.plateau = plateau_update(config_.schedule, state.plateau, metric);
    state.seconds = now_seconds() - started_;
    report_->validation(state, e, config_.task, better, std::move(samples));
    save(metric);
  }

  void save(std::optional<double> metric) {
    const WholeModel whole(*trainer_, WholeModel::Parts::weights_and_optimizer);
    ranks_.at_first([&] {
      CheckpointWriter writer = store_->begin();
      write_training_checkpoint(writer, whole.weights(), whole.slots(), s_.description, s_.state);
      writer.commit(s_.state.step, metric);
      report_->warnings(store_->take_warnings());
    });
    last_checkpoint_ = now_seconds();
  }

  // The best model on the test data, which played no part until now.
  void test() {
    std::unique_ptr<ManifestDataset> data;
    std::vector<float> weights;
    ranks_.together([&] {
      if (ranks_.first()) {
        weights = flat_weights(open_model(best_model(), nullptr), trainer_->entries(),
                               trainer_->flat_size());
      }
      data = open_dataset(config_, config_.data.test, DataUse::evaluation, options_.audio,
                          s_.alphabet.get());
    });
    trainer_->scatter("", weights);
    if (config_.features.cmvn == Cmvn::global) {
      data->set_global_cmvn({s_.description.mean, s_.description.inverse_std});
    }
    const Evaluation e = evaluate_on(*data, nullptr);
    stopped_ = e.stopped;
    if (!stopped_) report_->test(s_.state, e, config_.task);
  }

  // The average of the best generations replaces the best model when it is at least as good.
  void finish() {
    Optimizer& optimizer = trainer_->optimizer();
    if (!s_.dev) {
      if (optimizer.averages()) optimizer.swap_average();
      save_best();
      if (optimizer.averages()) optimizer.swap_average();
      return;
    }
    if (config_.training.average_best < 2) return;
    double averaged = 0;
    std::vector<float> mean;
    ranks_.at_first([&] {
      averaged = average_best_checkpoints(config_.training.checkpoint_dir,
                                          config_.training.average_best, trainer_->entries(),
                                          trainer_->flat_size(), optimizer.averages(), mean);
    });
    ranks_.sum({&averaged, 1});
    if (averaged < 2) return;
    trainer_->scatter("", mean);
    const Evaluation e = evaluate_on(*s_.dev, nullptr);
    stopped_ = e.stopped;
    if (stopped_) return;
    const double metric = e.metric(config_.task);
    const bool better = metric <= s_.state.best_metric;
    report_->message(str("average of the best ", averaged, " checkpoints: ",
                         metric_text(config_.task, metric), better ? ", kept" : ", not kept"));
    if (!better) return;
    s_.state.best_metric = metric;
    save_best();
  }

  void draw_timeline() {
    if (options_.timeline.empty()) return;
    const std::vector<std::string> all = ranks_.gather(timeline_text(trainer_->timeline()));
    ranks_.at_first([&] {
      PipelineTimeline timeline;
      for (const std::string& text : all) timeline.ranks.push_back(parse_timeline(text));
      const std::string title =
          str("update ", s_.state.step, ", ", name_of(config_.parallel.schedule), ", ", split_.data,
              " x ", split_.pipeline, " ranks, ", micro_batches_, " micro-batches");
      replace_text_file(options_.timeline, timeline_svg(timeline, split_.pipeline, title));
      report_->message("timeline: " + options_.timeline);
    });
  }

  const Config config_;
  const TrainerOptions options_;
  const Ranks ranks_;
  const WorldSplit split_;
  InProcessWorld world_of_one_{1};
  std::unique_ptr<CheckpointStore> store_;  // rank 0
  std::unique_ptr<TrainingReport> report_;
  TrainingSetup s_;
  std::unique_ptr<RankGrid> grid_;
  Ranks replicas_;  // with the same stages
  int micro_batches_ = 0;
  std::unique_ptr<TrainingBatches> batches_;
  std::unique_ptr<PipelineTrainer> trainer_;
  std::vector<double> votes_;  // of all ranks, as of the last batch
  double computed_ = 0;        // seconds of the last update's passes
  std::vector<HostBatch> hosts_;
  std::vector<std::vector<BatchView::Input>> inputs_;
  std::vector<BatchView> views_;
  int64_t expected_steps_ = 0;
  double started_ = 0, last_checkpoint_ = 0;
  bool stopped_ = false;
};

}  // namespace

TrainingSummary train_in_pipelines(const Config& config, const TrainerOptions& options) {
  PipelineTraining training(config, options);
  return training.run();
}

}  // namespace rondo
