// How code fares where the system starts only a few threads. For code under the thread sanitizer it
// is no use, which does not fork.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "kernels/base/error.h"

namespace rondo::test {

// Threads that can be started, about: each wants much more memory than others do.
constexpr size_t few_threads = 3;

// From now on in this process.
inline void limit_threads() {
  const size_t stack = size_t{512} << 20;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack);
  pthread_setattr_default_np(&attributes);
  long pages = 0;
  std::FILE* const f = std::fopen("/proc/self/statm", "r");
  const bool read = f != nullptr && std::fscanf(f, "%ld", &pages) == 1;
  const auto now = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  const rlim_t most = now + few_threads * stack + stack / 2;
  const rlimit limit{most, most};
  if (!read || setrlimit(RLIMIT_AS, &limit) != 0) _exit(3);
}

// In a process of its own, which has no other threads: "InputError: ..." or "other: ..." if `act`
// throws, "done" if it does not, and "signal 6" if it ends the process.
inline std::string with_few_threads(const std::function<void()>& act) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child < 0) return "no process";
  if (child == 0) {
    std::string said = "done";
    limit_threads();
    try {
      act();
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
