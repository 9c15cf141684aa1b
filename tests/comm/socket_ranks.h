// Ranks over TCP for tests, by our transport or Gloo's, as threads or as processes; with a
// transport of one's own on top.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "comm/socket.h"
#include "comm/store/tcp_store.h"
#include "comm/tcp/tcp_transport.h"
#include "tests/catch.h"
#include "tests/comm/transport_contract.h"

namespace rondo {

inline TcpStoreServerOptions test_store_options() {
  TcpStoreServerOptions o;
  o.token = "secret";
  o.log = [](const std::string&) {};
  return o;
}

inline TcpOptions rank_options(int rank, int ranks, Store& store) {
  TcpOptions o;
  o.rank = rank;
  o.world_size = ranks;
  o.store = &store;
  o.token = "secret";
  o.timeout = std::chrono::seconds(20);
  return o;
}

// Whether this machine has the address.
inline bool listens_at(const std::string& host) {
  try {
    listen_tcp(host, 0);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

// A chain: the fewest connections by which every rank can be reached. All others are made when they
// are needed.
inline std::vector<int> chain(int rank, int world_size) {
  std::vector<int> peers;
  if (rank > 0) peers.push_back(rank - 1);
  if (rank + 1 < world_size) peers.push_back(rank + 1);
  return peers;
}

// What a test puts on top of the transport; nothing, if empty.
using OnTop = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport> base)>;

struct Stack {
  std::unique_ptr<Transport> (*base)(const TcpOptions&) = make_tcp_transport;
  OnTop on_top{};
  FirstPeers first_peers = rondo::first_peers;

  std::unique_ptr<Transport> make(TcpOptions options) const {
    options.first_peers = first_peers;
    auto transport = base(options);
    return on_top ? on_top(std::move(transport)) : std::move(transport);
  }
};

// Ranks as threads of one process, each with a transport of its own.
class SocketThreads final : public TestWorld {
 public:
  explicit SocketThreads(int ranks, const Stack& stack = {})
      : transports_(static_cast<size_t>(ranks)) {
    const auto patience = std::chrono::seconds(20);
    TcpStoreServer server(test_store_options());
    each([&](size_t r) {
      const auto store = make_tcp_store("127.0.0.1", server.port(), "secret", within(patience));
      TcpOptions options = rank_options(static_cast<int>(r), ranks, *store);
      options.grace = patience;  // nobody is stopped here: a busy machine may hold up the others
      transports_[r] = stack.make(options);
    });
  }
  ~SocketThreads() override {
    each([&](size_t r) { transports_[r].reset(); });
  }
  Transport& transport(int rank) override { return *transports_[static_cast<size_t>(rank)]; }
  void lose(int rank) override { transports_[static_cast<size_t>(rank)].reset(); }

  template <class Function>
  void each(Function function) {
    std::vector<std::thread> threads;
    for (size_t r = 0; r < transports_.size(); ++r) threads.emplace_back(function, r);
    for (std::thread& t : threads) t.join();
  }

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
};

// A directory that ranks meet in, so that the parent needs no thread for a server before it forks.
struct Meeting {
  Meeting() { REQUIRE(mkdtemp(directory.data()) != nullptr); }
  ~Meeting() { std::filesystem::remove_all(directory); }
  std::string directory = (std::filesystem::temp_directory_path() / "rondo-ranks-XXXXXX").string();
};

// For a process that is one of `ranks`.
inline std::unique_ptr<Transport> join(const Meeting& meeting, int rank, int ranks,
                                       const Stack& stack = {}) {
  const auto store = make_file_store(meeting.directory);
  return stack.make(rank_options(rank, ranks, *store));
}

}  // namespace rondo
