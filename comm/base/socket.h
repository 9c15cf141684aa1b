// Non-blocking TCP sockets with deadlines. Internal to comm.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "comm/base/work.h"

namespace rondo {

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// InputError when the address is wrong or taken. `port` 0 takes any free one.
Socket listen_tcp(const std::string& host, uint16_t port);
uint16_t local_port(const Socket& socket);
// "127.0.0.1:4711", or "?"
std::string peer_name(const Socket& socket);
std::string host_and_port(const std::string& host, uint16_t port);

// One attempt. An empty Socket when nobody answers; `why` then says so. InputError for a host name
// that has no address.
Socket connect_tcp(const std::string& host, uint16_t port, Deadline deadline, std::string& why);

// Without delays for small messages, and kept alive; what connect_tcp returns has them.
void set_socket_options(const Socket& socket);

enum class IoResult : uint8_t { done, closed, timed_out };
// All of it, or why not. `closed` covers every error of the connection.
IoResult write_all(const Socket& socket, std::string_view data, Deadline deadline);
IoResult read_exactly(const Socket& socket, std::span<char> data, Deadline deadline);

// For poll(2): rounded up, at least 0, at most a minute.
int poll_timeout(Deadline deadline);

}  // namespace rondo
