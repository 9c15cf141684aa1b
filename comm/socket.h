// Non-blocking TCP sockets with deadlines. Internal to comm.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/work.h"

namespace rondo {

// What a system may need to answer, be it a network that is mended.
inline constexpr std::chrono::seconds longest_silence{30};

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

// For listen_tcp: every address of this machine, of IPv6 and IPv4 (or of what the system has).
inline constexpr const char* every_address = "::";

// InputError when the address is wrong or taken. `port` 0 takes any free one.
Socket listen_tcp(const std::string& host, uint16_t port);
uint16_t local_port(const Socket& socket);
// The numeric address of this end; "" where one listens at every address.
std::string local_host(const Socket& socket);
// "127.0.0.1:4711", "[fd00::1]:4711" or "?"
std::string peer_name(const Socket& socket);
std::string host_and_port(const std::string& host, uint16_t port);

// The numeric addresses that a name leads to, in the system's order. InputError if there are none.
std::vector<std::string> addresses_of(const std::string& host);

// One attempt at each of these numeric addresses: at the next one when those before have failed, or
// none of them has answered for a moment; the first that answers is taken (RFC 8305 in small). An
// empty Socket when none does; `why` then says so, of each address if there are several.
Socket connect_any(std::span<const std::string> addresses, uint16_t port, Deadline deadline,
                   std::string& why);
// The same with the addresses of a name.
Socket connect_tcp(const std::string& host, uint16_t port, Deadline deadline, std::string& why);

// The beginning of such an attempt, which waits for nothing. `host` is a numeric address; an
// InputError if not. An empty Socket when it fails at once: `error` is an errno then. Once the
// socket is writable, connect_error() tells how it went: 0, or an errno.
Socket begin_connect(const std::string& host, uint16_t port, int& error);
int connect_error(const Socket& socket);

// Without delays for small messages, and lost when the other side's system is silent, as that of a
// machine without power or network; a process that is stopped is not silent. What connect_tcp
// returns has them. Between two processes of one machine nobody asks: it does not fall silent to
// itself, and the questions of a thousand ranks would only lose each other.
void set_socket_options(const Socket& socket, std::chrono::seconds silence = longest_silence);
// Whether both ends have the same address.
bool stays_in_machine(const Socket& socket);
// Whether what was sent has not been acknowledged for so long. To be asked now and then: the
// options notice the silence of a connection only while nothing is on its way.
bool is_silent(const Socket& socket, std::chrono::seconds silence = longest_silence);

enum class IoResult : uint8_t { done, closed, timed_out };
// All of it, or why not. `closed` covers every error of the connection.
IoResult write_all(const Socket& socket, std::string_view data, Deadline deadline);
IoResult read_exactly(const Socket& socket, std::span<char> data, Deadline deadline);

// For poll(2): rounded up, at least 0, at most a minute.
int poll_timeout(Deadline deadline);

}  // namespace rondo
