#include "engine/io/moving.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <initializer_list>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/io/descriptor.h"
#include "engine/io/file.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr const char* half_moved_mark = ".half-moved";

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

bool is_one_of(int error, std::initializer_list<int> errors) {
  return std::find(errors.begin(), errors.end(), error) != errors.end();
}

// 0 or an errno.
int error_of_rename(const fs::path& from, const fs::path& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

// Whether another way may lead to the same: the file system cannot rename this (gcsfuse says EMFILE
// of large directories, overlayfs EXDEV of those of its lower layer), does not want to, or somebody
// has it open. It is not full, broken or read-only.
bool has_another_way(int error) {
  return is_one_of(error, {ENOSYS, EOPNOTSUPP, EINVAL, EXDEV, EMFILE, EPERM, EACCES, EBUSY, EEXIST,
                           ETXTBSY, EAGAIN});
}

void make_mark(const fs::path& mark) { FileWriter(mark).close(); }

void remove_file(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    fail_input(path.string(), ": cannot be removed: ", reason(errno));
  }
}

fs::path mark_of(fs::path temporary) { return temporary += whole_suffix; }

// 0, or an errno: `to` cannot be written, and is as it was.
int error_of_copy(const fs::path& from, const fs::path& to) {
  const FileBytes content(from, FileBytes::Mode::map);
  const Descriptor fd(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) return errno;
  write_all(fd.get(), content.bytes(), to);
  sync_if_possible(fd.get(), to);
  return 0;
}

// One attempt to replace a file other than by renaming onto it: 0, or an errno.
int replace_in_steps(const fs::path& temporary, const fs::path& path) {
  ::unlink(path.c_str());  // if it cannot be removed, it can perhaps be written
  const int error = error_of_rename(temporary, path);
  return error != 0 && has_another_way(error) ? error_of_copy(temporary, path) : error;
}

// The same until it succeeds or the time is up.
int replace_patiently(const fs::path& temporary, const fs::path& path) {
  using Clock = std::chrono::steady_clock;
  const auto give_up = Clock::now() + std::chrono::seconds(busy_seconds);
  constexpr std::chrono::milliseconds longest(500);
  for (std::chrono::milliseconds pause(20);; pause = std::min(2 * pause, longest)) {
    const int error = replace_in_steps(temporary, path);
    if (error == 0 || !has_another_way(error) || Clock::now() >= give_up) return error;
    std::this_thread::sleep_for(pause);
  }
}

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  if (error) fail_input(directory.string(), ": cannot be listed: ", error.message());
  return entries;
}

// To a name that is free.
void move_entry(const fs::path& from, const fs::path& to) {
  int error = error_of_rename(from, to);
  if (error == 0) return;
  if (has_another_way(error)) {
    std::error_code ignored;
    if (fs::is_directory(fs::symlink_status(from, ignored))) {
      move_directory(from, to);
      return;
    }
    error = error_of_copy(from, to);
    if (error == 0) return;
  }
  fail_input(to.string(), ": cannot be created: ", reason(error));
}

}  // namespace

bool is_whole(const fs::path& temporary) {
  std::error_code error;
  return fs::exists(mark_of(temporary), error);
}

void replace_with(const fs::path& temporary, const fs::path& path) {
  const int error = error_of_rename(temporary, path);
  if (error == 0) return;
  const auto fail = [&](int why, const std::string& kept) {
    fail_input(path.string(), ": cannot be created: ", reason(why), kept);
  };
  if (!has_another_way(error)) fail(error, "");
  make_mark(mark_of(temporary));
  const std::string kept = str("; what was to be written is in ", temporary.string());
  int why = 0;
  try {
    why = replace_patiently(temporary, path);
  } catch (const InputError& e) {  // a full disk, say
    throw InputError(e.what() + kept);
  }
  std::error_code ignored;
  if (why != 0 && !fs::exists(path, ignored)) fail(why, kept);
  remove_file(mark_of(temporary));
  if (why != 0) fail(why, " (is it open in another program?); it is as it was before");
  remove_file(temporary);
}

void finish_replacing(const fs::path& temporary, const fs::path& path) {
  std::error_code ignored;
  if (is_whole(temporary) && fs::exists(temporary, ignored)) {
    const int error = replace_in_steps(temporary, path);
    if (error != 0) {
      fail_input(path.string(), ": cannot be created: ", reason(error), "; its content is in ",
                 temporary.string());
    }
  }
  remove_file(mark_of(temporary));
  remove_file(temporary);
}

bool move_directory(const fs::path& from, const fs::path& to, const std::string& last) {
  const int error = error_of_rename(from, to);
  if (error == 0) return true;
  if (!has_another_way(error)) fail_input(to.string(), ": cannot be created: ", reason(error));
  if (::mkdir(to.c_str(), 0777) != 0) {
    fail_input(to.string(), ": cannot be created: ", reason(errno));
  }
  make_mark(to / half_moved_mark);
  for (const fs::path& entry : entries_of(from)) {
    if (entry.filename() != last) move_entry(entry, to / entry.filename());
  }
  sync_if_possible(to);
  if (!last.empty()) move_entry(from / last, to / last);
  sync_if_possible(to);
  declare_moved(to);
  remove_tree(from);
  return false;
}

void remove_directory(const fs::path& directory, const fs::path& aside, const std::string& first) {
  const int error = error_of_rename(directory, aside);
  if (error == 0) return remove_tree(aside);
  if (!has_another_way(error)) {
    fail_input(directory.string(), ": cannot be removed: ", reason(error));
  }
  make_mark(directory / half_moved_mark);
  remove_file(directory / first);
  remove_half_moved(directory);
}

bool is_half_moved(const fs::path& directory) {
  std::error_code error;
  return fs::exists(directory / half_moved_mark, error) ||
         (fs::is_directory(directory, error) && fs::is_empty(directory, error) && !error);
}

void declare_moved(const fs::path& directory) { remove_file(directory / half_moved_mark); }

void remove_half_moved(const fs::path& directory) {
  for (const fs::path& entry : entries_of(directory)) {
    if (entry.filename() != half_moved_mark) remove_tree(entry);
  }
  remove_tree(directory);
}

bool sync_if_possible(int fd, const fs::path& path) {
  int rc;
  do rc = ::fsync(fd);
  while (rc != 0 && errno == EINTR);
  if (rc == 0) return true;
  const int error = errno;
  struct stat st {};
  const bool is_directory = ::fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
  // Who cannot do it says so in many ways; a disk that is full or broken says something else.
  if (is_one_of(error, {EINVAL, EOPNOTSUPP, ENOSYS}) ||
      (is_directory && is_one_of(error, {ENOTTY, EBADF, EISDIR, EPERM, EACCES}))) {
    return false;
  }
  fail_input(path.string(), ": cannot be synced to the disk: ", reason(error));
}

bool sync_if_possible(const fs::path& directory) {
  const Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) return sync_if_possible(fd.get(), directory);
  if (is_one_of(errno, {EACCES, EPERM})) return false;
  fail_input(directory.string(), ": cannot be opened as a directory: ", reason(errno));
}

}  // namespace rondo
