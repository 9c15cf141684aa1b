#include "engine/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "engine/data/features/files.h"
#include "engine/io/file.h"
#include "engine/parallel/same_batches.h"
#include "engine/parallel/stop_patience.h"
#include "engine/train/combinations.h"
#include "engine/train/model/open_data.h"
#include "engine/train/results_in_flight.h"
#include "engine/train/run_files.h"
#include "engine/train/run_keeper.h"
#include "engine/train/state/elastic_progress.h"
#include "engine/train/state/profile.h"
#include "engine/train/state/run_learning_rate.h"
#include "engine/train/training_batches.h"
#include "engine/train/training_strategy.h"
#include "kernels/base/cpu/thread.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// What the ranks tell each other where they meet. Clocks are rank 0's.
enum Vote : size_t {
  vote_stop,
  vote_end,
  vote_save,
  vote_regroup,
  vote_batches,
  vote_seconds = vote_batches + SameBatches::votes  // by rank; behind them those of waiting
};
constexpr size_t lasting_votes = vote_end + 1;

class Trainer {
 public:
  // `training`: config.data.train, read; nothing where the data are open already.
  Trainer(const Config& config, const TrainerOptions& options, std::optional<Manifest> training)
      : config_(config), options_(options), ranks_(make_ranks(1)), progress_(options.kept) {
    const Ranks setup = make_ranks(10);
    require_same_settings(setup, config_, options.version);
    setup.read_at_first([&] { require_checkpoint(config_, options_); });
    setup.at_first([&] {
      store_ = std::make_unique<CheckpointStore>(config_.training.checkpoint_dir, policy());
    });
    setup.together([&] {
      fs::create_directories(config_.training.checkpoint_dir);
      report_ = std::make_unique<TrainingReport>(config_, options_, ranks_);
    });
    if (store_) {
      report_->warnings(store_->take_warnings());
      report_->warnings(remove_leftovers(config_));
    }
    s_ = set_up_training(setup, config_, options_, *report_, std::move(training));
    if (store_) store_->set_best_after(s_.state.chosen_by_since);
    votes_.assign(vote_seconds + 2 * static_cast<size_t>(ranks_.size()), 0.0);
    strategy_ = make_strategy({config_, options_, ranks_, setup, votes_.size(), lasting_votes}, s_);
    model_ = strategy_.model.get();
    async_ = strategy_.async.get();
    if (options_.stop_pending && ranks_.size() > 1 && !async_) watch_stops();
    keeper_ =
        std::make_unique<RunKeeper>(setup, config_, options_, store_.get(), s_, *model_, *report_);
    results_ = std::make_unique<ResultsInFlight>(config_, s_, *model_, *report_);
    restore_training(setup, config_, s_, *model_, *report_);
    ranks_.at_first([&] {
      replace_text_file(fs::path(config_.training.checkpoint_dir) / "config.toml",
                        to_toml(config_));
    });
    progress_.agree(ranks_, s_.state, s_.dev && s_.state.validation_pending);
    if (progress_.from_memory()) {
      report_->regrouped(s_.state, *options_.kept, progress_.next() == NextAct::validation);
    } else {
      report_->begin(model_->weights(), model_->describe(), *s_.train, s_.dev.get(), s_.state,
                     s_.resumed);
    }
    if (!options_.note.empty()) report_->message(options_.note);
    for (const std::string& text : strategy_.messages) report_->message(text);
  }

  TrainingSummary run() {
    if (!progress_.keeps()) return run_on();
    options_.kept->drop_arrays();  // the session has them
    try {
      return run_on();
    } catch (const CommError&) {
      if (trouble()) throw InputError(*trouble());
      keep();
      throw;
    }
  }

 private:
  // Where ranks wait for each other with each update.
  void watch_stops() {
    stop_patience_ = std::make_unique<StopPatience>(options_.stop_pending, [this](auto waited) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(waited).count();
      const std::string why =
          str("was told to stop, and the others have not come for ", seconds, " s");
      options_.group->abort(why);
      if (options_.sums) options_.sums->abort(why);
    });
  }
  std::unique_ptr<StopPatience::Watch> watch(StopPatience::Duration& longest) {
    if (!stop_patience_) return nullptr;
    return std::make_unique<StopPatience::Watch>(*stop_patience_, longest);
  }

  TrainingSummary run_on() {
    const double began = now_seconds();
    started_ = began - s_.state.seconds;
    last_checkpoint_ = began;
    TrainingBatches batches(config_, *s_.train, share(), model_->weights());
    BatchCapacity capacity;
    ranks_.together([&] { capacity = batches.largest(3); });
    try_kernels({config_, options_, ranks_, ranks_}, *model_, capacity.packed.sequences, s_.state,
                *report_);
    ranks_.together([&] { prepare(batches, capacity); });
    results_->start(started_, learning_rate_.expected_steps());
    vote();
    ranks_.sum(votes_);
    // Where ranks compute on cores, those that meet wait for the slowest: what is read should take
    // the time in which a core waits, rather than any rank's time to compute.
    const bool background = ranks_.size() > 1 && options_.device.kind == DeviceKind::cpu;
    batches.start({s_.state.epoch, s_.state.step_in_epoch}, background);
    passed_.push_back({s_.state.epoch, s_.state.step_in_epoch});
    if (progress_.from_memory()) {
      catch_up();
    } else if (s_.dev && s_.state.validation_pending && votes_[vote_stop] == 0) {
      validate(ranks_);
    }
    // What ranks out of step can do alone, the first of them does.
    const bool apart = async_ != nullptr;
    const bool keeps = !apart || ranks_.first();
    bool done = finished();
    const bool at_all = !done;
    if (!stopped_ && !at_all)
      report_->message(str("nothing is left to do: the run has come to the end that ", over_by(),
                           " sets; a larger value goes on"));
    if (!options_.profile.empty()) profile_.emplace(options_.profile, model_->context(), ranks_);
    while (!done) {
      if (profile_) profile_->before_update(s_.state.step + 1);
      const bool epoch_ends = update(batches);
      if (profile_ && profile_->complete(s_.state.step)) finish_profile();
      done = finished();
      if (!keeps || (apart && done)) continue;
      if (s_.dev && (epoch_ends || validation_is_due(s_.state.step) || is_over())) {
        validate(apart ? alone_ : ranks_);  // and save
        done = finished();
      } else if (done || epoch_ends || checkpoint_is_due()) {
        save(apart ? alone_ : ranks_);
      }
      if (!done && votes_[vote_regroup] > 0) return regroup();
    }
    results_->settle(0);
    if (apart && at_all) come_together();
    if (trouble()) stop_in_trouble();
    if (profile_) finish_profile();
    if (at_all && !options_.timeline.empty()) {
      draw_timeline(ranks_, config_, strategy_, s_.state.step, options_.timeline);
      if (ranks_.first()) report_->message("timeline: " + options_.timeline);
    }
    if (!stopped_) {
      if (progress_.keeps()) keep();  // the model gets other weights
      stopped_ = !keeper_->finish(ranks_);
      if (!stopped_ && !config_.data.test.empty()) stopped_ = !keeper_->test(ranks_);
    }
    report_->end(s_.state);
    TrainingSummary s;
    s.steps = s_.state.step;
    s.epochs = static_cast<int64_t>(s_.state.epoch);
    s.seconds = now_seconds() - started_;
    s.chosen_by = s_.state.chosen_by;
    s.best_metric = s_.dev ? s_.state.best_metric : std::numeric_limits<double>::quiet_NaN();
    s.input_wait_share = batches.wait_seconds() / std::max(now_seconds() - began, 1e-9);
    s.stopped_by_signal = stopped_;
    return s;
  }

  void finish_profile() {
    results_->settle(0);
    const std::string shown = profile_->finish(s_.state.step);
    profile_.reset();
    if (ranks_.first()) report_->message(shown);
  }

  // What the ranks that were here before have not done.
  void catch_up() {
    stopped_ = votes_[vote_stop] > 0;
    const bool pending = s_.dev && s_.state.validation_pending && !stopped_;
    if (progress_.next() == NextAct::validation || pending) {
      validate(ranks_);
    } else if (progress_.next() == NextAct::checkpoint) {
      save(ranks_, progress_.score());
    } else if (stopped_) {
      save(ranks_);
    }
  }

  // When this rank is in no update; of one that was broken off nothing is left.
  void keep() {
    if (progress_.has_kept()) return;
    keeper_->break_off();
    progress_.keep(s_.state, s_.description, model_->parameters().weights(),
                   model_->optimizer().state(), ranks_.size());
  }

  TrainingSummary regroup() {
    keep();
    TrainingSummary s;
    s.steps = s_.state.step;
    s.regroups = true;
    return s;
  }

  CheckpointPolicy policy() const {
    // Where ranks start again, rank 0 of the attempt before may be saving still.
    const std::chrono::seconds patience(options_.group ? 10 : 0);
    return {std::max(config_.training.keep_last, 1),
            std::max(config_.training.keep_best, config_.training.average_best), patience};
  }

  Ranks make_ranks(double factor) const {
    if (!options_.group) return {};
    const std::chrono::duration<double> patience(factor * config_.parallel.timeout_seconds);
    return Ranks(*options_.group, std::chrono::duration_cast<CommClock::duration>(patience),
                 options_.sums);
  }

  // Memory for the largest batch of the first epochs, before the first step.
  void prepare(TrainingBatches& batches, const BatchCapacity& capacity) {
    if (capacity.packed.sequences > 0) {
      model_->reserve(capacity);
      report_->memory(s_.state, model_->memory().activations);
    }
    begin_learning_rate(batches.updates_per_epoch());
    const int64_t warmup = config_.lr.warmup_steps;
    if (ranks_.first() && s_.state.step == 0 && warmup > 0 &&
        warmup >= learning_rate_.expected_steps()) {
      report_->message(str("warning: the learning rate rises for ", warmup,
                           " updates, and the run has ", learning_rate_.expected_steps(),
                           "; lr.warmup_steps=0 begins with all of it"));
    }
  }

  void begin_learning_rate(int64_t updates_per_epoch) {
    if (!s_.resumed) return learning_rate_.begin(s_.state, updates_per_epoch);
    const std::string jump = learning_rate_.go_on(s_.before, s_.state, updates_per_epoch);
    if (!jump.empty() && ranks_.first()) report_->message("warning: " + jump);
  }

  void vote() {
    const double now = now_seconds();
    const TrainingConfig& t = config_.training;
    std::fill(votes_.begin(), votes_.end(), 0.0);
    votes_[vote_stop] = options_.stop && options_.stop() ? 1 : 0;
    const auto own = static_cast<size_t>(ranks_.rank());
    votes_[vote_seconds + own] = computed_;
    votes_[vote_seconds + static_cast<size_t>(ranks_.size()) + own] = waited_;
    same_batches_.vote(votes_on_batches());
    if (!ranks_.first()) return;
    votes_[vote_end] = (t.max_seconds > 0 && now - started_ >= t.max_seconds) || !progresses();
    votes_[vote_regroup] = options_.regroup && options_.regroup() ? 1 : 0;
    votes_[vote_save] =
        t.checkpoint_every_seconds > 0 && now - last_checkpoint_ >= t.checkpoint_every_seconds;
  }

  std::span<double, SameBatches::votes> votes_on_batches() {
    return std::span(votes_).subspan<vote_batches, SameBatches::votes>();
  }

  // One update; whether it was the epoch's last.
  bool update(TrainingBatches& batches) {
    const Span span("update");
    const double began = now_seconds(), waited_before = batches.wait_seconds();
    const double rate = learning_rate_.rate(s_.state);
    model_->optimizer().set_learning_rate(rate);
    const TrainingBatches::Update extent = batches.next_update();
    if (ranks_.size() > 1) same_batches_.begin(batches.content(extent));
    failure_ = nullptr;
    try {
      const auto watched = watch(longest_update_);
      accumulate(batches, extent.batches);
      note_computed(now_seconds() - began);
      waited_ += batches.wait_seconds() - waited_before;
      vote();
      const bool applied = apply();
      advance(extent);
      if (applied) {
        results_->expect_update(s_.state.step, rate, extent.epoch, times(batches));
      }
      results_->settle(lag());
      if (trouble()) failure_ = std::make_exception_ptr(InputError(*trouble()));
      if (async_) async_->meet({failure_ != nullptr, votes_});
      note_votes();
    } catch (const UpdateWithdrawn&) {
      give_up();
    }
    if (trouble()) stop_in_trouble();
    return extent.epoch_ends;
  }

  DataShare share() const { return async_ ? async_->share() : model_->share(); }
  size_t lag() const { return async_ ? 0 : model_->lag(); }

  // The gradients become an update; false when ranks out of step have nothing to apply. Votes
  // travel with the sums of whole models.
  bool apply() {
    const Votes votes{failure_ != nullptr, votes_};
    if (async_) return async_->enqueue_update(votes);
    if (model_->whole() && ranks_.size() > 1) {
      model_->enqueue_update(votes);
    } else {
      model_->enqueue_update({votes.failed, {}});
      ranks_.sum(votes_);
    }
    return true;
  }

  // What this rank needed for its share; of a device that works on its own, as far as it has come.
  void note_computed(double seconds_of_host) {
    const double on_device = model_->communication().computed;
    computed_ += on_device > 0 ? on_device - device_seconds_ : seconds_of_host;
    device_seconds_ = on_device;
  }

  // This rank's parts of so many batches, until something goes wrong.
  void accumulate(TrainingBatches& batches, int count) {
    for (int i = 0; i < count && !failure_; ++i) {
      const bool last = i + 1 == count;
      attempt([&] { draw(batches); });
      // Ranks with stages and shards wait for each other within a batch: one that has not got its
      // data must not leave the others waiting, and one that fails there must end.
      if (!model_->whole() && is_any(failure_ != nullptr)) throw UpdateWithdrawn();
      if (failure_) return;
      if (model_->whole()) {
        attempt([&] { pass(last); });
      } else {
        pass(last);
      }
    }
  }

  bool is_any(bool here) const {
    double wanted = here ? 1 : 0;
    ranks_.sum({&wanted, 1});
    return wanted > 0;
  }

  void attempt(const std::function<void()>& action) {
    try {
      action();
    } catch (const CommError&) {
      throw;
    } catch (const std::exception&) {
      failure_ = std::current_exception();
    }
  }

  void draw(TrainingBatches& batches) {
    const Span span("wait for data");
    const auto n = static_cast<size_t>(share().own.size());
    parts_.clear();
    hosts_.resize(n);
    inputs_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      RONDO_CHECK(batches.next(hosts_[i]), "the batches have ended before the epochs");
      parts_.push_back(
          batch_view(hosts_[i], config_.task, inputs_[i], step_seed(config_, hosts_[i])));
    }
  }

  // Forward and backward of a batch; `last`: of the update.
  void pass(bool last) {
    if (async_) {
      async_->enqueue(parts_);
    } else {
      model_->enqueue(parts_, last);
    }
    std::vector<int64_t> utterances;
    for (const HostBatch& host : hosts_) {
      utterances.insert(utterances.end(), host.utterances.begin(), host.utterances.end());
    }
    results_->expect_batch(std::move(utterances));
    // After the last, apply() follows: a whole update may be on its way by then.
    if (!last) results_->settle(lag());
  }

  StepTimes times(const TrainingBatches& batches) {
    StepTimes t;
    t.waited_for_input = batches.wait_seconds();
    t.rank_seconds = std::exchange(rank_seconds_, {});
    t.rank_waits = std::exchange(rank_waits_, {});
    t.communication = model_->communication();
    if (async_) t.more = async_->log_values();
    return t;
  }

  const std::optional<std::string>& trouble() const { return results_->trouble(); }

  // The trouble is one of an update that all ranks share, so that all of them come here.
  void stop_in_trouble() {
    save(ranks_);
    ranks_.at_first([&] { throw InputError(*trouble()); });
  }

  void note_votes() {
    computed_ = waited_ = 0;
    if (async_) {
      passed_.push_back({s_.state.epoch, s_.state.step_in_epoch});
    } else {
      same_batches_.require(ranks_, votes_on_batches(), s_.state.step);
      const auto seconds = votes_.begin() + vote_seconds;
      rank_seconds_.assign(seconds, seconds + ranks_.size());
      rank_waits_.assign(seconds + ranks_.size(), votes_.end());
    }
  }

  // The end of training for ranks out of step: the mean of their weights is one more candidate.
  void come_together() {
    vote();
    try {
      async_->finish({false, votes_});
    } catch (const UpdateWithdrawn&) {
      failure_ = nullptr;
      give_up();
    }
    vote();  // while this rank waited, it may have been asked to stop
    ranks_.sum(votes_);
    stopped_ = stopped_ || votes_[vote_stop] > 0;
    // Only the first one has validated so far.
    s_.state = TrainingState::from_json(ranks_.broadcast(s_.state.to_json()), "state of rank 0");
    if (s_.dev && (!stopped_ || is_over())) {
      validate(ranks_);
    } else {
      save(ranks_);
    }
  }

  // A checkpoint of ranks out of step stands for the slowest one: nothing will be left out when the
  // run goes on, but what the others did beyond that comes again.
  TrainingState to_save() {
    TrainingState state = s_.state;
    state.optimizer_steps = model_->optimizer().steps();
    if (!async_) return state;
    for (; passed_updates_ < async_->slowest_updates() && passed_.size() > 1; ++passed_updates_) {
      passed_.pop_front();
    }
    state.epoch = passed_.front().epoch;
    state.step_in_epoch = passed_.front().step;
    return state;
  }

  // Data that turn out to be bad must not cost the updates made before.
  [[noreturn]] void give_up() {
    if (s_.state.step > 0 || async_) save(ranks_);
    ranks_.together([&] {
      if (failure_) std::rethrow_exception(failure_);
    });
    throw Error("an update was withdrawn by nobody");
  }

  void advance(const TrainingBatches::Update& extent) {
    ++s_.state.step;
    s_.state.epoch = extent.end.epoch;
    s_.state.step_in_epoch = extent.end.step;
  }

  // The same answer on all ranks: what the clock and signals say was voted on.
  bool finished() {
    stopped_ = stopped_ || votes_[vote_stop] > 0;
    return stopped_ || is_over();
  }
  // Without anybody asking to stop.
  bool is_over() const { return over_by() != nullptr; }
  // The setting that ended it; null while it goes on.
  const char* over_by() const {
    if (static_cast<int64_t>(s_.state.epoch) >= config_.training.epochs) return "training.epochs";
    if (steps_are_done(s_.state.step)) return "training.max_steps";
    if (!progresses()) return "training.patience";
    return votes_[vote_end] > 0 ? "training.max_seconds" : nullptr;
  }
  bool progresses() const {
    const int patience = config_.training.patience;
    return patience == 0 || s_.state.validations_without_progress < patience;
  }

  bool steps_are_done(int64_t step) const {
    return config_.training.max_steps > 0 && step >= config_.training.max_steps;
  }
  bool validation_is_due(int64_t step) const {
    const int64_t every = config_.training.validate_every_steps;
    return every > 0 && step % every == 0;
  }
  bool checkpoint_is_due() const {
    const int64_t every = config_.training.checkpoint_every_steps;
    return (every > 0 && s_.state.step % every == 0) || votes_[vote_save] > 0;
  }

  void validate(const Ranks& ranks) {
    results_->settle(0);
    s_.state.seconds = now_seconds() - started_;
    progress_.validation_is_next(s_.state);
    // What has been asked to stop by now leaves the validation to the next run.
    std::optional<Score> score;
    if (!stopped_) {
      const auto watched = watch(longest_validation_);
      score = keeper_->validate(ranks);
    }
    s_.state.validation_pending = !score;
    stopped_ = !score;
    save(ranks, score);
  }

  void save(const Ranks& ranks, std::optional<Score> score = std::nullopt) {
    results_->settle(0);
    s_.state.seconds = now_seconds() - started_;  // with the validation, if there was one
    progress_.checkpoint_is_next(score);
    keeper_->save(ranks, to_save(), score);
    progress_.update_is_next();
    last_checkpoint_ = now_seconds();
  }

  const Config config_;
  const TrainerOptions options_;
  const Ranks ranks_;
  std::unique_ptr<CheckpointStore> store_;  // rank 0
  std::unique_ptr<TrainingReport> report_;
  TrainingSetup s_;
  TrainingStrategy strategy_;
  RankModel* model_ = nullptr;   // the strategy's
  AsyncRanks* async_ = nullptr;  // likewise; nullptr: ranks update together
  std::unique_ptr<RunKeeper> keeper_;
  std::unique_ptr<ResultsInFlight> results_;
  std::optional<Profile> profile_;  // of updates that are still to come
  std::vector<double> votes_;       // of all ranks, as of the last update
  SameBatches same_batches_;
  ElasticProgress progress_;
  const Ranks alone_;  // this one
  // Ranks out of step keep the position after so many updates, and those after the updates since.
  std::deque<BatchPosition> passed_;
  int64_t passed_updates_ = 0;
  double waited_ = 0;                              // of these for its data
  std::vector<double> rank_seconds_, rank_waits_;  // of the last meeting, not reported yet
  double computed_ = 0;                            // seconds since then
  double device_seconds_ = 0;                      // computed on the device so far
  std::exception_ptr failure_;                     // of this rank in the current update
  // This rank's parts of a batch.
  std::vector<HostBatch> hosts_;
  std::vector<std::vector<BatchView::Input>> inputs_;
  std::vector<BatchView> parts_;
  RunLearningRate learning_rate_{config_};
  StopPatience::Duration longest_update_{}, longest_validation_{};
  std::unique_ptr<StopPatience> stop_patience_;  // nullptr: there is nobody to wait for
  double started_ = 0, last_checkpoint_ = 0;
  bool stopped_ = false;
};

}  // namespace

TrainingSummary train(const Config& config, const TrainerOptions& options) {
  refuse_after_fork("training");
  std::optional<Manifest> training;
  // Before the checkpoint directory is made.
  const auto check = [&] {
    require_training_data(config, options);
    require_combination(config, options);
    if (config.training.checkpoint_dir.empty()) {
      fail_input("training.checkpoint_dir is empty: name the directory for checkpoints and logs");
    }
    require_data_settings(config);
    require_metric(config);
    require_files_apart(config, options);
    if (options.kept && options.kept->train) return;  // it is open
    data::require_regular_file(config.data.train);    // read again by a run that goes on
    training = read_manifest(config.data.train);
  };
  if (options.group) {
    Ranks(*options.group, std::chrono::minutes(10)).together(check);
  } else {
    check();
  }
  Trainer trainer(config, options, std::move(training));
  return trainer.run();
}

}  // namespace rondo
