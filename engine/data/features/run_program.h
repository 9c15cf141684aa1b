// Runs a program without a shell and collects what it prints.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace rondo {

struct ProgramOutput {
  int status = 0;  // exit status; 128 + n after signal n
  std::string out, err;
};

struct ProgramOptions {
  std::chrono::milliseconds limit;  // to be done in
  std::string hint = {};            // behind the message of a program that cannot be started
  int standard_input = -1;          // a descriptor; negative: it is empty
  size_t most_output = SIZE_MAX;    // bytes of `out`
};

// `program` is looked up in PATH. Throws InputError if it cannot be started, is not done in time or
// prints too much; it is killed then. Thread-safe.
ProgramOutput run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const ProgramOptions& options);
ProgramOutput run_program(const std::string& program, const std::vector<std::string>& arguments,
                          std::chrono::milliseconds limit, const std::string& hint);

// As a shell takes it for one word, for commands in messages that whoever reads them copies.
std::string word_for_shell(const std::string& word);

// Whether a program of this name can be run.
bool is_on_path(const std::string& program);

}  // namespace rondo
