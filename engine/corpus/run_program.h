// Runs a program without a shell and collects what it prints.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace rondo::corpus {

struct ProgramOutput {
  int status = 0;  // exit status; 128 + n after signal n
  std::string out, err;
};

// `program` is looked up in PATH; its standard input is empty. Throws InputError if it cannot be
// started (`hint` is appended: how to install it) or is not done in time; it is killed then.
// Thread-safe.
ProgramOutput run_program(const std::string& program, const std::vector<std::string>& arguments,
                          std::chrono::milliseconds limit, const std::string& hint);

}  // namespace rondo::corpus
