#include "engine/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include "engine/io/checkpoint.h"
#include "engine/io/file.h"
#include "engine/io/signals.h"
#include "engine/train/average.h"
#include "engine/train/evaluation.h"
#include "engine/train/open_data.h"
#include "engine/train/training_report.h"
#include "engine/train/training_state.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr const char* best_model_file = "model.safetensors";

uint64_t hash_of(const ManifestDataset& data) {
  uint64_t h = 0x9e3779b97f4a7c15ull;
  for (int64_t i = 0; i < data.size(); ++i) h = (h ^ data.key(i)) * 0x100000001b3ull;
  return h;
}

class Trainer {
 public:
  Trainer(const Config& config, const TrainerOptions& options)
      : config_(config),
        options_(options),
        store_(config.training.checkpoint_dir, policy()),
        report_(config, options.out) {
    const fs::path directory = config.training.checkpoint_dir;
    const std::optional<Checkpoint> resumed = find_start(directory);
    open_data(resumed);
    build_session();
    if (resumed) {
      state_ = read_training_checkpoint(*resumed, *session_);
      if (state_.data_hash != hash_of(*train_)) {
        fail_input(config_.data.train, ": holds other utterances than the run in ",
                   directory.string(), " was trained on; start a new run with --init-from");
      }
      for (const std::string& w : resumed->warnings()) report_.message("warning: " + w);
      for (const std::string& d : config_differences(stored_config_, config_)) {
        report_.message("warning: differs from the run so far: " + d);
      }
    } else {
      state_.data_hash = hash_of(*train_);
      if (!config_.training.init_from.empty()) initialize_from(config_.training.init_from);
    }
    replace_text_file(directory / "config.toml", to_toml(config_));
    report_.begin(*session_, *train_, dev_.get(), state_, resumed.has_value());
  }

  TrainingSummary run() {
    const double started = now_seconds();
    started_ = started - state_.seconds;
    last_checkpoint_ = started;
    Sampler requests = make_sampler(), positions = make_sampler();
    requests.seek(state_.epoch, state_.step_in_epoch);
    const auto epochs = static_cast<uint64_t>(config_.training.epochs);
    Prefetcher prefetch(*train_,
                        [&]() -> std::optional<BatchRequest> {
                          const BatchRequest next = requests.next();
                          return next.epoch < epochs ? std::optional(next) : std::nullopt;
                        },
                        {config_.data.prefetch_threads, config_.data.prefetch_batches});
    reserve(positions);
    const int64_t steps_per_epoch =
        (positions.steps(0) + config_.training.accumulation - 1) / config_.training.accumulation;
    expected_steps_ = steps_per_epoch * config_.training.epochs;
    if (config_.training.max_steps > 0) {
      expected_steps_ = std::min(expected_steps_, config_.training.max_steps);
    }
    HostBatch batch;
    int micro_batches = 0;
    bool done = finished();
    while (!done && next_batch(prefetch, batch)) {
      const bool epoch_ends = batch.step + 1 == positions.steps(batch.epoch);
      const uint64_t seed = step_seed(batch);
      session_->accumulate(batch_view(batch, config_.task, inputs_, seed));
      note_nonfinite(batch);
      if (++micro_batches < config_.training.accumulation && !epoch_ends) continue;
      micro_batches = 0;
      update(batch, epoch_ends, positions.steps(batch.epoch), prefetch.wait_seconds());
      done = finished();
      if (dev_ && (epoch_ends || validation_is_due() || (done && !stopped_))) {
        validate();  // and save
        done = finished();
      } else if (done || epoch_ends || checkpoint_is_due()) {
        save(std::nullopt);
      }
    }
    if (!stopped_) {
      finish();
      if (!config_.data.test.empty()) test();
    }
    report_.end();
    TrainingSummary s;
    s.steps = state_.step;
    s.epochs = static_cast<int64_t>(state_.epoch);
    s.seconds = now_seconds() - started_;
    s.best_metric = dev_ ? state_.best_metric : std::numeric_limits<double>::quiet_NaN();
    s.input_wait_share = prefetch.wait_seconds() / std::max(now_seconds() - started, 1e-9);
    s.stopped_by_signal = stopped_;
    return s;
  }

 private:
  CheckpointPolicy policy() const {
    return {std::max(config_.training.keep_last, 1),
            std::max(config_.training.keep_best, config_.training.average_best)};
  }

  std::optional<Checkpoint> find_start(const fs::path& directory) {
    for (const std::string& w : store_.take_warnings()) report_.message("warning: " + w);
    if (options_.start == StartFrom::checkpoint) {
      auto checkpoint = open_latest(directory);
      if (!checkpoint) report_.message(directory.string() + " holds no checkpoint: starting anew");
      return checkpoint;
    }
    if (!list_checkpoints(directory).empty()) {
      fail_input(directory.string(),
                 ": holds a training run already; continue it with --resume, or "
                 "choose another training.checkpoint_dir");
    }
    return std::nullopt;
  }

  void open_data(const std::optional<Checkpoint>& resumed) {
    if (resumed) {
      const SafetensorsFile file = resumed->tensors(best_model_file);
      const auto stored = ModelDescription::from_metadata(file.metadata(), file.name());
      stored_config_ = stored.config;
      description_.alphabet = stored.alphabet;
      description_.mean = stored.mean;
      description_.inverse_std = stored.inverse_std;
    }
    if (config_.task == Task::ctc) {
      alphabet_ = resumed ? Alphabet(description_.alphabet) : make_alphabet(config_);
      description_.alphabet = alphabet_.symbols();
    }
    const TextEncoder* text = config_.task == Task::ctc ? &alphabet_ : nullptr;
    train_ = open_dataset(config_, config_.data.train, DataUse::training, options_.audio, text);
    report_.problems(*train_, config_.data.train);
    if (!config_.data.dev.empty()) {
      dev_ = open_dataset(config_, config_.data.dev, DataUse::evaluation, options_.audio, text);
    }
    if (config_.features.cmvn == Cmvn::global) {
      if (!resumed) {
        const GlobalCmvn cmvn = global_cmvn(*train_, 0, usable_cpus());
        description_.mean = cmvn.mean;
        description_.inverse_std = cmvn.scale;
      }
      const GlobalCmvn cmvn{description_.mean, description_.inverse_std};
      train_->set_global_cmvn(cmvn);
      if (dev_) dev_->set_global_cmvn(cmvn);
    }
    description_.config = config_;
    description_.sizes.features = train_->feature_dim();
    switch (config_.task) {
      case Task::ctc:
        description_.sizes.outputs = alphabet_.classes();
        break;
      case Task::classify:
        description_.sizes.outputs = std::max<int64_t>(config_.model.outputs, train_->classes());
        break;
      case Task::regress:
        description_.sizes.outputs = train_->target_dim();
        break;
    }
    if (dev_) {
      require_fit(*dev_, config_.data.dev, config_.task, description_.sizes, config_.data.train);
    }
  }

  void build_session() {
    SessionOptions o = session_options(config_, options_.device);
    o.lockstep = options_.lockstep;
    session_ =
        std::make_unique<Session>(build_model(config_.model, config_.task, description_.sizes), o);
  }

  // Weights of another model; its shapes must be those of this one.
  void initialize_from(const std::string& path) {
    std::vector<std::string> warnings;
    const SafetensorsFile file = open_model(path, &warnings);
    for (const std::string& w : warnings) report_.message("warning: " + w);
    session_->load(file);
    report_.message("weights from " + file.name());
  }

  Sampler make_sampler() const {
    SamplerConfig s;
    s.seed = config_.training.seed;
    s.batch_frames = config_.data.batch_frames;
    s.sorted_first_epoch = config_.data.sorta_grad;
    return Sampler(
        train_->size(),
        [data = train_.get(), limit = s.batch_frames](int64_t i, uint64_t e) {
          const int32_t frames = data->frames(i, e);
          if (frames > limit) {
            fail_input(data->name(i), ": ", data->entry(i).path, " has ", frames,
                       " frames, more than data.batch_frames = ", limit);
          }
          return frames;
        },
        s);
  }

  // Data that turn out to be bad must not cost the updates made before.
  bool next_batch(Prefetcher& prefetch, HostBatch& batch) {
    try {
      return prefetch.next(batch);
    } catch (const InputError&) {
      if (state_.step > 0) save(std::nullopt);
      throw;
    }
  }

  // Memory for the largest batch of the first epochs, before the first step.
  void reserve(Sampler& sampler) {
    BatchCapacity capacity;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      for (int64_t step = 0; step < sampler.steps(epoch); ++step) {
        BatchCapacity c;
        for (int64_t i : sampler.at(epoch, step).utterances) {
          const int32_t frames = train_->frames(i, epoch);
          const auto labels = static_cast<int32_t>(train_->label_count(i));
          c.packed.rows += frames;
          c.packed.frames = std::max(c.packed.frames, frames);
          ++c.packed.sequences;
          c.labels += labels;
          c.max_label_length = std::max(c.max_label_length, labels);
        }
        capacity = BatchCapacity::merge(capacity, c);
      }
    }
    session_->reserve(capacity);
  }

  // Dropout's key: of the micro-batch, not of the clock.
  uint64_t step_seed(const HostBatch& batch) const {
    uint64_t z = config_.training.seed * 0x9e3779b97f4a7c15ull +
                 batch.epoch * 0xd1342543de82ef95ull + static_cast<uint64_t>(batch.step);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    return z ^ (z >> 31);
  }

  void note_nonfinite(const HostBatch& batch) {
    const std::vector<float>& losses = session_->last_result().losses;
    for (size_t n = 0; n < losses.size(); ++n) {
      if (!std::isnan(losses[n])) continue;
      report_.message(
          str("warning: ", train_->name(batch.utterances[n]), ": its loss is not a number"));
    }
  }

  void update(const HostBatch& batch, bool epoch_ends, int64_t batches, double waited) {
    const double rate = learning_rate(config_.schedule, config_.optimizer.lr, state_.step + 1,
                                      expected_steps_, state_.plateau);
    session_->set_learning_rate(rate);
    const StepResult& r = session_->update();
    ++state_.step;
    state_.frames += r.frames;
    state_.epoch = epoch_ends ? batch.epoch + 1 : batch.epoch;
    state_.step_in_epoch = epoch_ends ? 0 : batch.step + 1;
    state_.optimizer_steps = session_->optimizer().steps();
    state_.seconds = now_seconds() - started_;
    state_.skipped += r.skipped ? 1 : 0;
    state_.skipped_in_a_row = r.skipped ? state_.skipped_in_a_row + 1 : 0;
    const double epoch = static_cast<double>(batch.epoch) +
                         static_cast<double>(batch.step + 1) / static_cast<double>(batches);
    report_.step(state_, r, rate, epoch, expected_steps_, waited);
    if (!r.skipped) return;
    report_.message(str("warning: step ", state_.step, ": the gradient is not finite; skipped (",
                        state_.skipped, " so far)"));
    if (config_.training.non_finite == OnNonFinite::stop ||
        state_.skipped_in_a_row >= config_.training.non_finite_limit) {
      save(std::nullopt);
      fail_input("training stopped at step ", state_.step, ": ", state_.skipped_in_a_row,
                 " steps in a row had a gradient that is not finite; lower optimizer.lr or "
                 "training.clip, and look at the data");
    }
  }

  bool finished() {
    if (stop_requested()) {
      stopped_ = true;
      return true;
    }
    const TrainingConfig& t = config_.training;
    return static_cast<int64_t>(state_.epoch) >= t.epochs ||
           (t.max_steps > 0 && state_.step >= t.max_steps) ||
           (t.max_seconds > 0 && now_seconds() - started_ >= t.max_seconds) ||
           (t.patience > 0 && state_.validations_without_progress >= t.patience);
  }

  bool validation_is_due() const {
    const int64_t every = config_.training.validate_every_steps;
    return every > 0 && state_.step % every == 0;
  }

  bool checkpoint_is_due() const {
    const TrainingConfig& t = config_.training;
    return (t.checkpoint_every_steps > 0 && state_.step % t.checkpoint_every_steps == 0) ||
           (t.checkpoint_every_seconds > 0 &&
            now_seconds() - last_checkpoint_ >= t.checkpoint_every_seconds);
  }

  Evaluation evaluate_dev(std::vector<SampleHypothesis>* samples) {
    EvaluationOptions o;
    o.task = config_.task;
    o.batch_frames = config_.data.batch_frames;
    const auto wanted = static_cast<size_t>(samples ? config_.training.samples : 0);
    return evaluate(
        *session_, *dev_, config_.task == Task::ctc ? &alphabet_ : nullptr, o,
        [&](const Hypothesis& h) {
          // The same utterances each time: the first of the manifest.
          if (static_cast<size_t>(h.utterance) >= wanted) return;
          samples->push_back({h.utterance, dev_->name(h.utterance),
                              reference_text(dev_->entry(h.utterance), alphabet_).value_or(""),
                              h.text});
        });
  }

  void validate() {
    const bool averaged = session_->optimizer().averages();
    if (averaged) session_->optimizer().swap_average();
    std::vector<SampleHypothesis> samples;
    const Evaluation e = evaluate_dev(&samples);
    const double metric = e.metric(config_.task);
    const bool better =
        metric < state_.best_metric || (metric == state_.best_metric && e.loss < state_.best_loss);
    if (better) {
      state_.best_metric = metric;
      state_.best_loss = e.loss;
      save_model((fs::path(config_.training.checkpoint_dir) / best_model_file).string(), *session_,
                 description_);
    }
    if (averaged) session_->optimizer().swap_average();
    state_.validations_without_progress = better ? 0 : state_.validations_without_progress + 1;
    state_.plateau = plateau_update(config_.schedule, state_.plateau, metric);
    state_.seconds = now_seconds() - started_;
    report_.validation(state_, e, config_.task, better, samples);
    save(metric);
  }

  void save(std::optional<double> metric) {
    CheckpointWriter writer = store_.begin();
    write_training_checkpoint(writer, *session_, description_, state_);
    writer.commit(state_.step, metric);
    last_checkpoint_ = now_seconds();
    for (const std::string& w : store_.take_warnings()) report_.message("warning: " + w);
  }

  // The best model on the test data, which played no part until now.
  void test() {
    session_->load((fs::path(config_.training.checkpoint_dir) / best_model_file).string());
    const TextEncoder* text = config_.task == Task::ctc ? &alphabet_ : nullptr;
    const auto data =
        open_dataset(config_, config_.data.test, DataUse::evaluation, options_.audio, text);
    if (config_.features.cmvn == Cmvn::global) {
      data->set_global_cmvn({description_.mean, description_.inverse_std});
    }
    EvaluationOptions o;
    o.task = config_.task;
    o.batch_frames = config_.data.batch_frames;
    const Evaluation e =
        evaluate(*session_, *data, config_.task == Task::ctc ? &alphabet_ : nullptr, o);
    report_.test(state_, e, config_.task);
  }

  // The average of the best generations replaces the best model when it is at least as good.
  void finish() {
    const fs::path directory = config_.training.checkpoint_dir;
    const std::string best = (directory / best_model_file).string();
    if (!dev_) {
      const bool averaged = session_->optimizer().averages();
      if (averaged) session_->optimizer().swap_average();
      save_model(best, *session_, description_);
      if (averaged) session_->optimizer().swap_average();
      return;
    }
    if (config_.training.average_best < 2) return;
    const auto averaged =
        average_best_checkpoints(directory, config_.training.average_best, *session_);
    if (averaged < 2) return;
    const Evaluation e = evaluate_dev(nullptr);
    const double metric = e.metric(config_.task);
    const bool better = metric <= state_.best_metric;
    report_.message(str("average of the best ", averaged, " checkpoints: ",
                        metric_text(config_.task, metric), better ? ", kept" : ", not kept"));
    if (!better) return;
    state_.best_metric = metric;
    save_model(best, *session_, description_);
  }

  Config config_, stored_config_;  // stored: of the run that is continued
  TrainerOptions options_;
  CheckpointStore store_;
  TrainingReport report_;
  Alphabet alphabet_;
  std::unique_ptr<ManifestDataset> train_, dev_;
  ModelDescription description_;
  std::unique_ptr<Session> session_;
  TrainingState state_;
  std::vector<BatchView::Input> inputs_;
  int64_t expected_steps_ = 0;
  double started_ = 0, last_checkpoint_ = 0;
  bool stopped_ = false;
};

}  // namespace

TrainingSummary train(const Config& config, const TrainerOptions& options) {
  // Before the checkpoint directory is made.
  if (config.data.train.empty()) {
    fail_input("no training data: set data.train, or data=DIR for a prepared corpus");
  }
  read_manifest(config.data.train);
  Trainer trainer(config, options);
  return trainer.run();
}

}  // namespace rondo
