// The configuration of a command line: a TOML file and key=value settings, in any order.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace rondo {

// `options`: settings that options stand for; they win over `words`. Throws WrongUsage
// for two files, InputError for what load_config() refuses.
Config config_from_words(const std::vector<std::string>& words,
                         const std::vector<std::string>& options = {});

// The configuration file among the words; empty without one.
std::string config_file_of(const std::vector<std::string>& words);

}  // namespace rondo
