#include "tools/command_line/config_words.h"

#include <filesystem>

#include "engine/io/checkpoint.h"
#include "engine/train/model/model_file.h"
#include "kernels/base/error.h"
#include "tools/command_line/command_line.h"
#include "tools/command_line/path_words.h"
#include "tools/command_line/recipes.h"

namespace rondo {

namespace {

// The settings that a run has written, as what it goes on with.
std::string settings_of_run(const std::string& directory) {
  const std::string file = (std::filesystem::path(directory) / "config.toml").string();
  if (!list_checkpoints(directory).empty() && std::filesystem::exists(file)) return file;
  fail_input("'", directory, "' holds no training run to continue: expected its config.toml and a ",
             "checkpoint");
}

// data=DIR names a folder.
void require_corpus_of(const std::string& word) {
  const std::string before = "data=";
  if (!word.starts_with(before)) return;
  const std::string path = word.substr(before.size());
  if (kind_of_path(path) != PathKind::manifest) return;
  fail_input("data= names a folder that has train.jsonl, and '", path,
             "' is a manifest: write data.train=", path);
}

}  // namespace

Config config_from_words(const std::vector<std::string>& words,
                         const std::vector<std::string>& options, bool resumes) {
  std::string file;
  bool is_stored = false;
  std::vector<std::string> overrides;
  for (const std::string& word : words) {
    if (word.find('=') != std::string::npos) {
      require_corpus_of(word);
      overrides.push_back(word);
    } else if (file.empty()) {
      file = word;
    } else {
      throw WrongUsage(str("two configuration files: '", file, "' and '", word,
                           "'; settings are written key=value"));
    }
  }
  if (resumes && std::filesystem::is_directory(file)) {
    overrides.insert(overrides.begin(), "training.checkpoint_dir=" + file);
    file = settings_of_run(file);
    is_stored = true;
  } else {
    if (recipe_named(file) == nullptr) require_configuration(file);
  }
  overrides.insert(overrides.end(), options.begin(), options.end());
  const auto load = [&](const Config& base) {
    return is_stored ? load_stored_config(file, overrides, base).config
                     : load_file_or_recipe(file, overrides, base);
  };
  const Config config = load({});
  const TrainingConfig& t = config.training;
  const bool goes_on = resumes && !list_checkpoints(t.checkpoint_dir).empty();
  const std::string& model = goes_on ? t.checkpoint_dir : t.init_from;
  // A rank other than 0 may not have it; rank 0 says so when it is nowhere.
  if (model.empty() || files_of_model(model).empty()) return config;
  return load(config_of_model(model));
}

std::string config_file_of(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.find('=') != std::string::npos) continue;
    return recipe_named(word) ? std::string() : word;
  }
  return {};
}

}  // namespace rondo
