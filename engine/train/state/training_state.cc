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

std::string TrainingState::to_json() const {
  const Json j = Json::object({{"format", format_version},
                               {"step", step},
                               {"epoch", epoch},
                               {"step_in_epoch", step_in_epoch},
                               {"optimizer_steps", optimizer_steps},
                               {"frames", frames},
                               {"seconds", seconds},
                               {"best_metric", number(best_metric)},
                               {"best_loss", number(best_loss)},
                               {"validations_without_progress", validations_without_progress},
                               {"skipped_in_a_row", skipped_in_a_row},
                               {"skipped", skipped},
                               {"plateau_factor", plateau.factor},
                               {"plateau_best", number(plateau.best)},
                               {"plateau_bad_validations", plateau.bad_validations},
                               {"placement", placement},
                               {"validation_pending", validation_pending},
                               {"data_content", data_hash}});
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
    if (j.contains("placement")) take("placement", s.placement);
    if (j.contains("validation_pending")) take("validation_pending", s.validation_pending);
    if (j.contains("data_content")) take("data_content", s.data_hash);
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
