// How code fares where the system starts only a few threads. For code under the thread sanitizer it
// is no use, which does not fork.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "tests/in_child.h"

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

// In a process of its own, which has no other threads: in_child(), "done" if `act` does not throw.
inline std::string with_few_threads(const std::function<void()>& act) {
  return in_child([&] {
    limit_threads();
    act();
    return std::string("done");
  });
}

}  // namespace rondo::test
