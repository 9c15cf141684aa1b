#include "tools/ranks/rank_world.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "comm/base/sha256.h"
#include "comm/shared/shared_transport.h"
#include "comm/store/tcp_store.h"
#include "comm/tcp/tcp_transport.h"
#include "kernels/base/error.h"
#include "tools/ranks/meeting_directory.h"
#ifdef RONDO_HAVE_GLOO
#include "comm/gloo/gloo_transport.h"
#endif

namespace rondo {
namespace {

// The address of this machine from which `host` is reached: what the other ranks, which reach the
// same host, can reach in turn. A datagram socket is "connected" without sending anything.
std::string address_towards(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) fail_input("MASTER_ADDR ", host, ": ", ::gai_strerror(error));
  std::string result;
  for (const addrinfo* a = found; a && result.empty(); a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    char text[NI_MAXHOST];
    if (fd >= 0 && ::connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
        ::getsockname(fd, address, &length) == 0 &&
        ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      result = text;
    }
    if (fd >= 0) ::close(fd);
  }
  ::freeaddrinfo(found);
  if (result.empty()) fail_input("MASTER_ADDR ", host, ": no way to reach it from here");
  return result;
}

std::unique_ptr<Transport> make_base(const TcpOptions& options, RankTransport transport) {
  if (transport != RankTransport::gloo) return make_tcp_transport(options);
#ifdef RONDO_HAVE_GLOO
  return make_gloo_transport(options);
#else
  fail_input("parallel.transport = \"gloo\": this program was built without Gloo");
#endif
}

class ProcessWorld final : public RankWorld {
 public:
  ProcessWorld(RankPlace place, RankTransport transport, CommClock::duration timeout)
      : place_(std::move(place)) {
    const Deadline deadline = within(timeout);
    TcpOptions o;
    if (place_.master_address.empty()) {
      meet_in_directory(deadline);
    } else {
      meet_over_tcp(deadline);
      o.bind_address = address_towards(place_.master_address, place_.master_port);
    }
    o.rank = place_.rank;
    o.world_size = place_.world_size;
    o.store = store_.get();
    o.rendezvous_id = "attempt-" + place_.attempt;
    o.token = place_.token;
    o.timeout = deadline - CommClock::now();
    transport_ = make_base(o, transport);
    SharedTransportOptions s;
    s.share = transport == RankTransport::automatic || transport == RankTransport::shared;
    s.required = transport == RankTransport::shared;
    s.timeout = deadline - CommClock::now();
    transport_ = make_shared_transport(std::move(transport_), s);
  }

  Transport& transport() override { return *transport_; }
  Store& store() override { return *store_; }

 private:
  void meet_over_tcp(Deadline deadline) {
    if (place_.rank == 0 && place_.master_serves) {
      TcpStoreServerOptions s;
      s.bind_address = place_.master_address;
      s.port = place_.master_port;
      s.token = place_.token;
      server_ = std::make_unique<TcpStoreServer>(s);
    }
    store_ = make_tcp_store(place_.master_address, place_.master_port, place_.token, deadline);
  }

  void meet_in_directory(Deadline deadline) {
    directory_ = std::make_unique<MeetingDirectory>(
        str(place_.meeting_directory, "-", place_.attempt), place_.rank == 0, deadline);
    store_ = make_file_store(directory_->path().string());
    if (place_.rank == 0) store_->set("token", random_token(), deadline);
    place_.token = store_->get("token", deadline);
  }

  RankPlace place_;
  std::unique_ptr<MeetingDirectory> directory_;
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace

std::unique_ptr<RankWorld> join_ranks(const RankPlace& place, RankTransport transport,
                                      CommClock::duration timeout) {
  return std::make_unique<ProcessWorld>(place, transport, timeout);
}

}  // namespace rondo
