#include "comm/base/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rondo {
namespace {

class Addresses {
 public:
  Addresses(const std::string& host, uint16_t port, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first_);
    if (error != 0) {
      fail_input("'", host, "' is not an address of a machine: ", gai_strerror(error));
    }
  }
  ~Addresses() { freeaddrinfo(first_); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  const addrinfo* first() const { return first_; }

 private:
  addrinfo* first_ = nullptr;
};

Socket open_socket(const addrinfo& a) {
  return Socket(socket(a.ai_family, a.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a.ai_protocol));
}

void set_option(const Socket& s, int level, int option, int value) {
  setsockopt(s.fd(), level, option, &value, sizeof(value));
}

bool wait_for(const Socket& s, short events, Deadline deadline) {
  for (;;) {
    pollfd p{s.fd(), events, 0};
    const int n = poll(&p, 1, poll_timeout(deadline));
    if (n > 0) return true;
    if (CommClock::now() >= deadline) return false;
    RONDO_CHECK(n == 0 || errno == EINTR, "poll: ", std::strerror(errno));
  }
}

// move(done): bytes moved beyond the first `done`, as read(2) and write(2) return it.
template <class Move>
IoResult move_all(const Socket& s, size_t size, short events, Deadline deadline, Move move) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = move(done);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!wait_for(s, events, deadline)) return IoResult::timed_out;
    } else {
      return IoResult::closed;
    }
  }
  return IoResult::done;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

int poll_timeout(Deadline deadline) {
  using std::chrono::milliseconds;
  const auto now = CommClock::now();
  if (deadline <= now) return 0;
  if (deadline - now > std::chrono::minutes(1)) return 60'000;
  return static_cast<int>(std::chrono::ceil<milliseconds>(deadline - now).count());
}

Socket listen_tcp(const std::string& host, uint16_t port) {
  const Addresses addresses(host, port, AI_PASSIVE);
  int error = 0;
  for (const addrinfo* a = addresses.first(); a != nullptr; a = a->ai_next) {
    Socket s = open_socket(*a);
    if (s) set_option(s, SOL_SOCKET, SO_REUSEADDR, 1);
    if (s && bind(s.fd(), a->ai_addr, a->ai_addrlen) == 0 && listen(s.fd(), SOMAXCONN) == 0) {
      return s;
    }
    error = errno;
  }
  fail_input("cannot listen at ", host_and_port(host, port), ": ", std::strerror(error));
}

namespace {

sockaddr_storage local_address(const Socket& s) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  RONDO_CHECK(getsockname(s.fd(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
              "getsockname: ", std::strerror(errno));
  return address;
}

}  // namespace

uint16_t local_port(const Socket& s) {
  const sockaddr_storage address = local_address(s);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::string local_host(const Socket& s) {
  const sockaddr_storage address = local_address(s);
  const bool v6 = address.ss_family == AF_INET6;
  char host[NI_MAXHOST];
  const int error = getnameinfo(reinterpret_cast<const sockaddr*>(&address),
                                v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in), host, sizeof host,
                                nullptr, 0, NI_NUMERICHOST);
  RONDO_CHECK(error == 0, "getnameinfo: ", gai_strerror(error));
  const std::string text = host;
  return text == "0.0.0.0" || text == "::" ? "" : text;
}

std::string host_and_port(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return str(v6 ? "[" : "", host, v6 ? "]:" : ":", port);
}

std::string peer_name(const Socket& s) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const auto* a = reinterpret_cast<const sockaddr*>(&address);
  if (getpeername(s.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      getnameinfo(a, length, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  return str(host, ":", port);
}

Socket connect_tcp(const std::string& host, uint16_t port, Deadline deadline, std::string& why) {
  const Addresses addresses(host, port, 0);
  for (const addrinfo* a = addresses.first(); a != nullptr; a = a->ai_next) {
    Socket s = open_socket(*a);
    int error = errno;
    if (s) {
      error = connect(s.fd(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
      if (error == EINPROGRESS) {
        error = wait_for(s, POLLOUT, deadline) ? connect_error(s) : ETIMEDOUT;
      }
      if (error == 0) {
        set_socket_options(s);
        return s;
      }
    }
    why = std::strerror(error);
  }
  return Socket();
}

Socket begin_connect(const std::string& host, uint16_t port, int& error) {
  const Addresses addresses(host, port, AI_NUMERICHOST);
  const addrinfo* const a = addresses.first();
  Socket s = open_socket(*a);
  if (s && (connect(s.fd(), a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS)) {
    return s;
  }
  error = errno;
  return Socket();
}

int connect_error(const Socket& s) {
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

bool stays_in_machine(const Socket& s) {
  sockaddr_storage own{}, peers{};
  socklen_t own_length = sizeof own, peers_length = sizeof peers;
  if (getsockname(s.fd(), reinterpret_cast<sockaddr*>(&own), &own_length) != 0 ||
      getpeername(s.fd(), reinterpret_cast<sockaddr*>(&peers), &peers_length) != 0 ||
      own.ss_family != peers.ss_family) {
    return false;
  }
  if (own.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&own)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(&peers)->sin_addr.s_addr;
  }
  return own.ss_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(&own)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(&peers)->sin6_addr,
                     sizeof(in6_addr)) == 0;
}

void set_socket_options(const Socket& s, std::chrono::seconds silence) {
  set_option(s, IPPROTO_TCP, TCP_NODELAY, 1);
  if (stays_in_machine(s)) return;
  set_option(s, SOL_SOCKET, SO_KEEPALIVE, 1);
  // A probe after a third of the time, and four in the rest.
  constexpr int probes = 4;
  const auto first = std::max(1, static_cast<int>(silence.count() / 3));
  const auto rest = static_cast<int>(silence.count()) - first;
  set_option(s, IPPROTO_TCP, TCP_KEEPIDLE, first);
  set_option(s, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, rest / probes));
  set_option(s, IPPROTO_TCP, TCP_KEEPCNT, probes);
}

// Where the other side has no room, nothing is on its way that could be acknowledged, and its
// system goes on answering probes: so a process that is stopped is not silent.
bool is_silent(const Socket& s, std::chrono::seconds silence) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(s.fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  // What waits for a network interface of this machine that is down has not been sent at all: then
  // it is probes that nobody answers.
  const bool unanswered =
      (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes > 1;
  return unanswered && std::chrono::milliseconds(info.tcpi_last_ack_recv) > silence;
}

IoResult write_all(const Socket& s, std::string_view data, Deadline deadline) {
  return move_all(s, data.size(), POLLOUT, deadline, [&](size_t done) {
    return ::send(s.fd(), data.data() + done, data.size() - done, MSG_NOSIGNAL);
  });
}

IoResult read_exactly(const Socket& s, std::span<char> data, Deadline deadline) {
  return move_all(s, data.size(), POLLIN, deadline, [&](size_t done) {
    return ::recv(s.fd(), data.data() + done, data.size() - done, 0);
  });
}

}  // namespace rondo
