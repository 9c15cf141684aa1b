#include "engine/train/run_files.h"

#include <algorithm>
#include <filesystem>

#include "engine/data/features/files.h"
#include "engine/io/checkpoint.h"
#include "engine/io/file.h"
#include "engine/io/output_file.h"
#include "engine/train/model/model_file.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

fs::path log_of(const Config& config) {
  if (!config.training.log.empty()) return config.training.log;
  return fs::path(config.training.checkpoint_dir) / "log.jsonl";
}

std::vector<OutputFile> outputs(const Config& config, const TrainerOptions& options) {
  const fs::path run = config.training.checkpoint_dir;
  std::vector<OutputFile> all;
  all.emplace_back(log_of(config), config.training.log.empty() ? "the log" : "training.log");
  all.emplace_back(options.timeline, "--timeline");
  all.emplace_back(options.profile, "--profile");
  all.emplace_back(run / "model.safetensors", "the best model");
  all.emplace_back(run / "learning_curve.svg", "the learning curve");
  // A run that goes on may be given the settings that it wrote itself.
  if (options.start == StartFrom::scratch) all.emplace_back(run / "config.toml", "the settings");
  return all;
}

// A run tuned from a model does not write where that lies.
void require_elsewhere(const Config& config, const std::vector<std::string>& model) {
  const auto is_here = [&](const fs::path& file) {
    std::error_code ignored;
    return fs::equivalent(file.has_parent_path() ? file.parent_path() : ".",
                          config.training.checkpoint_dir, ignored);
  };
  if (std::none_of(model.begin(), model.end(), is_here)) return;
  fail_input("training.checkpoint_dir is '", config.training.checkpoint_dir,
             "', where the model of training.init_from is; expected another folder for this run");
}

}  // namespace

std::string log_path(const Config& config, int rank) {
  fs::path path = log_of(config);
  if (rank > 0) {
    const std::string name = str(path.stem().string(), ".rank-", rank, path.extension().string());
    path.replace_filename(name);
  }
  constexpr std::string_view beginning = "{\"event\"";
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    const std::string found = data::read_file_start(path.string(), beginning.size());
    // A power cut can leave zeros in place of what was written last.
    const size_t text = std::min(found.find('\0'), found.size());
    if (!beginning.starts_with(found.substr(0, text)) ||
        found.find_first_not_of('\0', text) != std::string::npos) {
      fail_input(path.string(),
                 ": is there and is no log of a training run: it does not begin with ", beginning,
                 "; expected a new file for training.log");
    }
  }
  return path.string();
}

void require_training_data(const Config& config, const TrainerOptions& options) {
  if (!config.data.train.empty()) return;
  if (options.start == StartFrom::checkpoint) {
    fail_input("no run to go on with in '", config.training.checkpoint_dir,
               "'; name its folder: rondo train --resume FOLDER");
  }
  fail_input("no training data: set data.train, or data=DIR for a prepared corpus");
}

void require_checkpoint(const Config& config, const TrainerOptions& options) {
  const std::string& run = config.training.checkpoint_dir;
  if (options.start != StartFrom::checkpoint || !list_checkpoints(run).empty()) return;
  fail_input(run, ": holds no checkpoint to continue from; begin without --resume, or with ",
             "--resume-or-start, which begins where there is none");
}

void require_files_apart(const Config& config, const TrainerOptions& options) {
  const std::vector<OutputFile> written = outputs(config, options);
  // A run that goes on reads nothing there.
  std::vector<std::string> origin;
  if (!config.training.init_from.empty() && options.start != StartFrom::checkpoint) {
    origin = files_of_model(config.training.init_from);
  }
  require_elsewhere(config, origin);
  for (size_t i = 0; i < written.size(); ++i) {
    const OutputFile& output = written[i];
    for (size_t j = 0; j < i; ++j) written[j].require_not(output);
    output.require_not(config.data.train, "the manifest of data.train");
    output.require_not(config.data.dev, "the manifest of data.dev");
    output.require_not(config.data.test, "the manifest of data.test");
    output.require_not(config.augment.noise_recordings, "the manifest of augment.noise_recordings");
    for (const std::string& file : options.files_read) {
      output.require_not(file, "the configuration");
    }
    for (const std::string& file : origin) output.require_not(file, "a file of training.init_from");
  }
}

std::vector<std::string> remove_leftovers(const Config& config) {
  std::vector<std::string> warnings;
  for (const char* name : {"model.safetensors", "learning_curve.svg", "config.toml"}) {
    try {
      remove_temporaries(fs::path(config.training.checkpoint_dir) / name);
    } catch (const InputError& e) {  // it wastes space and blocks nothing
      warnings.push_back(str("a leftover of an earlier run stays: ", e.what()));
    }
  }
  return warnings;
}

void require_apart_from_data(const TrainerOptions& options, const ManifestDataset& data) {
  const OutputFile drawn[] = {{options.timeline, "--timeline"}, {options.profile, "--profile"}};
  for (int64_t i = 0; i < data.size(); ++i) {
    const ManifestEntry& e = data.entry(i);
    for (const OutputFile& file : drawn) file.require_not(e.path, name_of(e.kind));
  }
}

}  // namespace rondo
