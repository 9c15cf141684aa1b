#include "engine/train/state/training_state.h"

#include <cmath>
#include <limits>

#include "engine/io/json.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr int format_version = 1;

// JSON has no infinity; the "best so far" of a new run is one.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }
double number(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::infinity() : value.get<double>();
}

}  // namespace

bool TrainingState::validated(const Score& score, const ErrorRates& rates) {
  const bool none = std::isinf(best_metric) && std::isinf(best_loss);
  const bool better = none || score.better_than(best());
  if (better) {
    best_metric = score.metric;
    best_loss = score.loss;
    best_rates = rates;
  }
  const bool progress = better || (score.at_worst() && score.loss < progress_loss);
  if (progress) progress_loss = score.loss;
  validations_without_progress = progress ? 0 : validations_without_progress + 1;
  return better;
}

bool TrainingState::choose_by(Metric metric) {
  chosen_by = metric;
  chosen_by_since = step;
  best_metric = metric == Metric::cer     ? best_rates.cer
                : metric == Metric::wer   ? best_rates.wer
                : metric == Metric::error ? best_rates.error
                                          : best_loss;
  plateau.best = best_metric;
  plateau.best_loss = progress_loss = best_loss;
  plateau.bad_validations = 0;
  validations_without_progress = 0;
  return std::isfinite(best_metric);
}

std::string TrainingState::to_json() const {
  Json j = Json::object({{"format", format_version},
                         {"step", step},
                         {"epoch", epoch},
                         {"step_in_epoch", step_in_epoch},
                         {"optimizer_steps", optimizer_steps},
                         {"frames", frames},
                         {"seconds", seconds},
                         {"chosen_by", name_of(chosen_by)},
                         {"chosen_by_since", chosen_by_since},
                         {"best_metric", number(best_metric)},
                         {"best_loss", number(best_loss)},
                         {"best_cer", number(best_rates.cer)},
                         {"best_wer", number(best_rates.wer)},
                         {"best_error", number(best_rates.error)},
                         {"progress_loss", number(progress_loss)},
                         {"validations_without_progress", validations_without_progress},
                         {"skipped_in_a_row", skipped_in_a_row},
                         {"skipped", skipped},
                         {"plateau_factor", plateau.factor},
                         {"plateau_best", number(plateau.best)},
                         {"plateau_best_loss", number(plateau.best_loss)},
                         {"plateau_bad_validations", plateau.bad_validations},
                         {"expected_steps", expected_steps},
                         {"schedule_end", fall_end},
                         {"placement", placement},
                         {"validation_pending", validation_pending},
                         {"data_content", data_hash}});
  if (!kernels.empty()) j["kernels"] = Json(kernels);
  return j.dump(2) + "\n";
}

TrainingState TrainingState::from_json(std::string_view text, const std::string& where) {
  TrainingState s;
  try {
    const Json j = Json::parse(text);
    const auto version = j.at("format").get<int>();
    if (version != format_version) {
      fail_input(where, ": state of format ", version, ", expected ", format_version);
    }
    const auto take = [&j](const char* name, auto& value) {
      value = j.at(name).get<std::remove_reference_t<decltype(value)>>();
    };
    take("step", s.step);
    take("epoch", s.epoch);
    take("step_in_epoch", s.step_in_epoch);
    take("optimizer_steps", s.optimizer_steps);
    take("frames", s.frames);
    take("seconds", s.seconds);
    s.best_metric = number(j.at("best_metric"));
    s.best_loss = number(j.at("best_loss"));
    take("validations_without_progress", s.validations_without_progress);
    take("skipped_in_a_row", s.skipped_in_a_row);
    take("skipped", s.skipped);
    take("plateau_factor", s.plateau.factor);
    s.plateau.best = number(j.at("plateau_best"));
    take("plateau_bad_validations", s.plateau.bad_validations);
    s.progress_loss = s.plateau.best_loss = s.best_loss;  // as before there were any of these
    if (const Json* by = j.find("chosen_by")) {
      const auto name = by->get<std::string>();
      const auto metric = metric_named(name);
      if (!metric && name != name_of(Metric::automatic)) {
        fail_input(where, ": chosen_by is '", name, "', expected cer, wer, error or loss");
      }
      s.chosen_by = metric.value_or(Metric::automatic);
      take("chosen_by_since", s.chosen_by_since);
      s.best_rates = {number(j.at("best_cer")), number(j.at("best_wer")),
                      number(j.at("best_error"))};
      s.progress_loss = number(j.at("progress_loss"));
      s.plateau.best_loss = number(j.at("plateau_best_loss"));
      take("expected_steps", s.expected_steps);
      take("schedule_end", s.fall_end);
    }
    if (j.contains("placement")) take("placement", s.placement);
    if (j.contains("validation_pending")) take("validation_pending", s.validation_pending);
    if (j.contains("data_content")) take("data_content", s.data_hash);
    if (j.contains("kernels")) take("kernels", s.kernels);
  } catch (const JsonError& e) {
    fail_input(where, ": is not the state of a training run (", e.what(), ")");
  }
  return s;
}

void write_training_checkpoint(CheckpointWriter& writer, std::span<const TensorToWrite> weights,
                               std::span<const TensorToWrite> slots,
                               const ModelDescription& description, const TrainingState& state) {
  writer.add_tensors("model.safetensors", weights, description.to_metadata());
  writer.add_tensors("optimizer.safetensors", slots);
  writer.add_text("state.json", state.to_json());
}

TrainingState read_training_state(const Checkpoint& checkpoint) {
  return TrainingState::from_json(checkpoint.text("state.json"),
                                  checkpoint.directory().string() + "/state.json");
}

}  // namespace rondo
