#include "engine/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <limits>
#include <optional>

#include "comm/in_process.h"
#include "engine/io/checkpoint.h"
#include "engine/io/file.h"
#include "engine/io/signals.h"
#include "engine/parallel/bucket_reducer.h"
#include "engine/parallel/invariant_reducer.h"
#include "engine/parallel/ranks.h"
#include "engine/train/average.h"
#include "engine/train/evaluation.h"
#include "engine/train/open_data.h"
#include "engine/train/shared_evaluation.h"
#include "engine/train/training_batches.h"
#include "engine/train/training_report.h"
#include "engine/train/training_setup.h"
#include "engine/train/training_state.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What the ranks tell each other with every update. Clocks are rank 0's.
enum Vote : size_t { vote_stop, vote_time_up, vote_save, vote_seconds /* by rank */ };

class Trainer {
 public:
  Trainer(const Config& config, const TrainerOptions& options)
      : config_(config), options_(options), ranks_(make_ranks(1)) {
    const Ranks setup = make_ranks(10);
    require_same_settings(setup, config_, options.version);
    setup.at_first([&] {
      store_ = std::make_unique<CheckpointStore>(config_.training.checkpoint_dir, policy());
    });
    setup.together([&] {
      fs::create_directories(config_.training.checkpoint_dir);
      report_ = std::make_unique<TrainingReport>(config_, options_.out, ranks_);
    });
    if (store_) warn(store_->take_warnings());
    s_ = set_up_training(setup, config_, options_, *report_);
    make_reducer();
    ranks_.at_first([&] {
      replace_text_file(fs::path(config_.training.checkpoint_dir) / "config.toml",
                        to_toml(config_));
    });
    report_->begin(*s_.session, *s_.train, s_.dev.get(), s_.state, s_.resumed);
  }

  TrainingSummary run() {
    const double started = now_seconds();
    started_ = started - s_.state.seconds;
    last_checkpoint_ = started;
    TrainingBatches batches(config_, *s_.train, shards_, shard_count_,
                            s_.session->parameters().trainable());
    ranks_.together([&] { plan(batches); });
    votes_.assign(vote_seconds + static_cast<size_t>(ranks_.size()), 0.0);
    vote(0);
    ranks_.sum(votes_);
    batches.start(s_.state.epoch, s_.state.step_in_epoch);
    bool done = finished();
    while (!done) {
      const bool epoch_ends = update(batches);
      done = finished();
      if (s_.dev && (epoch_ends || validation_is_due() || (done && !stopped_))) {
        validate();  // and save
        done = finished();
      } else if (done || epoch_ends || checkpoint_is_due()) {
        save(std::nullopt);
      }
    }
    settle(0);
    if (!stopped_) {
      finish();
      if (!config_.data.test.empty()) test();
    }
    report_->end();
    TrainingSummary s;
    s.steps = s_.state.step;
    s.epochs = static_cast<int64_t>(s_.state.epoch);
    s.seconds = now_seconds() - started_;
    s.best_metric = s_.dev ? s_.state.best_metric : std::numeric_limits<double>::quiet_NaN();
    s.input_wait_share = batches.wait_seconds() / std::max(now_seconds() - started, 1e-9);
    s.stopped_by_signal = stopped_;
    return s;
  }

 private:
  // A batch or an update given to the session, whose result has not been read.
  struct Enqueued {
    bool is_update = false;
    std::vector<int64_t> utterances = {};  // of a batch
    int64_t step = 0;                      // of an update, and what the report tells of it
    double rate = 0, epoch = 0;
    StepTimes times = {};
  };

  CheckpointPolicy policy() const {
    return {std::max(config_.training.keep_last, 1),
            std::max(config_.training.keep_best, config_.training.average_best)};
  }

  Ranks make_ranks(double factor) const {
    if (!options_.group) return {};
    const std::chrono::duration<double> patience(factor * config_.parallel.timeout_seconds);
    return Ranks(*options_.group, std::chrono::duration_cast<CommClock::duration>(patience));
  }

  void make_reducer() {
    const auto ballot = vote_seconds + static_cast<size_t>(ranks_.size());
    shards_ = {ranks_.rank(), ranks_.rank() + 1};
    shard_count_ = ranks_.size();
    if (config_.parallel.deterministic == Deterministic::world_invariant) {
      shard_count_ = config_.parallel.virtual_shards;
      if (shard_count_ < ranks_.size()) {
        fail_input("parallel.virtual_shards is ", shard_count_, ", fewer than the ", ranks_.size(),
                   " ranks");
      }
      if (!options_.group) alone_ = make_ring_group(world_of_one_.transport(0));
      auto reducer = std::make_unique<InvariantReducer>(options_.group ? *options_.group : *alone_,
                                                        shard_count_, ballot);
      shards_ = reducer->own();
      invariant_ = reducer.get();
      reducer_ = std::move(reducer);
    } else if (ranks_.size() > 1) {
      reducer_ = std::make_unique<BucketReducer>(*options_.group, s_.session->training_graph(),
                                                 s_.session->parameters(), bucket_bytes(), ballot);
    }
    if (reducer_ && !s_.session->context().device->host_memory()) {
      fail_input("parallel.deterministic = \"world_invariant\" trains on CPUs only so far");
    }
    s_.session->set_reducer(reducer_.get());
    // One step, so that a GPU has work while results are read. On the cpu they are there at once.
    const bool waits = reducer_ || s_.session->context().device->kind() == DeviceKind::cpu;
    lag_ = waits ? 0 : 2;
  }

  int64_t bucket_bytes() {
    if (config_.parallel.bucket_kb > 0) return config_.parallel.bucket_kb * 1024;
    const LinkSpeed link = measure_link(*options_.group);
    const int64_t bytes = bucket_bytes_for(link);
    report_->message(str("all-reduce: ", std::lround(link.latency * 1e6), " us, ",
                         std::lround(link.bandwidth / 1e6), " MB/s; gradients in buckets of ",
                         bytes / 1024, " KiB"));
    return bytes;
  }

  void warn(const std::vector<std::string>& warnings) {
    for (const std::string& w : warnings) report_->message("warning: " + w);
  }

  // Memory for the largest batch of the first epochs, before the first step.
  void plan(TrainingBatches& batches) {
    const BatchCapacity capacity = batches.largest(3);
    if (capacity.packed.sequences > 0) s_.session->reserve(capacity);
    const int64_t accumulation = config_.training.accumulation;
    expected_steps_ =
        (batches.steps(0) + accumulation - 1) / accumulation * config_.training.epochs;
    if (config_.training.max_steps > 0) {
      expected_steps_ = std::min(expected_steps_, config_.training.max_steps);
    }
  }

  void vote(double seconds) {
    const double now = now_seconds();
    const TrainingConfig& t = config_.training;
    std::fill(votes_.begin(), votes_.end(), 0.0);
    votes_[vote_stop] = stop_requested() ? 1 : 0;
    votes_[vote_seconds + static_cast<size_t>(ranks_.rank())] = seconds;
    if (!ranks_.first()) return;
    votes_[vote_time_up] = t.max_seconds > 0 && now - started_ >= t.max_seconds ? 1 : 0;
    votes_[vote_save] =
        t.checkpoint_every_seconds > 0 && now - last_checkpoint_ >= t.checkpoint_every_seconds;
  }

  // One update; whether it was the epoch's last.
  bool update(TrainingBatches& batches) {
    const double began = now_seconds();
    const double rate = learning_rate(config_.schedule, config_.optimizer.lr, s_.state.step + 1,
                                      expected_steps_, s_.state.plateau);
    s_.session->set_learning_rate(rate);
    const BatchPosition last = batches.last_of_update(config_.training.accumulation);
    std::exception_ptr failure;
    try {
      for (bool more = true; more;) {
        more = batches.position() != last;
        if (!more && reducer_) reducer_->last_batch();
        accumulate(batches, !more);
      }
    } catch (const CommError&) {
      throw;
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    vote(now_seconds() - began);
    try {
      apply(failure);
    } catch (const UpdateWithdrawn&) {
      give_up(failure);
    }
    const bool epoch_ends = last.step + 1 == batches.steps(last.epoch);
    advance(last, epoch_ends);
    StepTimes times;
    times.waited_for_input = batches.wait_seconds();
    times.rank_seconds.assign(votes_.begin() + vote_seconds, votes_.end());
    if (reducer_) times.communication = reducer_->times();
    const double epoch =
        static_cast<double>(last.epoch) +
        static_cast<double>(last.step + 1) / static_cast<double>(batches.steps(last.epoch));
    in_flight_.push_back({.is_update = true,
                          .step = s_.state.step,
                          .rate = rate,
                          .epoch = epoch,
                          .times = std::move(times)});
    settle(lag_);
    return epoch_ends;
  }

  // Reads results until those of `left` batches and updates remain.
  void settle(size_t left) {
    while (in_flight_.size() > left) {
      const Enqueued item = std::move(in_flight_.front());
      in_flight_.pop_front();
      const StepResult& r = s_.session->collect();
      if (item.is_update) {
        note_update(item, r);
      } else {
        note_nonfinite(item, r.losses);
      }
    }
  }

  void note_update(const Enqueued& update, const StepResult& r) {
    TrainingState& state = s_.state;
    state.frames += r.frames;
    state.optimizer_steps = s_.session->optimizer().steps();
    state.seconds = now_seconds() - started_;
    state.skipped += r.skipped ? 1 : 0;
    state.skipped_in_a_row = r.skipped ? state.skipped_in_a_row + 1 : 0;
    TrainingState then = state;
    then.step = update.step;
    report_->step(then, r, update.rate, update.epoch, expected_steps_, update.times);
    if (r.skipped) note_skipped(update.step);
  }

  // This rank's shards of one batch. The last of an update on one rank takes the update with it;
  // its results are waited for after that.
  void accumulate(TrainingBatches& batches, bool last) {
    for (int shard = shards_.begin; shard < shards_.end; ++shard) {
      RONDO_CHECK(batches.next(batch_), "the batches have ended before the epochs");
      const bool whole = last && shard + 1 == shards_.end && !reducer_ && !invariant_;
      s_.session->enqueue(batch_view(batch_, config_.task, inputs_, step_seed(batch_)),
                          whole ? Session::Next::update : Session::Next::anything);
      in_flight_.push_back({.utterances = batch_.utterances});
      if (!whole) settle(lag_);
      if (invariant_) invariant_->take(shard, s_.session->parameters());
    }
  }

  void apply(const std::exception_ptr& failure) {
    if (failure && !reducer_) throw UpdateWithdrawn();
    if (reducer_) std::copy(votes_.begin(), votes_.end(), reducer_->ballot().begin());
    if (failure) reducer_->withdraw(s_.session->parameters().gradients(), Session::count_sums);
    s_.session->enqueue_update();
    if (reducer_) std::copy_n(reducer_->ballot().begin(), votes_.size(), votes_.begin());
  }

  // Data that turn out to be bad must not cost the updates made before.
  [[noreturn]] void give_up(const std::exception_ptr& failure) {
    if (s_.state.step > 0) save(std::nullopt);
    ranks_.together([&] {
      if (failure) std::rethrow_exception(failure);
    });
    throw Error("an update was withdrawn by nobody");
  }

  void advance(const BatchPosition& last, bool epoch_ends) {
    TrainingState& state = s_.state;
    ++state.step;
    state.epoch = epoch_ends ? last.epoch + 1 : last.epoch;
    state.step_in_epoch = epoch_ends ? 0 : last.step + 1;
  }

  // Dropout's key: of the micro-batch, not of the clock.
  uint64_t step_seed(const HostBatch& batch) const {
    uint64_t z = config_.training.seed * 0x9e3779b97f4a7c15ull +
                 batch.epoch * 0xd1342543de82ef95ull + static_cast<uint64_t>(batch.step);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    return z ^ (z >> 31);
  }

  void note_nonfinite(const Enqueued& batch, const std::vector<float>& losses) {
    for (size_t n = 0; n < losses.size(); ++n) {
      if (!std::isnan(losses[n])) continue;
      report_->message(
          str("warning: ", s_.train->name(batch.utterances[n]), ": its loss is not a number"));
    }
  }

  void note_skipped(int64_t step) {
    const TrainingState& state = s_.state;
    report_->message(str("warning: step ", step, ": the gradient is not finite; skipped (",
                         state.skipped, " so far)"));
    if (config_.training.non_finite != OnNonFinite::stop &&
        state.skipped_in_a_row < config_.training.non_finite_limit) {
      return;
    }
    save(std::nullopt);
    ranks_.at_first([&] {
      fail_input("training stopped at step ", step, ": ", state.skipped_in_a_row,
                 " steps in a row had a gradient that is not finite; lower optimizer.lr or "
                 "training.clip, and look at the data");
    });
  }

  // The same answer on all ranks: what the clock and signals say was voted on.
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

  Evaluation evaluate_on(const ManifestDataset& data, std::vector<SampleHypothesis>* samples) {
    return evaluate_together(ranks_, *s_.session, data, config_, s_.alphabet.get(), samples);
  }

  std::string best_model() const {
    return (fs::path(config_.training.checkpoint_dir) / best_model_file).string();
  }
  void save_best() {
    ranks_.at_first([&] { save_model(best_model(), *s_.session, s_.description); });
  }

  void validate() {
    settle(0);
    Session& session = *s_.session;
    TrainingState& state = s_.state;
    const bool averaged = session.optimizer().averages();
    if (averaged) session.optimizer().swap_average();
    std::vector<SampleHypothesis> samples;
    const Evaluation e = evaluate_on(*s_.dev, &samples);
    const double metric = e.metric(config_.task);
    const bool better =
        metric < state.best_metric || (metric == state.best_metric && e.loss < state.best_loss);
    if (better) {
      state.best_metric = metric;
      state.best_loss = e.loss;
      save_best();
    }
    if (averaged) session.optimizer().swap_average();
    state.validations_without_progress = better ? 0 : state.validations_without_progress + 1;
    state.plateau = plateau_update(config_.schedule, state.plateau, metric);
    state.seconds = now_seconds() - started_;
    report_->validation(state, e, config_.task, better, std::move(samples));
    save(metric);
  }

  // Committed by rank 0, and everywhere or nowhere taken for done.
  void save(std::optional<double> metric) {
    settle(0);
    ranks_.at_first([&] {
      CheckpointWriter writer = store_->begin();
      write_training_checkpoint(writer, *s_.session, s_.description, s_.state);
      writer.commit(s_.state.step, metric);
      warn(store_->take_warnings());
    });
    last_checkpoint_ = now_seconds();
  }

  // The best model on the test data, which played no part until now.
  void test() {
    std::unique_ptr<ManifestDataset> data;
    ranks_.together([&] {
      if (ranks_.first()) s_.session->load(best_model());
      data = open_dataset(config_, config_.data.test, DataUse::evaluation, options_.audio,
                          s_.alphabet.get());
    });
    share_weights(ranks_, *s_.session);
    if (config_.features.cmvn == Cmvn::global) {
      data->set_global_cmvn({s_.description.mean, s_.description.inverse_std});
    }
    report_->test(s_.state, evaluate_on(*data, nullptr), config_.task);
  }

  // The average of the best generations replaces the best model when it is at least as good.
  void finish() {
    Session& session = *s_.session;
    if (!s_.dev) {
      const bool averaged = session.optimizer().averages();
      if (averaged) session.optimizer().swap_average();
      save_best();
      if (averaged) session.optimizer().swap_average();
      return;
    }
    if (config_.training.average_best < 2) return;
    double averaged = 0;
    ranks_.at_first([&] {
      averaged = average_best_checkpoints(config_.training.checkpoint_dir,
                                          config_.training.average_best, session);
    });
    ranks_.sum({&averaged, 1});
    if (averaged < 2) return;
    share_weights(ranks_, session);
    const Evaluation e = evaluate_on(*s_.dev, nullptr);
    const double metric = e.metric(config_.task);
    const bool better = metric <= s_.state.best_metric;
    report_->message(str("average of the best ", averaged, " checkpoints: ",
                         metric_text(config_.task, metric), better ? ", kept" : ", not kept"));
    if (!better) return;
    s_.state.best_metric = metric;
    save_best();
  }

  const Config config_;
  const TrainerOptions options_;
  const Ranks ranks_;
  std::unique_ptr<CheckpointStore> store_;  // rank 0
  std::unique_ptr<TrainingReport> report_;
  TrainingSetup s_;
  InProcessWorld world_of_one_{1};
  std::unique_ptr<ProcessGroup> alone_;
  std::unique_ptr<RankReducer> reducer_;   // nullptr: a single rank that needs none
  InvariantReducer* invariant_ = nullptr;  // the same, if it is one
  ShardRange shards_;                      // of every batch, this rank's
  int shard_count_ = 1;
  std::vector<double> votes_;  // of all ranks, as of the last update
  HostBatch batch_;
  std::vector<BatchView::Input> inputs_;
  int64_t expected_steps_ = 0;
  double started_ = 0, last_checkpoint_ = 0;
  std::deque<Enqueued> in_flight_;
  size_t lag_ = 0;  // how many batches and updates the device may be behind
  bool stopped_ = false;
};

}  // namespace

TrainingSummary train(const Config& config, const TrainerOptions& options) {
  // Before the checkpoint directory is made.
  const auto check = [&] {
    if (config.data.train.empty()) {
      fail_input("no training data: set data.train, or data=DIR for a prepared corpus");
    }
    read_manifest(config.data.train);
  };
  if (options.group) {
    Ranks(*options.group, std::chrono::minutes(10)).together(check);
  } else {
    check();
  }
  Trainer trainer(config, options);
  return trainer.run();
}

}  // namespace rondo
