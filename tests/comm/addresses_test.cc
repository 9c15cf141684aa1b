// Machines of several addresses: which of them a connection takes, and which ranks tell each other.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <thread>

#include "comm/socket.h"
#include "comm/tcp/dial.h"
#include "tests/catch.h"
#include "tests/comm/socket_ranks.h"
#include "tests/comm/time_limits.h"

using namespace rondo;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

constexpr auto patience = 20s;

// Somebody at this address who takes no connection: those who come get no answer at all.
class NoAnswer {
 public:
  NoAnswer(const char* host, uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    REQUIRE(inet_pton(AF_INET, host, &address.sin_addr) == 1);
    listener_ = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listener_.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_.fd(), 0) == 0);
    int error = 0;
    for (Socket& s : callers_) s = begin_connect(host, port, error);
  }

 private:
  Socket listener_, callers_[4];
};

}  // namespace

TEST_CASE("Of several addresses the one that answers is taken", "[slow][addresses]") {
  const Socket listener = listen_tcp("127.0.0.2", 0);
  const uint16_t port = local_port(listener);
  const NoAnswer nobody("127.0.0.3", port);
  using List = std::vector<std::string>;
  for (const List& addresses :
       {List{"127.0.0.2"}, List{"127.0.0.4", "127.0.0.2"}, List{"127.0.0.3", "127.0.0.2"},
        List{"127.0.0.3", "127.0.0.4", "127.0.0.2"}, List{"127.0.0.2", "127.0.0.3"}}) {
    const HeldUp held_up;
    const auto begin = CommClock::now();
    std::string why;
    const Socket s = connect_any(addresses, port, within(patience), why);
    CHECK(s);
    CHECK(peer_name(s) == str("127.0.0.2:", port));
    CHECK(CommClock::now() - begin - held_up.so_far() < patience / 2);
  }
}

TEST_CASE("Where none of several addresses answers, each is named with its reason",
          "[slow][addresses]") {
  const Socket listener = listen_tcp("127.0.0.2", 0);
  const uint16_t port = local_port(listener);
  const NoAnswer nobody("127.0.0.3", port);
  std::string why;
  const std::vector<std::string> both = {"127.0.0.3", "127.0.0.4"}, refused = {"127.0.0.4"};
  CHECK(!connect_any(both, port, within(600ms), why));
  CHECK(why == "127.0.0.3: no answer, 127.0.0.4: Connection refused");
  CHECK(!connect_any(refused, port, within(patience), why));
  CHECK(why == "Connection refused");
}

TEST_CASE("Who listens at every address is reached by both families", "[addresses]") {
  const Socket listener = listen_tcp(every_address, 0);
  CHECK(local_host(listener).empty());
  std::vector<std::string> names = {"127.0.0.1"};
  if (listens_at("::1")) names.emplace_back("::1");
  for (const std::string& name : names) {
    std::string why;
    const Socket s = connect_tcp(name, local_port(listener), within(patience), why);
    REQUIRE(s);
    CHECK(local_host(s) == name);
    const Socket there(::accept(listener.fd(), nullptr, nullptr));
    CHECK(peer_name(there) == host_and_port(name, local_port(s)));
    CHECK(stays_in_machine(there));
  }
}

TEST_CASE("A name has its addresses once each", "[addresses]") {
  CHECK(addresses_of("127.0.0.1") == std::vector<std::string>{"127.0.0.1"});
  CHECK(addresses_of("::1") == std::vector<std::string>{"::1"});
  CHECK_THROWS_WITH(addresses_of("no.such.host.invalid"), Contains("'no.such.host.invalid'"));
}

TEST_CASE("Ranks meet at the address of several by which they reach each other", "[addresses]") {
  TcpStoreServer server(test_store_options());
  std::string failures[2];
  const auto rank = [&](int r) {
    try {
      const auto store = make_tcp_store("127.0.0.1", server.port(), "secret", within(patience));
      TcpOptions o = rank_options(r, 2, *store);
      o.bind_address = "192.0.2.1";  // for documentation: nobody's
      o.other_addresses = {"127.0.0.3", "127.0.0.1"};
      make_tcp_transport(o);
    } catch (const Error& e) {
      failures[r] = e.what();
    }
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  CHECK(failures[0].empty());
  CHECK(failures[1].empty());
}

TEST_CASE("A rank of several addresses is gone where one refuses and none answers", "[addresses]") {
  using tcp_transport::Dial;
  const uint16_t free = local_port(listen_tcp("127.0.0.2", 0));
  const tcp_transport::Job job{"secret", "ranks", 2};
  const auto until_refused = [&](Dial& dial) {
    for (const Deadline end = within(patience); !dial.refused() && CommClock::now() < end;) {
      dial.advance();
      std::this_thread::sleep_for(1ms);
    }
    return dial.refused();
  };
  Dial gone(job, 1, 0, {{"127.0.0.2", "127.0.0.4"}, free});
  CHECK(until_refused(gone));
  CHECK(gone.why() ==
        str("127.0.0.2:", free, ": Connection refused, 127.0.0.4:", free, ": Connection refused"));
  const Socket listener = listen_tcp("127.0.0.4", free);
  Dial there(job, 1, 0, {{"127.0.0.2", "127.0.0.4"}, free});
  while (!there.connected()) {
    there.advance();
    REQUIRE(!there.refused());
  }
}
