// A process that another one starts and watches: a rank of `rondo launch`, a trial of kernels.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/io/signals.h"

namespace rondo {

// What has become of a process.
struct ChildStatus {
  enum Kind : unsigned char { running, stopped, exited, killed } kind = running;
  int number = 0;  // the exit code, or the signal

  bool ended() const { return kind == exited || kind == killed; }
  bool succeeded() const { return kind == exited && number == 0; }
};

// "was killed by SIGKILL", "is stopped (SIGSTOP)", "ended with exit code 3"
std::string describe(const ChildStatus& status);

// In a process group of its own, so that signals of the terminal reach it through its launcher
// alone; it gets SIGTERM when the launcher dies, SIGKILL when a second signal ends the launcher.
// Standard input is /dev/null, standard error a pipe. Move-only; one thread at a time. Errors:
// InputError.
class ChildProcess {
 public:
  // The file of this process's own program.
  static constexpr const char* itself = "/proc/self/exe";
  // `environment`: "NAME=value", the whole of it.
  ChildProcess(const std::vector<std::string>& arguments,
               const std::vector<std::string>& environment, const std::string& program = itself);
  // Kills it if it still runs.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  // Looks without waiting.
  const ChildStatus& status();
  void signal(int number) const;
  // For poll(); -1 once the pipe has ended.
  int error_pipe() const { return pipe_; }
  // Complete lines that have come since the last call; the rest of one when the pipe has ended.
  std::vector<std::string> read_lines();

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
  ChildStatus status_;
  std::string partial_;
  std::optional<KilledIfStopped> killed_if_stopped_;
};

}  // namespace rondo
