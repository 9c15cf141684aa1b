// A file descriptor that is closed on every path out. Not copied; the thread that has it uses it.
#pragma once

#include <unistd.h>

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

}  // namespace rondo
