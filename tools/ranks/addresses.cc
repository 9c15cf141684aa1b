#include "tools/ranks/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "comm/socket.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  const int error = ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text : "";
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

struct InterfaceAddress {
  std::string interface, address;
};

// Those that other machines may reach, IPv4 first.
std::vector<InterfaceAddress> addresses_of_interfaces() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, ::freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = all; i; i = i->ifa_next) {
      const bool is_up = (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0;
      if (!is_up || !i->ifa_addr || i->ifa_addr->sa_family != family) continue;
      const bool v6 = family == AF_INET6;
      // Addresses of a single link mean nothing without the name of an interface there.
      if (v6 &&
          IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr))
        continue;
      const std::string text =
          numeric(i->ifa_addr, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
      if (!text.empty()) found.push_back({i->ifa_name, text});
    }
  }
  return found;
}

// Where a datagram to this numeric address would leave from: a socket is "connected" without
// sending anything. Empty: no way there.
std::string source_towards(const char* host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host, "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  const Socket s(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!s || ::connect(s.fd(), found->ai_addr, found->ai_addrlen) != 0) return "";
  return local_host(s);
}

// By the way out or, where there is none, of the first interface that is up.
std::string outward_address() {
  // For documentation (RFC 5737, RFC 3849): nobody's.
  for (const char* elsewhere : {"192.0.2.1", "2001:db8::1"}) {
    const std::string address = source_towards(elsewhere);
    if (!address.empty() && !is_loopback(address)) return address;
  }
  const std::vector<InterfaceAddress> all = addresses_of_interfaces();
  return all.empty() ? "" : all.front().address;
}

}  // namespace

std::string listening_address(const std::string& host, uint16_t port, bool other_machines) {
  if (!other_machines || is_meant(host)) return host;
  listen_tcp(host, port);  // the name leads to this machine, or an error says that it does not
  return every_address;
}

std::vector<std::string> own_addresses(const std::string& host, const std::string& own,
                                       bool other_machines) {
  if (!other_machines || is_meant(host)) return {own};
  const std::string best = is_loopback(own) ? outward_address() : own;
  if (best.empty()) {
    fail_input("MASTER_ADDR ", host,
               " is the loopback interface of this machine, which has no "
               "other: set MASTER_ADDR to an address that the other machines reach");
  }
  std::vector<std::string> addresses = {best};
  const std::vector<InterfaceAddress> all = addresses_of_interfaces();
  const auto its = std::find_if(all.begin(), all.end(),
                                [&](const InterfaceAddress& a) { return a.address == best; });
  for (const InterfaceAddress& a : all) {
    if (its != all.end() && a.interface == its->interface && a.address != best) {
      addresses.push_back(a.address);
    }
  }
  return addresses;
}

}  // namespace rondo
