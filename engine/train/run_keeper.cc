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

ErrorRates rates_of(const Evaluation& e, Task task) {
  ErrorRates rates;
  if (task == Task::ctc) rates.cer = e.value(Metric::cer);
  if (task == Task::ctc) rates.wer = e.value(Metric::wer);
  if (task == Task::classify) rates.error = e.value(Metric::error);
  return rates;
}

}  // namespace

RunKeeper::RunKeeper(const Ranks& ranks, const Config& config, const TrainerOptions& options,
                     CheckpointStore* store, TrainingSetup& setup, RankModel& model,
                     TrainingReport& report)
    : config_(config),
      options_(options),
      store_(store),
      s_(setup),
      model_(model),
      evaluated_(model),
      report_(report) {
  if (model.schedule().stages() == 1) return;
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
  return evaluate_together(model_.sharers(ranks), evaluated_, data, config_, s_.alphabet.get(),
                           samples,
                           [this] { return model_.any_stage(options_.stop && options_.stop()); });
}

std::string RunKeeper::best_model() const {
  return (fs::path(config_.training.checkpoint_dir) / best_model_file).string();
}

void RunKeeper::save_best(const Ranks& ranks, const Score& score, int64_t averaged) {
  ModelDescription description = s_.description;
  description.origin = {options_.version,   s_.state.step, score.metric,
                        s_.state.chosen_by, averaged,      score.loss};
  ranks.together([&] {
    model_.stream_weights([&](std::span<const TensorToWrite> weights) {
      save_model(best_model(), weights, description);
    });
  });
}

void RunKeeper::swap_average() {
  model_.optimizer().swap_average();
  averaged_ = !averaged_;
}

void RunKeeper::break_off() {
  if (averaged_) swap_average();
}

std::optional<Score> RunKeeper::validate(const Ranks& ranks) {
  TrainingState& state = s_.state;
  swap_average();
  std::vector<SampleHypothesis> samples;
  const Evaluation e = evaluate_on(ranks, *s_.dev, &samples);
  if (e.stopped) {
    swap_average();
    return std::nullopt;
  }
  const Score score = e.score(state.chosen_by);
  const bool better = state.validated(score, rates_of(e, config_.task));
  // An average that an earlier part of the run ended with is the model until something beats it.
  const bool keeps = better && (!s_.average || score.better_than(*s_.average));
  if (keeps) {
    s_.average.reset();
    save_best(ranks, score);
  }
  swap_average();
  state.plateau = plateau_update(config_.lr, state.plateau, score);
  report_.validation(state, e, config_.task, keeps, std::move(samples));
  return score;
}

// Rank 0 may have been lost after it had saved this, and before the others knew. Once more would
// count twice in an average of the best.
bool RunKeeper::is_saved(int64_t step, std::optional<Score> score) const {
  const auto saved = list_checkpoints(config_.training.checkpoint_dir);
  if (saved.empty() || saved.back().step != step) return false;
  const std::optional<Score>& before = saved.back().score;
  const bool has_score = score && std::isfinite(score->metric);
  return before.has_value() == has_score && (!has_score || *before == *score);
}

void RunKeeper::save(const Ranks& ranks, const TrainingState& state, std::optional<Score> score) {
  if (stages_write_) {
    save_stages(ranks, config_.training.checkpoint_dir, store_, model_.part(), s_.description,
                state, score);
  } else {
    std::vector<TensorToWrite> slots;
    for (const auto& slot : model_.gather_state()) {
      slots.push_back(tensor_to_write(slot.name, slot.view, *model_.context().device));
    }
    ranks.together([&] {
      model_.stream_weights([&](std::span<const TensorToWrite> weights) {
        if (options_.kept && is_saved(state.step, score)) return;
        CheckpointWriter writer = store_->begin();
        write_training_checkpoint(writer, weights, slots, s_.description, state);
        writer.commit(state.step, score);
      });
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
                        {options_.audio, options_.images},
                        {s_.alphabet.get(), s_.description.classes});
  });
  model_.set("", best ? weights_of(*best) : ReadEntry());
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
  Score kept = s_.average.value_or(s_.state.best());
  if (config_.training.average_best >= 2 && !average(ranks, kept)) return false;
  s_.state.best_metric = kept.metric;
  return true;
}

bool RunKeeper::average(const Ranks& ranks, Score& kept) {
  double averaged = 0;
  std::optional<CheckpointAverage> mean;
  ranks.at_first([&] {
    mean.emplace(config_.training.checkpoint_dir, config_.training.average_best,
                 s_.state.chosen_by_since, model_.entries(), model_.flat_size(),
                 model_.optimizer().averages());
    averaged = static_cast<double>(mean->count());
  });
  ranks.sum({&averaged, 1});
  if (averaged < 2) return true;
  model_.set(
      "", [&](const Parameters::Entry& entry, std::span<float> into) { mean->read(entry, into); });
  const Evaluation e = evaluate_on(ranks, *s_.dev, nullptr);
  if (e.stopped) return false;
  const Score score = e.score(s_.state.chosen_by);
  const auto text = [&](const Score& s) { return metric_text(s_.state.chosen_by, s.metric); };
  const std::string what = str("average of the best ", averaged, " checkpoints: ", text(score),
                               ", dev loss ", loss_text(e.loss));
  if (kept.better_than(score)) {
    report_.message(what + ", not kept: the best model has " + text(kept) +
                    (std::isfinite(kept.loss) ? ", dev loss " + loss_text(kept.loss) : ""));
    return true;
  }
  report_.message(what + ", kept");
  kept = score;
  save_best(ranks, score, static_cast<int64_t>(averaged));
  return true;
}

}  // namespace rondo
