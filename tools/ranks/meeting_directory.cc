#include "tools/ranks/meeting_directory.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>

#include "engine/io/file.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// A directory of this user alone.
fs::path private_directory() {
  const auto path = fs::temp_directory_path() / str("rondo-", ::getuid());
  struct stat s {};
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    fail_input(path.string(), ": cannot be made: ", std::strerror(errno));
  }
  if (::lstat(path.c_str(), &s) != 0 || !S_ISDIR(s.st_mode) || s.st_uid != ::getuid() ||
      (s.st_mode & 077) != 0) {
    fail_input(path.string(), ": is not a directory that only this user can enter");
  }
  return path;
}

// When a process began, in ticks since the system did: its number may be given to another one.
// Empty where the system does not tell. Field 22 of proc(5)'s stat, behind a name in parentheses.
std::string start_of(pid_t process) {
  std::ifstream file(str("/proc/", process, "/stat"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string field;
  constexpr int wanted = 22, first_behind_name = 3;
  for (int i = first_behind_name; i <= wanted; ++i) fields >> field;
  return fields ? field : "";
}

bool lives(pid_t process, const std::string& start) {
  return (::kill(process, 0) == 0 || errno == EPERM) && start_of(process) == start;
}

// What rank 0 has said, unless it is gone: process, its start, the directory.
std::optional<fs::path> read_sign(const fs::path& sign) {
  std::ifstream file(sign);
  pid_t process = 0;
  std::string start, directory;
  if (!(file >> process) || process <= 0 || file.get() != '\n') return std::nullopt;
  if (!std::getline(file, start) || !std::getline(file, directory)) return std::nullopt;
  if (!lives(process, start)) return std::nullopt;
  return directory;
}

}  // namespace

MeetingDirectory::MeetingDirectory(const std::string& name, bool is_rank_zero, Deadline deadline)
    : sign_(private_directory() / name), is_rank_zero_(is_rank_zero) {
  if (is_rank_zero_) {
    std::string made = str(sign_.string(), "-XXXXXX");
    if (::mkdtemp(made.data()) == nullptr) {
      fail_input(made, ": cannot be made: ", std::strerror(errno));
    }
    path_ = made;
    unfinished_.emplace(path_);
    replace_text_file(sign_, str(::getpid(), "\n", start_of(::getpid()), "\n", made, "\n"));
    return;
  }
  for (;;) {
    if (const auto said = read_sign(sign_)) {
      path_ = *said;
      return;
    }
    if (CommClock::now() >= deadline) {
      throw CommError(CommErrorKind::timeout, 0,
                      str("waiting for rank 0 to say in '", sign_.string(), "' where ranks meet"));
    }
    constexpr auto pause = std::chrono::milliseconds(10);
    std::this_thread::sleep_until(std::min(deadline, CommClock::now() + pause));
  }
}

MeetingDirectory::~MeetingDirectory() {
  if (!is_rank_zero_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  // Another job may have said something else since.
  if (read_sign(sign_) == path_) fs::remove(sign_, ignored);
}

}  // namespace rondo
