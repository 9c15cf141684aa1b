#include "engine/parallel/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/io/signals.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& t : texts) all.push_back(const_cast<char*>(t.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

std::string describe(const ChildStatus& status) {
  switch (status.kind) {
    case ChildStatus::running:
      return "is running";
    case ChildStatus::stopped:
      return "is stopped (" + signal_name(status.number) + ")";
    case ChildStatus::exited:
      return "ended with exit code " + std::to_string(status.number);
    case ChildStatus::killed:
      return "was killed by " + signal_name(status.number);
  }
  return "?";
}

ChildProcess::ChildProcess(const std::vector<std::string>& arguments,
                           const std::vector<std::string>& environment,
                           const std::string& program) {
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_input("cannot make a pipe: ", std::strerror(errno));
  const pid_t parent = ::getpid();
  const SignalsBlocked blocked;
  pid_ = ::fork();
  if (pid_ < 0) {
    const int error = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    fail_input("cannot start a process: ", std::strerror(error));
  }
  if (pid_ == 0) {
    // System calls alone: other threads may have held locks when this process was copied.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, 0);
    ::dup2(ends[1], 2);
    blocked.end_in_child();
    ::execve(program.c_str(), argv.data(), envp.data());
    ::_exit(127);
  }
  killed_if_stopped_.emplace(pid_);
  ::setpgid(pid_, pid_);  // whoever of the two comes first
  ::close(ends[1]);
  pipe_ = ends[0];
  ::fcntl(pipe_, F_SETFL, O_NONBLOCK);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pipe_(std::exchange(other.pipe_, -1)),
      status_(other.status_),
      partial_(std::move(other.partial_)),
      killed_if_stopped_(std::exchange(other.killed_if_stopped_, std::nullopt)) {}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !status_.ended()) {
    ::kill(pid_, SIGKILL);
    killed_if_stopped_.reset();
    ::waitpid(pid_, nullptr, 0);
  }
  if (pipe_ >= 0) ::close(pipe_);
}

const ChildStatus& ChildProcess::status() {
  int state = 0;
  if (status_.ended() || ::waitpid(pid_, &state, WNOHANG | WUNTRACED | WCONTINUED) != pid_) {
    return status_;
  }
  if (WIFEXITED(state)) status_ = {ChildStatus::exited, WEXITSTATUS(state)};
  if (WIFSIGNALED(state)) status_ = {ChildStatus::killed, WTERMSIG(state)};
  if (WIFSTOPPED(state)) status_ = {ChildStatus::stopped, WSTOPSIG(state)};
  if (WIFCONTINUED(state)) status_ = {ChildStatus::running, 0};
  if (status_.ended()) killed_if_stopped_.reset();
  return status_;
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0 && !status_.ended()) ::kill(pid_, number);
}

std::vector<std::string> ChildProcess::read_lines() {
  std::vector<std::string> lines;
  char buffer[4096];
  while (pipe_ >= 0) {
    const ssize_t n = ::read(pipe_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      ::close(std::exchange(pipe_, -1));
      if (!partial_.empty()) lines.push_back(std::move(partial_));
      partial_.clear();
      break;
    }
    partial_.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = partial_.find('\n')) != std::string::npos;) {
      lines.push_back(partial_.substr(0, end));
      partial_.erase(0, end + 1);
    }
  }
  return lines;
}

}  // namespace rondo
