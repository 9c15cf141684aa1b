// A file descriptor that is closed on every path out, and what is said of a file that cannot be
// opened. A descriptor is not copied; the thread that has it uses it.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

namespace rondo {

class Descriptor {
 public:
  // Takes the descriptor; negative: none, as open(2) returns when it fails.
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Throws InputError: "PATH: cannot be opened: ", the system's reason (`error` is its errno), and of
// a relative path that is not there where it was looked for.
[[noreturn]] void fail_to_open(const std::string& path, int error);

// " in /home/ann" for a relative path; nothing for an absolute one, and where nobody knows.
std::string looked_for(const std::filesystem::path& path);

}  // namespace rondo
