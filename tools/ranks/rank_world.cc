#include "tools/ranks/rank_world.h"

#include "comm/base/sha256.h"
#include "comm/shared/shared_transport.h"
#include "comm/store/tcp_store.h"
#include "comm/tcp/tcp_transport.h"
#include "kernels/base/error.h"
#include "tools/ranks/addresses.h"
#include "tools/ranks/meeting_directory.h"
#ifdef RONDO_HAVE_GLOO
#include "comm/gloo/gloo_transport.h"
#endif

namespace rondo {
namespace {

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
      o.bind_address = own_address(place_.master_address, place_.master_port, has_other_machines());
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
  bool has_other_machines() const { return place_.local_size < place_.world_size; }

  void meet_over_tcp(Deadline deadline) {
    if (place_.rank == 0 && place_.master_serves) {
      TcpStoreServerOptions s;
      s.bind_address = listening_address(place_.master_address, has_other_machines());
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
