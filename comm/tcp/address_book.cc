#include "comm/tcp/address_book.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "comm/store/store.h"

namespace rondo::tcp_transport {
namespace {

constexpr const char* book_key = "tcp-all";
// For a look at who is missing, once the time is up.
constexpr auto last_look = std::chrono::seconds(5);

std::string key_of(int rank) { return str("tcp-", rank); }

// The first address of an interface, IPv4 if it has one.
std::string address_of_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  RONDO_CHECK(getifaddrs(&all) == 0, "getifaddrs: ", std::strerror(errno));
  std::string found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = all; i != nullptr && found.empty(); i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family || name != i->ifa_name) {
        continue;
      }
      char text[NI_MAXHOST];
      const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (getnameinfo(i->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
        found = text;
      }
    }
  }
  freeifaddrs(all);
  if (found.empty()) fail_input("no interface has this name and an address");
  return found;
}

// "4711 10.0.0.1", or with further addresses: "4711 10.0.0.1 fd00::1"
Place parse_place(const std::string& about, const std::string& text) {
  Place place;
  std::istringstream words(text);
  words >> place.port;
  const bool has_port = !words.fail();
  for (std::string host; words >> host;) place.hosts.push_back(host);
  if (!has_port || place.hosts.empty()) {
    fail_input(about, "'", text, "' in the store is no address");
  }
  return place;
}

std::string about(const TcpOptions& o, int peer) {
  return str("rank ", o.rank, ": rendezvous with rank ", peer, ": ");
}

// Who has not said where it listens.
[[noreturn]] void time_out(const TcpOptions& o) {
  constexpr int most_named = 10;
  const Deadline deadline = within(last_look);
  std::string missing;
  int first = -1, more = 0;
  for (int r = 0; r < o.world_size; ++r) {
    if (o.store->try_get(key_of(r), deadline)) continue;
    if (first < 0) first = r;
    if (++more <= most_named) missing += str(missing.empty() ? "" : ", ", r);
  }
  if (more > most_named) missing += str(" and ", more - most_named, " more");
  throw CommError(
      CommErrorKind::timeout, first,
      str("rank ", o.rank, ": rendezvous of ", o.world_size, " ranks: timed out ",
          first < 0 ? "while they told each other where they are" : "without rank " + missing));
}

std::string gather_places(const TcpOptions& o, Deadline deadline) {
  std::string all;
  for (int r = 0; r < o.world_size; ++r) {
    all += o.store->get(key_of(r), deadline) + "\n";
  }
  o.store->set(book_key, all, deadline);
  return all;
}

}  // namespace

std::string Place::name() const {
  std::string all;
  for (const std::string& host : hosts) {
    all += str(all.empty() ? "" : " or ", host_and_port(host, port));
  }
  return all;
}

Socket listen_and_tell(const TcpOptions& o, Deadline deadline) {
  const bool by_interface = !o.interface.empty();
  const std::string& place = by_interface ? o.interface : o.bind_address;
  Socket listener;
  try {
    if (by_interface) {
      listener = listen_tcp(address_of_interface(place), 0);
    } else {
      listener = listen_tcp(o.other_addresses.empty() ? place : every_address, 0);
    }
  } catch (const InputError& e) {
    fail_input("rank ", o.rank, " cannot listen at '", place, "': ", e.what());
  }
  const std::string host = local_host(listener);
  std::string told = str(local_port(listener), " ", host.empty() ? place : host);
  if (!by_interface) {
    for (const std::string& other : o.other_addresses) told += " " + other;
  }
  o.store->set(key_of(o.rank), told, deadline);
  return listener;
}

Place place_of(const TcpOptions& o, int rank, Deadline deadline) {
  return parse_place(about(o, rank), o.store->get(key_of(rank), deadline));
}

std::vector<Place> all_places(const TcpOptions& o, Deadline deadline) {
  std::string all;
  try {
    all = o.rank == 0 ? gather_places(o, deadline) : o.store->get(book_key, deadline);
  } catch (const CommError& e) {
    if (e.kind() == CommErrorKind::timeout) time_out(o);
    throw;
  }
  std::vector<Place> places;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    places.push_back(
        parse_place(about(o, static_cast<int>(places.size())), all.substr(at, end - at)));
    at = end + 1;
  }
  if (places.size() != static_cast<size_t>(o.world_size)) {
    fail_input("rank ", o.rank, ": the store knows ", places.size(), " addresses of ", o.world_size,
               " ranks");
  }
  return places;
}

}  // namespace rondo::tcp_transport
