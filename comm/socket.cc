#include "comm/socket.h"

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
    if (s && host == every_address) set_option(s, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (s && bind(s.fd(), a->ai_addr, a->ai_addrlen) == 0 && listen(s.fd(), SOMAXCONN) == 0) {
      return s;
    }
    error = errno;
  }
  // A system without IPv6.
  const bool without = error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
  if (host == every_address && without) return listen_tcp("0.0.0.0", port);
  fail_input("cannot listen at ", host_and_port(host, port), ": ", std::strerror(error));
}

namespace {

// "" on failure. IPv4 that has come to a socket of IPv6 is written as IPv4.
std::string numeric_host(const sockaddr* address, socklen_t length) {
  constexpr std::string_view mapped = "::ffff:";
  char text[NI_MAXHOST];
  if (getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  const std::string_view host = text;
  const bool is_mapped = host.starts_with(mapped) && host.find('.') != std::string_view::npos;
  return std::string(is_mapped ? host.substr(mapped.size()) : host);
}

uint16_t port_in(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

sockaddr_storage local_address(const Socket& s) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  RONDO_CHECK(getsockname(s.fd(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
              "getsockname: ", std::strerror(errno));
  return address;
}

}  // namespace

uint16_t local_port(const Socket& s) { return port_in(local_address(s)); }

std::string local_host(const Socket& s) {
  const sockaddr_storage address = local_address(s);
  const bool v6 = address.ss_family == AF_INET6;
  const std::string text = numeric_host(reinterpret_cast<const sockaddr*>(&address),
                                        v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  RONDO_CHECK(!text.empty(), "getnameinfo fails");
  return text == "0.0.0.0" || text == "::" ? "" : text;
}

std::string host_and_port(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return str(v6 ? "[" : "", host, v6 ? "]:" : ":", port);
}

std::string peer_name(const Socket& s) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  auto* const a = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(s.fd(), a, &length) != 0) return "?";
  const std::string host = numeric_host(a, length);
  return host.empty() ? "?" : host_and_port(host, port_in(address));
}

std::vector<std::string> addresses_of(const std::string& host) {
  const Addresses addresses(host, 0, 0);
  std::vector<std::string> all;
  for (const addrinfo* a = addresses.first(); a != nullptr; a = a->ai_next) {
    const std::string text = numeric_host(a->ai_addr, a->ai_addrlen);
    if (!text.empty() && std::find(all.begin(), all.end(), text) == all.end()) all.push_back(text);
  }
  if (all.empty()) fail_input("'", host, "' has no address of IPv4 or IPv6");
  return all;
}

namespace {

// The attempts of connect_any().
class Attempts {
 public:
  Attempts(std::span<const std::string> addresses, uint16_t port)
      : addresses_(addresses), port_(port), sockets_(addresses.size()), why_(addresses.size()) {}

  bool begun_all() const { return begun_ == sockets_.size(); }
  bool under_way() const {
    return std::any_of(sockets_.begin(), sockets_.end(), [](const Socket& s) { return bool(s); });
  }
  void begin() {
    int error = 0;
    sockets_[begun_] = begin_connect(addresses_[begun_], port_, error);
    why_[begun_] = sockets_[begun_] ? "no answer" : std::strerror(error);
    ++begun_;
  }
  // The one that is connected, if one is until then; at once where one fails.
  Socket wait(Deadline until) {
    std::vector<pollfd> polled;
    for (const Socket& s : sockets_) polled.push_back({s.fd(), POLLOUT, 0});  // -1 is left out
    const int n = poll(polled.data(), polled.size(), poll_timeout(until));
    RONDO_CHECK(n >= 0 || errno == EINTR, "poll: ", std::strerror(errno));
    for (size_t i = 0; n > 0 && i < sockets_.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const int error = connect_error(sockets_[i]);
      if (error == 0) return std::move(sockets_[i]);
      why_[i] = std::strerror(error);
      sockets_[i] = Socket();
    }
    return Socket();
  }
  std::string why() const {
    if (addresses_.size() == 1) return why_[0];
    std::string all;
    for (size_t i = 0; i < begun_; ++i) all += str(i ? ", " : "", addresses_[i], ": ", why_[i]);
    return all;
  }

 private:
  std::span<const std::string> addresses_;
  uint16_t port_;
  std::vector<Socket> sockets_;
  std::vector<std::string> why_;
  size_t begun_ = 0;
};

}  // namespace

Socket connect_any(std::span<const std::string> addresses, uint16_t port, Deadline deadline,
                   std::string& why) {
  constexpr auto moment = std::chrono::milliseconds(250);
  Attempts attempts(addresses, port);
  Deadline next = CommClock::now();
  for (;;) {
    while (!attempts.begun_all() && (CommClock::now() >= next || !attempts.under_way())) {
      attempts.begin();
      next = within(moment);
    }
    if (attempts.under_way()) {
      Socket s = attempts.wait(attempts.begun_all() ? deadline : std::min(next, deadline));
      if (s) {
        set_socket_options(s);
        return s;
      }
    }
    if (CommClock::now() >= deadline || (attempts.begun_all() && !attempts.under_way())) {
      why = attempts.why();
      return Socket();
    }
  }
}

Socket connect_tcp(const std::string& host, uint16_t port, Deadline deadline, std::string& why) {
  return connect_any(addresses_of(host), port, deadline, why);
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
