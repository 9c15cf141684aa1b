#include "tools/command_line/config_words.h"

#include "engine/io/checkpoint.h"
#include "engine/train/model/model_file.h"
#include "kernels/base/error.h"
#include "tools/command_line/command_line.h"

namespace rondo {

Config config_from_words(const std::vector<std::string>& words,
                         const std::vector<std::string>& options, bool resumes) {
  std::string file;
  std::vector<std::string> overrides;
  for (const std::string& word : words) {
    if (word.find('=') != std::string::npos) {
      overrides.push_back(word);
    } else if (file.empty()) {
      file = word;
    } else {
      throw WrongUsage(str("two configuration files: '", file, "' and '", word,
                           "'; settings are written key=value"));
    }
  }
  overrides.insert(overrides.end(), options.begin(), options.end());
  const Config config = load_config(file, overrides);
  const TrainingConfig& t = config.training;
  const bool goes_on = resumes && !list_checkpoints(t.checkpoint_dir).empty();
  const std::string& model = goes_on ? t.checkpoint_dir : t.init_from;
  // A rank other than 0 may not have it; rank 0 says so when it is nowhere.
  if (model.empty() || files_of_model(model).empty()) return config;
  return load_config(file, overrides, config_of_model(model));
}

std::string config_file_of(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.find('=') == std::string::npos) return word;
  }
  return {};
}

}  // namespace rondo
