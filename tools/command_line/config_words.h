// The configuration of a command line: a TOML file, or the name of a recipe
// (tools/command_line/recipes.h), and key=value settings, in any order; where a run goes on, its
// directory may take the place of the file.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace rondo {

// `resumes`: a run goes on, if there is one. `options`: settings that options stand for; they win
// over `words`. What nothing sets of the task, the features and the model is as the model of
// training.init_from has it, or, where a run goes on
// (`resumes`), as that run has it; else the defaults. Throws WrongUsage for two files and for what
// is no configuration, InputError for what load_config() refuses and for a model that is there and
// cannot be read.
Config config_from_words(const std::vector<std::string>& words,
                         const std::vector<std::string>& options = {}, bool resumes = false);

// The configuration file among the words; empty without one, and for a recipe.
std::string config_file_of(const std::vector<std::string>& words);

}  // namespace rondo
