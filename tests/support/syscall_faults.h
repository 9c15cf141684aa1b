// Records, fails or crashes at the n-th system call that changes the file system.
//
// The test executable is linked with -Wl,--wrap for each of these calls, so the library's calls
// pass through here, and those of the tests' own helpers (fstream, std::filesystem) do not.
#pragma once

#include <string>
#include <vector>

namespace rondo::test {

struct SyscallFaults {
  enum class Action { none, fail, exit };
  Action action = Action::none;
  int at = -1;              // index of the call that fails, or before which the process ends
  int error = 0;            // errno of the failure
  bool persistent = false;  // all later calls that need disk space fail as well, as on a full disk
  bool recording = false;
  // What the file system cannot do at all: "rename" anything, rename a "directory", rename "onto"
  // an existing file, "sync" a directory, "fsync" anything; several, with spaces. Not among the
  // calls that are counted.
  std::string lacks;
  // A file that another program holds: so many calls to remove it or to open it for writing fail.
  std::string held;
  int held_calls = 0;
  int count = 0;                 // calls so far
  std::vector<std::string> log;  // "fsync model.safetensors"
};

extern SyscallFaults faults;

}  // namespace rondo::test
