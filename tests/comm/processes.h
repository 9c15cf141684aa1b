// Ranks as real processes, which tests may kill, stop and watch. Forks, so the calling process must
// have no other threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/socket.h"

namespace rondo {

class Processes {
 public:
  // say(line): to the parent. What the function throws becomes a line "threw KIND: message", and
  // its end the line "done".
  using Say = std::function<void(const std::string& line)>;
  using RankMain = std::function<void(int rank, const Say& say)>;

  Processes(int n, const RankMain& main);
  // Kills what still runs.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // The next line of a rank; fails the test when none comes in time, "" at its end.
  std::string line(int rank);
  // The next line that starts with this; those before it are dropped.
  std::string line_starting(int rank, const std::string& start);
  void signal(int rank, int number);

 private:
  struct Process {
    pid_t pid = -1;
    Socket from;
  };
  std::vector<Process> processes_;
};

}  // namespace rondo
