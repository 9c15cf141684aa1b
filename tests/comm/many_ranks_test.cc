// Worlds in which not everybody is connected with everybody: so many processes meet, sum and wait
// for each other, and hear of one that is lost. RONDO_MANY_RANKS says how many; 1024 take about a
// minute on two cores, and 8 GB.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "comm/group/process_group.h"
#include "comm/shared/shared_transport.h"
#include "comm/store/tcp_store.h"
#include "tests/catch.h"
#include "tests/comm/processes.h"
#include "tests/comm/socket_ranks.h"
#include "tests/comm/sums.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

constexpr auto long_patience = 10min;  // nobody waits so long but where something is wrong

int many_ranks() {
  const char* const text = std::getenv("RONDO_MANY_RANKS");
  return text ? std::atoi(text) : 2 * whole_mesh - 24;
}

// A store for processes that have been forked: its port goes to each of them by a pipe.
class PortPipe {
 public:
  PortPipe() { REQUIRE(pipe(ends_) == 0); }
  ~PortPipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  uint16_t read_port() const {
    uint16_t port = 0;
    if (read(ends_[0], &port, sizeof port) != sizeof port) throw Error("no port");
    return port;
  }
  void tell(uint16_t port, int readers) const {
    for (int i = 0; i < readers; ++i) REQUIRE(write(ends_[1], &port, sizeof port) == sizeof port);
  }

 private:
  int ends_[2];
};

// In kB; what processes share counts for each of them with its part.
size_t proportional_memory() {
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("Pss:")) return std::stoul(line.substr(4));
  }
  return 0;
}

TcpStoreServerOptions store_for(int ranks) {
  TcpStoreServerOptions o = test_store_options();
  o.max_connections = o.max_strangers = 2 * ranks;
  return o;
}

using RankBody = std::function<void(Transport&, const Processes::Say&)>;

Processes::RankMain rank_main(const PortPipe& ports, int ranks, bool shares, const RankBody& body) {
  return [&ports, ranks, shares, body](int rank, const Processes::Say& say) {
    const auto store =
        make_tcp_store("127.0.0.1", ports.read_port(), "secret", within(long_patience));
    TcpOptions o = rank_options(rank, ranks, *store);
    o.timeout = long_patience;
    o.grace = 10s;
    auto transport = make_tcp_transport(o);
    if (shares) {
      SharedTransportOptions s;
      s.required = true;
      s.timeout = long_patience;
      s.grace = 10s;
      transport = make_shared_transport(std::move(transport), s);
    }
    body(*transport, say);
  };
}

GroupOptions small_group() {
  GroupOptions o;
  o.message_bytes = 4096;
  o.timeout = long_patience;
  return o;
}

TEST_CASE("Many ranks meet, sum and wait for each other", "[many]") {
  const int ranks = many_ranks();
  const bool shares = GENERATE(false, true);
  const PortPipe ports;
  const auto begin = CommClock::now();
  Processes p(ranks, rank_main(ports, ranks, shares, [&](Transport& t, const auto& say) {
                say("met");
                const auto group = make_ring_group(t, small_group());
                std::vector<double> numbers(11, t.rank() + 1);
                group->all_reduce(view(numbers), Reduction::sum).wait();
                for (const double x : numbers) {
                  if (x != 0.5 * ranks * (ranks + 1)) throw Error(str("a sum of ", x));
                }
                // Far apart: these two are not connected yet.
                const int far = (t.rank() + ranks / 2 + 3) % ranks;
                const int other = (t.rank() + ranks - ranks / 2 - 3) % ranks;
                std::vector<int> sent{t.rank()}, got(1);
                Work recv = t.recv(other, 1, bytes_of(got), within(long_patience));
                t.send(far, 1, bytes_of(sent), within(long_patience)).wait();
                recv.wait();
                if (got[0] != other) throw Error("somebody else's message");
                group->barrier().wait();
                say(str("memory ", proportional_memory()));
                group->barrier().wait();
              }));
  TcpStoreServer server(store_for(ranks));
  ports.tell(server.port(), ranks);
  const auto seconds = [&] {
    return std::chrono::duration<double>(CommClock::now() - begin).count();
  };
  for (int r = 0; r < ranks; ++r) CHECK(p.line(r) == "met");
  const double met = seconds();
  size_t kilobytes = 0;
  for (int r = 0; r < ranks; ++r) kilobytes += std::stoul(p.line_starting(r, "memory ").substr(7));
  for (int r = 0; r < ranks; ++r) CHECK(p.line(r) == "done");
  std::cout << ranks << " ranks" << (shares ? ", sharing memory" : "") << ": met after " << met
            << " s, done after " << seconds() << " s; " << kilobytes / 1024 << " MiB together\n";
}

TEST_CASE("A rank of many that is lost is named by all, also by those who do not know it",
          "[many][fault]") {
  const int ranks = many_ranks(), lost = ranks / 3;
  const bool shares = GENERATE(false, true);
  const PortPipe ports;
  Processes p(ranks, rank_main(ports, ranks, shares, [&](Transport& t, const auto& say) {
                const auto group = make_ring_group(t, small_group());
                std::vector<double> numbers(11, 1);
                for (int i = 0;; ++i) {
                  group->all_reduce(view(numbers), Reduction::sum).wait();
                  if (i == 2) say("running");
                }
              }));
  TcpStoreServer server(store_for(ranks));
  ports.tell(server.port(), ranks);
  for (int r = 0; r < ranks; ++r) p.line_starting(r, "running");
  const auto begin = CommClock::now();
  p.signal(lost, SIGKILL);
  for (int r = 0; r < ranks; ++r) {
    if (r == lost) continue;
    CHECK_THAT(p.line_starting(r, "threw"), Contains(str("rank ", lost, " is lost: ")));
  }
  std::cout << ranks << " ranks: all have heard after "
            << std::chrono::duration<double>(CommClock::now() - begin).count() << " s\n";
}

}  // namespace
}  // namespace rondo
