#include "tests/support/syscall_faults.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <system_error>

namespace rondo::test {

SyscallFaults faults;

namespace {

std::string name_of(int fd) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t n = ::readlink(link.c_str(), path, sizeof path);
  return n < 0
             ? "?"
             : std::filesystem::path(std::string(path, static_cast<size_t>(n))).filename().string();
}

std::string base(const char* path) { return std::filesystem::path(path).filename().string(); }

// True if the call must fail now.
bool intercept(const std::string& what, bool needs_space) {
  const int index = faults.count++;
  if (faults.recording) faults.log.push_back(what);
  if (faults.action == SyscallFaults::Action::exit && index == faults.at) ::_exit(86);
  if (faults.action != SyscallFaults::Action::fail) return false;
  if (index != faults.at && !(faults.persistent && needs_space && index > faults.at)) return false;
  errno = faults.error;
  return true;
}

bool lacks(const char* what) {
  return (" " + faults.lacks + " ").find(std::string(" ") + what + " ") != std::string::npos;
}

// 0, or the errno with which such a file system answers.
int refusal_of_rename(const char* from, const char* to) {
  std::error_code ignored;
  if (lacks("rename")) return ENOSYS;
  if (lacks("directory") && std::filesystem::is_directory(from, ignored)) return ENOSYS;
  if (lacks("onto") && std::filesystem::is_regular_file(to, ignored)) return EACCES;
  return 0;
}

bool is_held(const char* path) {
  if (faults.held_calls == 0 || faults.held != path) return false;
  --faults.held_calls;
  errno = EACCES;
  return true;
}

bool refuses_sync(int fd) {
  struct stat st {};
  if (lacks("fsync")) return true;
  return lacks("sync") && ::fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

}  // namespace
}  // namespace rondo::test

using rondo::test::base;
using rondo::test::intercept;
using rondo::test::is_held;
using rondo::test::name_of;
using rondo::test::refusal_of_rename;
using rondo::test::refuses_sync;

extern "C" {

ssize_t __real_write(int fd, const void* data, size_t n);
ssize_t __wrap_write(int fd, const void* data, size_t n) {
  return intercept("write " + name_of(fd), true) ? -1 : __real_write(fd, data, n);
}
int __real_fsync(int fd);
int __wrap_fsync(int fd) {
  if (refuses_sync(fd)) {
    errno = ENOTSUP;
    return -1;
  }
  return intercept("fsync " + name_of(fd), true) ? -1 : __real_fsync(fd);
}
int __real_rename(const char* from, const char* to);
int __wrap_rename(const char* from, const char* to) {
  if (const int error = refusal_of_rename(from, to)) {
    errno = error;
    return -1;
  }
  return intercept("rename " + base(from) + " " + base(to), false) ? -1 : __real_rename(from, to);
}
int __real_mkdir(const char* path, mode_t mode);
int __wrap_mkdir(const char* path, mode_t mode) {
  return intercept("mkdir " + base(path), true) ? -1 : __real_mkdir(path, mode);
}
int __real_unlink(const char* path);
int __wrap_unlink(const char* path) {
  if (is_held(path)) return -1;
  return intercept("unlink " + base(path), false) ? -1 : __real_unlink(path);
}
int __real_rmdir(const char* path);
int __wrap_rmdir(const char* path) {
  return intercept("rmdir " + base(path), false) ? -1 : __real_rmdir(path);
}
int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(args, mode_t) : 0;
  va_end(args);
  if ((flags & O_ACCMODE) != O_RDONLY && is_held(path)) return -1;
  return intercept("open " + base(path), (flags & O_CREAT) != 0) ? -1
                                                                 : __real_open(path, flags, mode);
}
int __real_open64(const char* path, int flags, ...);
int __wrap_open64(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(args, mode_t) : 0;
  va_end(args);
  if ((flags & O_ACCMODE) != O_RDONLY && is_held(path)) return -1;
  return intercept("open " + base(path), (flags & O_CREAT) != 0) ? -1
                                                                 : __real_open64(path, flags, mode);
}
}
