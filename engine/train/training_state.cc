#include "engine/train/training_state.h"

#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr int format_version = 1;

// JSON has no infinity; the "best so far" of a new run is one.
nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}
double number(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::infinity() : value.get<double>();
}

}  // namespace

std::string TrainingState::to_json() const {
  const nlohmann::json j = {{"format", format_version},
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
                            {"data_hash", data_hash}};
  return j.dump(2) + "\n";
}

TrainingState TrainingState::from_json(std::string_view text, const std::string& where) {
  TrainingState s;
  try {
    const auto j = nlohmann::json::parse(text);
    const int version = j.at("format");
    if (version != format_version) {
      fail_input(where, ": state of format ", version, ", expected ", format_version);
    }
    s.step = j.at("step");
    s.epoch = j.at("epoch");
    s.step_in_epoch = j.at("step_in_epoch");
    s.optimizer_steps = j.at("optimizer_steps");
    s.frames = j.at("frames");
    s.seconds = j.at("seconds");
    s.best_metric = number(j.at("best_metric"));
    s.best_loss = number(j.at("best_loss"));
    s.validations_without_progress = j.at("validations_without_progress");
    s.skipped_in_a_row = j.at("skipped_in_a_row");
    s.skipped = j.at("skipped");
    s.plateau.factor = j.at("plateau_factor");
    s.plateau.best = number(j.at("plateau_best"));
    s.plateau.bad_validations = j.at("plateau_bad_validations");
    s.placement = j.value("placement", "");
    s.validation_pending = j.value("validation_pending", false);
    s.data_hash = j.at("data_hash");
  } catch (const nlohmann::json::exception& e) {
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
