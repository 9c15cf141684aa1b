#include "tools/ranks/rank_world.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "comm/sha256.h"
#include "comm/shared/machines.h"
#include "comm/shared/shared_transport.h"
#include "comm/store/tcp_store.h"
#include "engine/reduce/ranks.h"
#include "kernels/base/error.h"
#include "tools/command_line/command_line.h"
#include "tools/ranks/addresses.h"
#include "tools/ranks/meeting_directory.h"
#ifdef RONDO_HAVE_GLOO
#include "comm/gloo/gloo_transport.h"
#endif
#ifdef RONDO_HAVE_MPI
#include "comm/mpi/mpi_transport.h"
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

#ifdef RONDO_HAVE_MPI
constexpr bool have_mpi = true;
#else
constexpr bool have_mpi = false;
bool is_started_for_mpi() { return false; }
std::unique_ptr<Transport> make_mpi_transport(std::unique_ptr<Transport> inner) { return inner; }
#endif

// By MPI, if it was asked for, or where it may know a better way from machine to machine and all
// ranks can; else `base` as it is.
std::unique_ptr<Transport> by_mpi(std::unique_ptr<Transport> base, bool between_machines,
                                  RankTransport transport, CommClock::duration timeout) {
  if (transport == RankTransport::mpi) {
    if (!have_mpi) {
      fail_input("parallel.transport = \"mpi\": this program was built without MPI");
    }
    if (!is_started_for_mpi()) {
      fail_input("parallel.transport = \"mpi\": expected ranks that mpirun or srun has started");
    }
    return make_mpi_transport(std::move(base));
  }
  if (transport != RankTransport::automatic || !between_machines) return base;
  double can = have_mpi && is_started_for_mpi() ? 1 : 0;
  GroupOptions g;
  g.timeout = timeout;
  make_ring_group(*base, g)->all_reduce(TensorView(&can, DType::f64, {1}), Reduction::sum).wait();
  return can == base->world_size() ? make_mpi_transport(std::move(base)) : std::move(base);
}

const char* name_of(RankTransport transport) {
  switch (transport) {
    case RankTransport::automatic:
      return "auto";
    case RankTransport::shared:
      return "shared";
    case RankTransport::tcp:
      return "tcp";
    case RankTransport::gloo:
      return "gloo";
    case RankTransport::mpi:
      return "mpi";
  }
  return "?";
}

// How this rank was started, before it meets the others: who was started in another way would wait
// for them in vain. Rank 0 says how it was, the others compare and say that they have. Where one
// differs, all say how.
class Roll {
 public:
  Roll(Store& store, const RankPlace& place, RankTransport transport, Deadline deadline)
      : store_(store), place_(place), transport_(name_of(transport)), deadline_(deadline) {}

  // Throws InputError, where a rank differs from rank 0, on all that have come; CommError
  // (timeout).
  void call() {
    if (place_.rank == 0) {
      say();
    } else {
      wait_for_attempt();
      compare();
    }
    hear();
  }

 private:
  void say() {
    store_.set("world/size", std::to_string(place_.world_size), deadline_);
    store_.set("world/transport", transport_, deadline_);
    store_.set("world/attempt", place_.attempt, deadline_);
  }

  // Who has not come by the deadline is named by those who wait for a connection with it.
  void hear() {
    constexpr auto longest_pause = std::chrono::milliseconds(100);  // of many that ask one store
    auto pause = std::chrono::milliseconds(5);
    const std::string all = std::to_string(place_.world_size - 1);
    while (CommClock::now() < deadline_) {
      if (const auto what = store_.try_get("world/differs", deadline_)) {
        // Rank 0 may serve the store, in which the others look.
        if (place_.rank == 0)
          wait_for_listeners(all);
        else
          store_.add("world/heard", 1, deadline_);
        throw InputError(*what);
      }
      if (store_.try_get("world/agreed", deadline_) == all) return;
      std::this_thread::sleep_for(pause);
      if (place_.rank != 0) pause = std::min(2 * pause, longest_pause);
    }
  }

  // Those that are about to come, too: without rank 0 they would wait for it until the deadline.
  void wait_for_listeners(const std::string& all) {
    const Deadline farewell = std::min(deadline_, within(std::chrono::seconds(5)));
    while (CommClock::now() < farewell && store_.try_get("world/heard", deadline_) != all)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  void wait_for_attempt() {
    for (;;) {
      const std::string theirs = store_.get("world/attempt", deadline_);
      if (theirs == place_.attempt) return;
      // Of an attempt that is about to end, it may be; then its store goes too.
      if (CommClock::now() >= deadline_) {
        throw CommError(CommErrorKind::timeout, 0,
                        str("rank ", place_.rank, ": rendezvous of ", place_.world_size,
                            " ranks: timed out: this is attempt ", place_.attempt,
                            ", rank 0 is at attempt ", theirs));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  void compare() {
    const std::string size = store_.get("world/size", deadline_);
    const std::string transport = store_.get("world/transport", deadline_);
    const std::string own_size = std::to_string(place_.world_size);
    if (size == own_size && transport == transport_) {
      store_.add("world/agreed", 1, deadline_);
      return;
    }
    const std::string what =
        size != own_size
            ? str("was started as one of ", own_size, " ranks, rank 0 as one of ", size,
                  ": the number of ranks (-n, --nodes, WORLD_SIZE) has to be the same everywhere")
            : str("parallel.transport is \"", transport_, "\", that of rank 0 \"", transport,
                  "\": expected the same everywhere");
    const std::string told = str("rank ", place_.rank, ": ", what);
    store_.set("world/differs", told, deadline_);
    store_.add("world/heard", 1, deadline_);
    throw InputError(told);
  }

  Store& store_;
  const RankPlace& place_;
  const std::string transport_;
  const Deadline deadline_;
};

class ProcessWorld final : public RankWorld {
 public:
  ProcessWorld(RankPlace place, RankTransport transport, CommClock::duration timeout)
      : place_(std::move(place)) {
    const Deadline deadline = within(timeout);
    TcpOptions o;
    if (place_.master_address.empty()) {
      meet_in_directory(deadline);
    } else {
      const std::vector<std::string> own = meet_over_tcp(deadline);
      o.bind_address = own.front();
      o.other_addresses.assign(own.begin() + 1, own.end());
    }
    Roll(*store_, place_, transport, deadline).call();
    o.rank = place_.rank;
    o.world_size = place_.world_size;
    o.store = store_.get();
    o.rendezvous_id = "attempt-" + place_.attempt;
    o.token = place_.token;
    o.timeout = deadline - CommClock::now();
    transport_ = connect_ranks(o, transport, has_other_machines());
  }

  Transport& transport() override { return *transport_; }
  Store& store() override { return *store_; }

 private:
  bool has_other_machines() const { return place_.local_size < place_.world_size; }

  // Where the other ranks reach this one.
  std::vector<std::string> meet_over_tcp(Deadline deadline) {
    if (place_.rank == 0 && place_.master_serves) {
      TcpStoreServerOptions s;
      s.bind_address =
          listening_address(place_.master_address, place_.master_port, has_other_machines());
      s.port = place_.master_port;
      s.token = place_.token;
      s.max_connections = std::max(s.max_connections, 2 * place_.world_size);
      s.max_strangers = std::max(s.max_strangers, place_.world_size);
      server_ = std::make_unique<TcpStoreServer>(s);
    }
    auto store = make_tcp_store(place_.master_address, place_.master_port, place_.token, deadline);
    const std::string own = store->own_address();
    store_ = std::move(store);
    return own_addresses(place_.master_address, own, has_other_machines());
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

std::unique_ptr<Transport> connect_ranks(const TcpOptions& options, RankTransport transport,
                                         bool several_machines) {
  const Deadline deadline = within(options.timeout);
  const auto left = [&] { return deadline - CommClock::now(); };
  auto base = by_mpi(make_base(options, transport), several_machines, transport, left());
  SharedTransportOptions s;
  s.share = transport == RankTransport::automatic || transport == RankTransport::shared;
  s.required = transport == RankTransport::shared;
  if (several_machines) {
    s.machines = meet_machines(*base, left());
    const int own = s.machines[static_cast<size_t>(options.rank)];
    s.local_ranks = static_cast<int>(std::count(s.machines.begin(), s.machines.end(), own));
  }
  s.timeout = left();
  return make_shared_transport(std::move(base), s);
}

void rethrow_as_rank(const RankPlace& place, Transport& transport) {
  const auto failed = [&](const std::exception& e) {
    transport.abort(e.what());
    return str("rank ", place.rank, ": ", e.what());
  };
  // Those that `rondo launch` watches for losses all speak to it.
  const bool speaks = place.local_rank == 0 || place.elastic;
  try {
    throw;
  } catch (const CommError&) {
    throw;  // it names the rank, and all know
  } catch (const PeerFailed& e) {
    const int first_here = place.rank - place.local_rank;
    const bool is_here = e.rank() >= first_here && e.rank() < first_here + place.local_size;
    if (is_here || !speaks) throw;
    throw InputError(e.what());
  } catch (const WrongUsage&) {
    throw;  // as all were started
  } catch (const CommonFailure& e) {
    if (speaks) throw;
    throw PeerFailed(0, e.what());
  } catch (const InputError& e) {
    throw InputError(failed(e));
  } catch (const std::exception& e) {
    throw Error(failed(e));
  }
}

std::unique_ptr<RankWorld> join_ranks(const RankPlace& place, RankTransport transport,
                                      CommClock::duration timeout) {
  return std::make_unique<ProcessWorld>(place, transport, timeout);
}

}  // namespace rondo
