// --with: further models, whose probabilities are averaged with the first's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/command_line/command_line.h"

namespace rondo {

CommandOption add_ensemble_option(Command& command, std::vector<std::string>* others);

// What there is of all these models (files_of_model).
std::vector<std::string> files_of_models(const std::string& model,
                                         const std::vector<std::string>& others);

// Of the files of all of them: tells models apart. Throws InputError.
uint64_t hash_of_models(const std::string& model, const std::vector<std::string>& others);

}  // namespace rondo
