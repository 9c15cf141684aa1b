// What code does in a process made by fork().
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <string>

#include "kernels/base/error.h"

namespace rondo::test {

// In a child process: what `act` returns; "InputError: ..." or "other: ..." if it throws; and
// "signal 14" if it takes longer than `seconds`, or whatever other signal ends the process.
inline std::string in_child(const std::function<std::string()>& act, unsigned seconds = 120) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child < 0) return "no process";
  if (child == 0) {
    alarm(seconds);
    std::string said;
    try {
      said = act();
    } catch (const InputError& e) {
      said = str("InputError: ", e.what());
    } catch (const std::exception& e) {
      said = str("other: ", e.what());
    }
    _exit(write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 4);
  }
  close(ends[1]);
  std::string said;
  char piece[256];
  for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;) {
    said.append(piece, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return str("signal ", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? said : str("exit code ", WEXITSTATUS(status));
}

}  // namespace rondo::test
