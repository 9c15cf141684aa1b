#include "engine/data/features/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "engine/io/signals.h"
#include "kernels/base/error.h"

extern char** environ;

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail_input("no pipe: ", std::strerror(errno));
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    ::close(read_end);
    close_write_end();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_write_end() {
    if (write_end >= 0) ::close(write_end);
    write_end = -1;
  }
};

// A started process; killed and reaped if nobody waits for it, killed when a signal ends this one.
class Child {
 public:
  Child(const std::string& program, const std::vector<std::string>& arguments, const Pipe& out,
        const Pipe& err, const ProgramOptions& options) {
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    if (options.standard_input >= 0)
      ::posix_spawn_file_actions_adddup2(&actions, options.standard_input, 0);
    else
      ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out.write_end, 1);
    ::posix_spawn_file_actions_adddup2(&actions, err.write_end, 2);
    const StopWaits started;
    const int error =
        ::posix_spawnp(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      pid_ = -1;
      fail_input(program, ": cannot be run: ", std::strerror(error), options.hint);
    }
    killed_if_stopped_.emplace(pid_);
  }
  ~Child() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int wait() {
    int status = 0;
    killed_if_stopped_.reset();
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  std::optional<KilledIfStopped> killed_if_stopped_;
};

// Reads what there is; false at the end.
bool take(int fd, std::string& to) {
  char buffer[1 << 12];  // of a stack that may be small
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n > 0) to.append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

ProgramOutput run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const ProgramOptions& o) {
  using std::chrono::milliseconds;
  const Clock::time_point deadline = Clock::now() + o.limit;
  Pipe out, err;
  Child child(program, arguments, out, err, o);
  out.close_write_end();
  err.close_write_end();
  ProgramOutput result;
  pollfd fds[2] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (left <= milliseconds::zero()) {
      fail_input(program, ": was not done after ", std::chrono::duration<double>(o.limit).count(),
                 " s");
    }
    // EINTR, and nothing yet: the deadline is checked anew.
    if (::poll(fds, 2, static_cast<int>(left.count())) <= 0) continue;
    if (fds[0].revents != 0 && !take(out.read_end, result.out)) fds[0].fd = -1;
    if (fds[1].revents != 0 && !take(err.read_end, result.err)) fds[1].fd = -1;
    if (result.out.size() > o.most_output)
      fail_input(program, ": printed more than ", o.most_output, " bytes");
  }
  result.status = child.wait();
  return result;
}

ProgramOutput run_program(const std::string& program, const std::vector<std::string>& arguments,
                          std::chrono::milliseconds limit, const std::string& hint) {
  ProgramOptions options;
  options.limit = limit;
  options.hint = hint;
  return run_program(program, arguments, options);
}

std::string word_for_shell(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+@,";
  const std::string safe = word.starts_with("-") ? "./" + word : word;
  if (safe.find_first_not_of(plain) == std::string::npos) return safe;
  std::string out = "'";
  for (const char c : safe) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

bool is_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  if (!path) return false;
  const std::string_view all(path);
  for (size_t at = 0; at <= all.size();) {
    const size_t end = std::min(all.find(':', at), all.size());
    const std::string folder(all.substr(at, end - at));
    const std::string file = (folder.empty() ? "." : folder) + "/" + program;
    struct stat status {};
    if (::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        ::access(file.c_str(), X_OK) == 0)
      return true;
    at = end + 1;
  }
  return false;
}

}  // namespace rondo
