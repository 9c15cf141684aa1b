#include "tools/ranks/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "kernels/base/error.h"

namespace rondo {
namespace {

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  const int error = ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text : "";
}

// Where a datagram to `host` would leave from: a socket is "connected" without sending anything.
// Empty: no way there.
std::string source_towards(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) fail_input("MASTER_ADDR ", host, ": ", ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  std::string result;
  for (const addrinfo* a = found; a && result.empty(); a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    if (fd >= 0 && ::connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
        ::getsockname(fd, address, &length) == 0) {
      result = numeric(address, length);
    }
    if (fd >= 0) ::close(fd);
  }
  return result;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// "10.0.0.1", "::1" or "localhost": it means what it says.
bool is_meant(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  return host == "localhost" || ::inet_pton(AF_INET, host.c_str(), &v4) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

// By the way out or, where there is none, of the first interface that is up.
std::string outward_address() {
  constexpr const char* elsewhere = "192.0.2.1";  // for documentation (RFC 5737): nobody's
  std::string address = source_towards(elsewhere, 9);
  if (!address.empty() && !is_loopback(address)) return address;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, ::freeifaddrs);
  for (const ifaddrs* i = all; i; i = i->ifa_next) {
    const bool is_up = (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_up && i->ifa_addr && i->ifa_addr->sa_family == AF_INET) {
      return numeric(i->ifa_addr, sizeof(sockaddr_in));
    }
  }
  return "";
}

}  // namespace

std::string listening_address(const std::string& host, bool other_machines) {
  if (!other_machines || is_meant(host)) return host;
  return is_loopback(source_towards(host, 1)) ? "0.0.0.0" : host;
}

std::string own_address(const std::string& host, uint16_t port, bool other_machines) {
  const std::string address = source_towards(host, port);
  if (address.empty()) fail_input("MASTER_ADDR ", host, ": no way to reach it from here");
  if (!other_machines || is_meant(host) || !is_loopback(address)) return address;
  const std::string outward = outward_address();
  if (outward.empty()) {
    fail_input("MASTER_ADDR ", host,
               " is the loopback interface of this machine, which has no "
               "other: set MASTER_ADDR to an address that the other machines reach");
  }
  return outward;
}

}  // namespace rondo
