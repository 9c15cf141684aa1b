#include "engine/train/run_keeper.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "engine/train/model/open_data.h"
#include "engine/train/shared_evaluation.h"
#include "engine/train/state/average.h"
#include "engine/train/state/stage_files.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

}  // namespace

RunKeeper::RunKeeper(const Ranks& ranks, const Config& config, const TrainerOptions& options,
                     CheckpointStore* store, TrainingSetup& setup, TrainedModel& model,
                     Synchronizer& synchronizer, TrainingReport& report)
    : config_(config),
      options_(options),
      store_(store),
      s_(setup),
      model_(model),
      sync_(synchronizer),
      report_(report) {
  if (!model.part()) return;
  const std::string objection = why_not_shared(ranks, config.training.checkpoint_dir);
  stages_write_ = objection.empty();
  if (stages_write_) return;
  report.message(
      str("rank 0 writes the checkpoints of all stages, which takes host memory for the ",
          "whole model: the ranks do not share ", config.training.checkpoint_dir, " (", objection,
          ")"));
}

Evaluation RunKeeper::evaluate_on(const Ranks& ranks, const ManifestDataset& data,
                                  std::vector<SampleHypothesis>* samples) {
  return evaluate_together(model_.sharers(ranks), model_.evaluated(), data, config_,
                           s_.alphabet.get(), samples,
                           [this] { return model_.any(options_.stop && options_.stop()); });
}

std::string RunKeeper::best_model() const {
  return (fs::path(config_.training.checkpoint_dir) / best_model_file).string();
}

void RunKeeper::save_best(const Ranks& ranks, double metric) {
  ModelDescription description = s_.description;
  description.origin = {options_.version, s_.state.step, metric};
  model_.write_weights(ranks, [&](std::span<const TensorToWrite> weights) {
    save_model(best_model(), weights, description);
  });
}

void RunKeeper::swap_average() {
  sync_.swap_average();
  averaged_ = !averaged_;
}

void RunKeeper::break_off() {
  if (averaged_) swap_average();
}

std::optional<double> RunKeeper::validate(const Ranks& ranks) {
  TrainingState& state = s_.state;
  swap_average();
  std::vector<SampleHypothesis> samples;
  const Evaluation e = evaluate_on(ranks, *s_.dev, &samples);
  if (e.stopped) {
    swap_average();
    return std::nullopt;
  }
  const double metric = e.metric(config_.task);
  const bool better =
      metric < state.best_metric || (metric == state.best_metric && e.loss < state.best_loss);
  if (better) {
    state.best_metric = metric;
    state.best_loss = std::isnan(e.loss) ? std::numeric_limits<double>::infinity() : e.loss;
    save_best(ranks, metric);
  }
  swap_average();
  state.validations_without_progress = better ? 0 : state.validations_without_progress + 1;
  state.plateau = plateau_update(config_.schedule, state.plateau, metric);
  report_.validation(state, e, config_.task, better, std::move(samples));
  return metric;
}

// Rank 0 may have been lost after it had saved this, and before the others knew. Once more would
// count twice in an average of the best.
bool RunKeeper::is_saved(int64_t step, std::optional<double> metric) const {
  const auto saved = list_checkpoints(config_.training.checkpoint_dir);
  if (saved.empty() || saved.back().step != step) return false;
  const std::optional<double>& before = saved.back().metric;
  const bool has_metric = metric && !std::isnan(*metric);
  return before.has_value() == has_metric && (!has_metric || *before == *metric);
}

void RunKeeper::save(const Ranks& ranks, const TrainingState& state, std::optional<double> metric) {
  if (stages_write_) {
    save_stages(ranks, config_.training.checkpoint_dir, store_, *model_.part(), s_.description,
                state, metric);
  } else {
    std::vector<TensorToWrite> slots;
    for (const auto& slot : sync_.gather_state()) {
      slots.push_back(tensor_to_write(slot.name, slot.view, *model_.context().device));
    }
    model_.write_weights(ranks, [&](std::span<const TensorToWrite> weights) {
      if (options_.kept && is_saved(state.step, metric)) return;
      CheckpointWriter writer = store_->begin();
      write_training_checkpoint(writer, weights, slots, s_.description, state);
      writer.commit(state.step, metric);
    });
  }
  if (store_) report_.warnings(store_->take_warnings());
}

bool RunKeeper::test(const Ranks& ranks) {
  std::unique_ptr<ManifestDataset> data;
  std::optional<SafetensorsFile> best;
  ranks.together([&] {
    if (ranks.first()) {
      best.emplace(best_model());
      require_weights(*best, model_.entries());
    }
    data = open_dataset(config_, config_.data.test, DataUse::evaluation,
                        {options_.audio, options_.images}, s_.alphabet.get());
  });
  model_.set_weights(ranks, best ? weights_of(*best) : ReadEntry());
  best.reset();
  if (config_.features.cmvn == Cmvn::global) {
    data->set_global_cmvn({s_.description.mean, s_.description.inverse_std});
  }
  const Evaluation e = evaluate_on(ranks, *data, nullptr);
  if (e.stopped) return false;
  report_.test(s_.state, e, config_.task);
  return true;
}

bool RunKeeper::finish(const Ranks& ranks) {
  if (!s_.dev) {
    swap_average();
    save_best(ranks, std::numeric_limits<double>::quiet_NaN());
    swap_average();
    return true;
  }
  if (config_.training.average_best < 2) return true;
  double averaged = 0;
  std::optional<CheckpointAverage> mean;
  ranks.at_first([&] {
    mean.emplace(config_.training.checkpoint_dir, config_.training.average_best, model_.entries(),
                 model_.flat_size(), model_.averages());
    averaged = static_cast<double>(mean->count());
  });
  ranks.sum({&averaged, 1});
  if (averaged < 2) return true;
  model_.set_weights(ranks, [&](const Parameters::Entry& entry, std::span<float> into) {
    mean->read(entry, into);
  });
  const Evaluation e = evaluate_on(ranks, *s_.dev, nullptr);
  if (e.stopped) return false;
  const double metric = e.metric(config_.task);
  const bool better = metric <= s_.state.best_metric;
  report_.message(str("average of the best ", averaged, " checkpoints: ",
                      metric_text(config_.task, metric), better ? ", kept" : ", not kept"));
  if (!better) return true;
  s_.state.best_metric = metric;
  save_best(ranks, metric);
  return true;
}

}  // namespace rondo
