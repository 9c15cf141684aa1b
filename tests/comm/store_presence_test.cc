// What a launcher asks of the TCP store: to be missed when it is gone, and to begin anew.
#include <sys/socket.h>

#include <map>
#include <thread>

#include "comm/socket.h"
#include "comm/store/store_protocol.h"
#include "comm/store/tcp_store.h"
#include "tests/catch.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

constexpr auto patience = 10s;

struct Place {
  Place() : server(options()) {}
  static TcpStoreServerOptions options() {
    TcpStoreServerOptions o;
    o.token = "secret";
    o.log = [](const std::string&) {};
    return o;
  }
  std::unique_ptr<TcpStore> client() const {
    return make_tcp_store("127.0.0.1", server.port(), "secret", within(patience));
  }
  TcpStoreServer server;
};

bool disappears(Store& store, const std::string& key) {
  for (const Deadline end = within(patience); CommClock::now() < end;) {
    if (!store.try_get(key, within(patience))) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

TEST_CASE("The table has as many bytes as its keys and values, however often they are set",
          "[store]") {
  StoreTable table(100);
  std::map<std::string, std::string> kept;
  uint32_t draw = 1;
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    draw = draw * 1664525 + 1013904223;
    const std::string key(1 + draw / 65536 % 3, static_cast<char>('a' + draw / 1048576 % 3));
    const std::string value(draw / 4194304 % 40, 'v');
    if (draw % 7 == 0) {
      table.remove(key);
      kept.erase(key);
      continue;
    }
    std::map<std::string, std::string> then = kept;
    then[key] = value;
    size_t bytes = 0;
    for (const auto& [k, v] : then) bytes += k.size() + v.size();
    const bool fits = bytes <= 100;
    const auto status = table.apply({StoreOp::set, 0, 0, {key}, value}, true)->status;
    CHECK((status == StoreStatus::ok) == fits);
    if (fits) kept = then;
    refused += !fits;
    for (const auto& [k, v] : kept)
      CHECK(table.apply({StoreOp::get, 0, 0, {k}, ""}, true)->value == v);
  }
  CHECK(refused > 100);
}

TEST_CASE("What is announced is there as long as its client", "[store]") {
  const Place place;
  const auto witness = place.client();
  auto first = place.client();
  first->announce("here", "1", within(patience));
  first->announce("here too", "2", within(patience));
  first->set("stays", "3", within(patience));
  CHECK(witness->get("here", within(patience)) == "1");
  first.reset();
  CHECK(disappears(*witness, "here"));
  CHECK(disappears(*witness, "here too"));
  CHECK(witness->get("stays", within(patience)) == "3");
}

TEST_CASE("A later announcement outlives the client of the earlier one", "[store]") {
  const Place place;
  auto first = place.client();
  const auto second = place.client();
  first->announce("mark", "", within(patience));
  first->announce("here", "1", within(patience));
  second->announce("here", "2", within(patience));
  first.reset();
  CHECK(disappears(*second, "mark"));
  CHECK(second->get("here", within(patience)) == "2");
}

TEST_CASE("A store that begins anew has no values and no clients, and its port", "[store]") {
  Place place;
  const uint16_t port = place.server.port();
  const auto old = place.client(), waits = place.client();
  old->set("k", "v", within(patience));
  old->announce("here", "", within(patience));
  std::thread waiting([&] {
    try {
      waits->get("never", within(patience));
      FAIL_CHECK("got a value that nobody set");
    } catch (const CommError& e) {
      CHECK(e.kind() == CommErrorKind::peer_lost);
    }
  });
  for (int i = 0; i < 3; ++i) place.server.begin_anew();
  waiting.join();
  CHECK(place.server.port() == port);
  const auto fresh = place.client();
  CHECK(!fresh->try_get("k", within(patience)));
  CHECK(!fresh->try_get("here", within(patience)));
  fresh->set("k", "w", within(patience));
  CHECK_THROWS_AS(old->set("k", "v", within(patience)), CommError);
  CHECK(fresh->get("k", within(patience)) == "w");
}

TEST_CASE("Who hangs up waits no longer", "[store]") {
  const Place place;
  const auto store = place.client();
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    store->hang_up();
  });
  try {
    store->get("never", within(1h));
    FAIL("got a value that nobody set");
  } catch (const CommError& e) {
    CHECK(e.kind() == CommErrorKind::peer_lost);
  }
  later.join();
  CHECK_THROWS_AS(store->set("k", "v", within(patience)), CommError);
}

TEST_CASE("A server that ends while a client comes in is tried again", "[store]") {
  // As one that is killed in the middle of a greeting; the token is not to blame.
  const Socket listener = listen_tcp("127.0.0.1", 0);
  constexpr int times = 3;
  std::thread dying([&] {
    for (int i = 0; i <= times; ++i) {
      int fd = -1;
      while ((fd = ::accept(listener.fd(), nullptr, nullptr)) < 0) std::this_thread::sleep_for(1ms);
      const Socket s(fd);
      const size_t said = i == times ? 0 : i == 0 ? 3 : 32;
      write_all(s, "RNDOST01" + std::string(said, 'c'), within(patience));
      if (i == times) write_all(s, std::string(64, '\0'), within(patience));  // refused at last
    }
  });
  CHECK_THROWS_WITH(make_tcp_store("127.0.0.1", local_port(listener), "secret", within(patience)),
                    Contains("does not accept the job token"));
  dying.join();
}

}  // namespace
}  // namespace rondo
