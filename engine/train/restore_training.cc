// The weights and the state that a run begins with: its own, or those of another model.
#include <algorithm>

#include "engine/io/safetensors.h"
#include "engine/train/model/open_data.h"
#include "engine/train/model/stored_state.h"
#include "engine/train/state/stored_slots.h"
#include "engine/train/training_setup.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Characters in a row, or names of classes with commas between.
std::string shown(const std::vector<std::string>& symbols, Task task) {
  const bool is_text = task == Task::ctc;
  if (symbols.empty()) return is_text ? "nothing" : "classes without names";
  const size_t most = is_text ? 100 : 12;
  std::string text;
  for (size_t i = 0; i < std::min(most, symbols.size()); ++i)
    text += (is_text || i == 0 ? "" : ", ") + symbols[i];
  return str("'", text, symbols.size() > most ? "..." : "", "' (", symbols.size(), " ",
             is_text ? Alphabet(symbols).units() : "classes", ")");
}

const std::vector<std::string>& symbols_of(const ModelDescription& d) {
  return d.config.task == Task::ctc ? d.alphabet : d.classes;
}

// Weights of another model, and which of its outputs become which of this one's.
struct ForeignWeights {
  SafetensorsFile file;
  OutputRows rows;  // empty: as they are
};

// Equally many characters, or classes, that are others would go unnoticed. Files of weights alone
// have no description to compare.
OutputRows rows_from(const SafetensorsFile& file, const Config& config,
                     const ModelDescription& description) {
  if (config.task == Task::regress || !file.metadata().contains("alphabet")) return {};
  const auto other = ModelDescription::from_metadata(file.metadata(), file.name());
  if (other.config.task != config.task || symbols_of(other) == symbols_of(description)) return {};
  const bool is_text = config.task == Task::ctc;
  if (config.training.init_alphabet == InitAlphabet::keep) {
    fail_input("training.init_from: ", file.name(), is_text ? " writes " : " tells apart ",
               shown(symbols_of(other), config.task), ", this run ",
               shown(symbols_of(description), config.task), "; ",
               is_text ? "data.alphabet sets the characters of a run, " : "",
               "training.init_alphabet (--alphabet) takes others");
  }
  OutputRows rows = same_symbols(symbols_of(other), symbols_of(description), is_text ? 1 : 0);
  if (!is_text) rows.others = other.sizes.outputs;  // which may have no names
  return rows;
}

// The shapes must be those of this model, but for outputs that are others.
ForeignWeights foreign_weights(const Config& config, const ModelDescription& description,
                               const RankModel& model, TrainingReport& report) {
  std::vector<std::string> warnings;
  ForeignWeights foreign{open_model(config.training.init_from, &warnings), {}};
  report.warnings(warnings);
  foreign.rows = rows_from(foreign.file, config, description);
  require_weights(foreign.file, model.entries(), foreign.rows);
  require_finite(foreign.file);
  report.message("weights from " + foreign.file.name());
  if (!foreign.rows.from.empty()) {
    const auto known = std::count_if(foreign.rows.from.begin(), foreign.rows.from.end(),
                                     [](int64_t row) { return row >= 0; }) -
                       foreign.rows.blanks;
    report.message(str(config.task == Task::ctc ? "alphabet: " : "classes: ",
                       shown(symbols_of(description), config.task), ", ", known,
                       " of them known to that model"));
  }
  return foreign;
}

}  // namespace

void restore_training(const Ranks& ranks, const Config& config, TrainingSetup& setup,
                      RankModel& model, TrainingReport& report) {
  std::optional<StoredState> stored;
  std::optional<ForeignWeights> foreign;
  ranks.read_at_first([&] {
    if (setup.checkpoint) {
      stored.emplace(*setup.checkpoint);
      require_weights(stored->weights(), model.entries());
    } else if (!setup.kept && !config.training.init_from.empty()) {
      foreign.emplace(foreign_weights(config, setup.description, model, report));
    }
    if (!config.training.freeze_before.empty()) {
      report.message(str("frozen: ", counted(model.frozen(), "weight"), " in the layers before ",
                         config.training.freeze_before));
    }
  });
  if (setup.resumed || !config.training.init_from.empty()) {
    model.set("", stored       ? weights_of(stored->weights())
                  : setup.kept ? weights_of(*setup.kept)
                  : foreign    ? weights_of(foreign->file, foreign->rows, config.training.seed)
                               : ReadEntry());
  } else {
    model.share_weights();
  }
  if (setup.resumed) {
    model.set_step(setup.state.step);
    model.optimizer().set_steps(setup.state.optimizer_steps);
  }
  if (setup.kept) {
    restore_state(model, ranks, *setup.kept);
  } else if (setup.resumed) {
    restore_state(model, ranks, stored ? &*stored : nullptr);
  }
  setup.checkpoint.reset();
  setup.kept = nullptr;
}

}  // namespace rondo
