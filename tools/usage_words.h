// What is said about a wrong command line, in the program's words rather than its parser's.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace rondo {

// "rondo prepare fsdd": the command as far as it was chosen.
std::string chosen_command(const CLI::App& app);

// One sentence, without a name before it: the word at fault and what was expected.
std::string describe_wrong_usage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace rondo
