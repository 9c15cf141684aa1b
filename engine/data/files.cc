#include "engine/data/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "kernels/base/error.h"

namespace rondo::data {
namespace {

// Closes on every path out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool close() {
    const bool ok = ::close(fd_) == 0;
    fd_ = -1;
    return ok;
  }

 private:
  int fd_;
};

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    content.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

std::string read_whole_file(const std::string& path) {
  return read_file_start(path, std::numeric_limits<size_t>::max());
}

std::string read_file_start(const std::string& path, size_t most) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_input(path, ": cannot be opened: ", std::strerror(errno));
  std::string content;
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode))
    content.reserve(std::min(most, static_cast<size_t>(status.st_size)));
  char buffer[1 << 16];
  while (content.size() < most) {
    const ssize_t n = ::read(file.get(), buffer, std::min(sizeof buffer, most - content.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_input(path, ": cannot be read: ", std::strerror(errno));
    if (n == 0) break;
    content.append(buffer, static_cast<size_t>(n));
  }
  return content;
}

void write_whole_file(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp" + std::to_string(::getpid());
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) fail_input(temporary, ": cannot be created: ", std::strerror(errno));
  const bool ok = write_all(file.get(), content) && ::fsync(file.get()) == 0 && file.close() &&
                  std::rename(temporary.c_str(), path.c_str()) == 0;
  if (ok) return;
  const int cause = errno;
  ::unlink(temporary.c_str());
  fail_input(path, ": cannot be written: ", std::strerror(cause));
}

}  // namespace rondo::data
