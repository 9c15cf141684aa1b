// A program's command line as a manual page and as scripts that complete its words in a shell, made
// of the tables of its options.
//
// Pure functions; thread-safe. Errors: none.
#pragma once

#include <string>
#include <string_view>

#include "tools/command_line/command_line.h"

namespace rondo {

// In roff, by man(7). `version`: "rondo 1.2.3".
std::string manual_page(const CommandTable& program, std::string_view version);

// For bash 4 and newer, zsh and fish: commands, options, the words that an option takes, else
// files.
enum class Shell : unsigned char { bash, zsh, fish };
std::string completion(const CommandTable& program, Shell shell);

// Adds the commands that write these: `completion`, and `manual`, which no help lists.
void add_completion(CommandLine& program);

}  // namespace rondo
