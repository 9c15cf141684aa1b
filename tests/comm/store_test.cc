#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/socket.h"
#include "comm/store/memory_store.h"
#include "comm/store/store_protocol.h"
#include "comm/store/tcp_store.h"
#include "tests/catch.h"
#include "tests/comm/time_limits.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

constexpr auto patience = 10s;

std::string hex(const Digest& digest) {
  std::string out;
  for (const uint8_t b : digest) {
    out += "0123456789abcdef"[b >> 4];
    out += "0123456789abcdef"[b & 15];
  }
  return out;
}

TEST_CASE("SHA-256 of the published examples", "[sha256]") {
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex(sha256(std::string(1'000'000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 around the block's end", "[sha256]") {
  // Made with Python's hashlib: 'x' * n.
  CHECK(hex(sha256(std::string(55, 'x'))) ==
        "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  CHECK(hex(sha256(std::string(56, 'x'))) ==
        "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  CHECK(hex(sha256(std::string(63, 'x'))) ==
        "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2");
  CHECK(hex(sha256(std::string(64, 'x'))) ==
        "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
  CHECK(hex(sha256(std::string(65, 'x'))) ==
        "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9");
}

TEST_CASE("HMAC-SHA-256 of RFC 4231", "[sha256]") {
  CHECK(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hex(hmac_sha256(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("Digests compare, tokens differ", "[sha256]") {
  Digest a = sha256("x");
  const Digest b = a;
  CHECK(equal_digests(a, b));
  a[31] ^= 1;
  CHECK(!equal_digests(a, b));
  CHECK(random_token().size() == 64);
  CHECK(random_token() != random_token());
}

TEST_CASE("What a request says survives the wire", "[store]") {
  const StoreRequest sent{StoreOp::wait, 250, -3, {"a", std::string(1024, 'k')}, ""};
  const StoreRequest got = parse_store_request(encode(sent));
  CHECK(got.op == StoreOp::wait);
  CHECK(got.wait_ms == 250);
  CHECK(got.delta == -3);
  CHECK(got.keys == sent.keys);
  const StoreReply reply =
      parse_store_reply(encode(StoreReply{StoreStatus::refused, -7, std::string("a\0b", 3)}));
  CHECK(reply.status == StoreStatus::refused);
  CHECK(reply.number == -7);
  CHECK(reply.value == std::string("a\0b", 3));
}

TEST_CASE("A damaged request is refused, wherever it is cut", "[store]") {
  const std::string good = encode(StoreRequest{StoreOp::set, 0, 0, {"key"}, "value"});
  CHECK_NOTHROW(parse_store_request(good));
  for (size_t n = 0; n < good.size(); ++n) {
    CHECK_THROWS_AS(parse_store_request(good.substr(0, n)), InputError);
  }
  CHECK_THROWS_WITH(parse_store_request(good + "x"), Contains("1 bytes too many"));
  std::string op = good;
  op[0] = 9;
  CHECK_THROWS_WITH(parse_store_request(op), Contains("operation 9"));
  CHECK_THROWS_WITH(parse_store_request(encode({StoreOp::get, 0, 0, {}, ""})), Contains("0 keys"));
  CHECK_THROWS_WITH(parse_store_request(encode({StoreOp::get, 0, 0, {""}, ""})),
                    Contains("0 bytes, expected 1 to 1024"));
  CHECK_THROWS_WITH(parse_store_request(encode({StoreOp::get, 0, 0, {"k"}, "v"})),
                    Contains("no use"));
  std::string buffer = "\xff\xff\xff\x7f";
  CHECK_THROWS_WITH(take_frame(buffer), Contains("2147483647 bytes, at most"));
}

TEST_CASE("The table refuses what does not fit", "[store]") {
  StoreTable table(100);
  const auto set = [&](const std::string& key, size_t n) {
    return table.apply({StoreOp::set, 0, 0, {key}, std::string(n, 'v')}, true)->status;
  };
  CHECK(set("a", 90) == StoreStatus::ok);
  CHECK(set("b", 20) == StoreStatus::refused);
  CHECK(set("a", 10) == StoreStatus::ok);  // what is replaced makes room
  CHECK(set("b", 20) == StoreStatus::ok);
  CHECK(table.apply({StoreOp::add, 0, 1, {"a"}, ""}, true)->status == StoreStatus::refused);
  const int64_t big = INT64_MAX;
  CHECK(table.apply({StoreOp::add, 0, big, {"n"}, ""}, true)->number == big);
  CHECK(table.apply({StoreOp::add, 0, 1, {"n"}, ""}, true)->status == StoreStatus::refused);
}

struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
  void add(const std::string& line) {
    std::lock_guard lock(mutex);
    lines.push_back(line);
  }
  bool has(const std::string& part) {
    std::lock_guard lock(mutex);
    for (const std::string& l : lines) {
      if (l.find(part) != std::string::npos) return true;
    }
    return false;
  }
  bool eventually_has(const std::string& part) {
    for (const Deadline end = within(patience); CommClock::now() < end;) {
      if (has(part)) return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }
};

struct TcpFixture {
  // By default longer than any client is held up.
  explicit TcpFixture(CommClock::duration handshake_timeout = 60s)
      : server(options(handshake_timeout)) {}
  TcpStoreServerOptions options(CommClock::duration handshake_timeout) {
    TcpStoreServerOptions o;
    o.token = "secret";
    o.handshake_timeout = handshake_timeout;
    o.max_strangers = 3;
    o.log = [this](const std::string& line) { log.add(line); };
    return o;
  }
  std::unique_ptr<Store> client(const std::string& token = "secret") {
    return make_tcp_store("127.0.0.1", server.port(), token, within(patience));
  }
  Socket stranger() {
    std::string why;
    Socket s = connect_tcp("127.0.0.1", server.port(), within(patience), why);
    REQUIRE(s);
    return s;
  }

  Log log;
  TcpStoreServer server;
};

bool closed_by_peer(const Socket& s, Deadline deadline) {
  char byte;
  IoResult r;
  while ((r = read_exactly(s, {&byte, 1}, deadline)) == IoResult::done) {
  }
  return r == IoResult::closed;
}

// A port that nobody else is given, and at which nobody listens but who asks for this one: bound,
// as the system lets two sockets of which at most one listens.
class ReservedPort {
 public:
  ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    REQUIRE(setsockopt(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(socket_.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  uint16_t number() const { return local_port(socket_); }

 private:
  Socket socket_;
};

std::string scratch_directory() {
  std::string name = (std::filesystem::temp_directory_path() / "rondo-store-XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  return name;
}

// The rules of store.h, for every kind of store. `open` makes another client.
void check_store(const std::function<std::unique_ptr<Store>()>& open) {
  const auto a = open(), b = open();
  CHECK(!a->try_get("x", within(patience)));
  a->set("x", std::string("1\0 2", 4), within(patience));
  CHECK(b->get("x", within(patience)) == std::string("1\0 2", 4));
  a->set("x", "", within(patience));
  CHECK(b->try_get("x", within(patience)) == "");
  a->set("odd/key _\n\xff", "v", within(patience));
  CHECK(b->get("odd/key _\n\xff", within(patience)) == "v");
  const std::string large(Store::max_value_bytes, 'z'), long_key(Store::max_key_bytes, 'k');
  a->set(long_key, large, within(patience));
  CHECK(b->get(long_key, within(patience)) == large);
  // Keys that differ little: at the end of long ones, by case, or by how a store may spell them.
  const std::string long_begin(Store::max_key_bytes - 1, 'k');
  const std::vector<std::string> alike = {
      long_begin + "1", long_begin + "2", long_begin, "ab",   "aB", "a_b", "a/b",
      "a_5fb",          "a_5f_b",         "a\xff",    "a_ff", "kab"};
  for (const std::string& key : alike) a->set(key, "of " + key, within(patience));
  for (const std::string& key : alike) CHECK(b->try_get(key, within(patience)) == "of " + key);
  CHECK_THROWS_WITH(a->set("y", large + "z", within(patience)), Contains("at most 1048576"));
  CHECK_THROWS_WITH(a->set("", "v", within(patience)), Contains("0 bytes, expected 1 to 1024"));

  CHECK(a->add("n", 5, within(patience)) == 5);
  CHECK(b->add("n", -7, within(patience)) == -2);
  CHECK(a->get("n", within(patience)) == "-2");
  a->set("text", "abc", within(patience));
  CHECK_THROWS_WITH(a->add("text", 1, within(patience)), Contains("no number"));

  const HeldUp held_up;
  const auto begin = CommClock::now();
  try {
    a->get("never", within(30ms));
    FAIL("got a value that nobody set");
  } catch (const CommError& e) {
    CHECK(e.kind() == CommErrorKind::timeout);
    CHECK_THAT(e.what(), Contains("'never': timed out"));
  }
  CHECK(CommClock::now() - begin >= 30ms);
  CHECK(CommClock::now() - begin - held_up.so_far() < 5s);

  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    b->set("w1", "", within(patience));
    b->set("w2", "", within(patience));
  });
  const std::vector<std::string> keys = {"x", "w1", "w2"};
  a->wait(keys, within(patience));
  later.join();
  CHECK(a->try_get("w2", within(patience)));

  std::atomic<int64_t> largest{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const auto own = open();
      for (int i = 0; i < 25; ++i) {
        const int64_t now = own->add("count", 1, within(patience));
        int64_t seen = largest;
        while (now > seen && !largest.compare_exchange_weak(seen, now)) {
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(largest == 100);
}

TEST_CASE("The TCP store keeps the rules", "[store]") {
  TcpFixture f;
  check_store([&] { return f.client(); });
}

TEST_CASE("The file store keeps the rules", "[store]") {
  const std::string directory = scratch_directory();
  check_store([&] { return make_file_store(directory + "/sub"); });
  std::filesystem::remove_all(directory);
}

TEST_CASE("The memory store keeps the rules", "[store]") {
  const auto table = make_memory_table();
  check_store([&] { return make_memory_store(table); });
}

TEST_CASE("A prefix keeps two groups apart", "[store]") {
  TcpFixture f;
  const auto store = f.client();
  const auto one = make_prefix_store(*store, "one"), two = make_prefix_store(*store, "two");
  one->set("k", "1", within(patience));
  CHECK(!two->try_get("k", within(patience)));
  CHECK(store->get("one/k", within(patience)) == "1");
  const std::vector<std::string> keys = {"k"};
  one->wait(keys, within(patience));
  CHECK(one->add("n", 2, within(patience)) == 2);
  CHECK(two->add("n", 3, within(patience)) == 3);
}

TEST_CASE("Clients may come before the server", "[store]") {
  const ReservedPort reserved;
  const uint16_t port = reserved.number();
  std::thread client([&] {
    make_tcp_store("127.0.0.1", port, "t", within(patience))->set("k", "v", within(patience));
  });
  std::this_thread::sleep_for(30ms);
  TcpStoreServerOptions options;
  options.token = "t";
  options.port = port;
  TcpStoreServer server(options);
  client.join();
  CHECK(make_tcp_store("127.0.0.1", port, "t", within(patience))->get("k", within(patience)) ==
        "v");
}

TEST_CASE("Nobody listens: peer_lost at the deadline", "[store]") {
  const Socket taken = listen_tcp("127.0.0.1", 0);
  const ReservedPort reserved;
  const HeldUp held_up;
  const auto begin = CommClock::now();
  try {
    make_tcp_store("127.0.0.1", reserved.number(), "t", within(50ms));
    FAIL("connected with nobody");
  } catch (const CommError& e) {
    CHECK(e.kind() == CommErrorKind::peer_lost);
    CHECK_THAT(e.what(), Contains("cannot connect: Connection refused"));
  }
  CHECK(CommClock::now() - begin - held_up.so_far() < 5s);
  // Somebody listens and never answers.
  CHECK_THROWS_WITH(make_tcp_store("127.0.0.1", local_port(taken), "t", within(50ms)),
                    Contains("no answer in time"));
}

TEST_CASE("A wrong token is refused on both sides", "[store]") {
  TcpFixture f;
  CHECK_THROWS_WITH(f.client("guess"), Contains("does not accept the job token"));
  CHECK(f.log.eventually_has("it has a different job token"));
  CHECK_THROWS_WITH(
      [] {
        TcpStoreServerOptions o;
        TcpStoreServer server(o);
      }(),
      Contains("needs a job token"));
}

TEST_CASE("A false server is found out", "[store]") {
  const Socket listener = listen_tcp("127.0.0.1", 0);
  std::string says =
      GENERATE(std::string("HTTP/1.1 400 Bad Request\r\n\r\n............."),
               std::string(store_magic) + std::string(challenge_bytes, 'c') + std::string(32, 'p'));
  std::thread server([&] {
    int fd = -1;
    while ((fd = accept(listener.fd(), nullptr, nullptr)) < 0) std::this_thread::sleep_for(1ms);
    const Socket s(fd);
    write_all(s, says, within(patience));
    closed_by_peer(s, within(patience));
  });
  CHECK_THROWS_WITH(
      make_tcp_store("127.0.0.1", local_port(listener), "secret", within(patience)),
      says[0] == 'H' ? Contains("is no rondo store") : Contains("does not know the job token"));
  server.join();
}

TEST_CASE("Strangers are dropped with a line, and keep nobody waiting", "[store]") {
  TcpFixture f;
  const auto member = f.client();
  const Socket silent = f.stranger();
  const Socket chatty = f.stranger();
  write_all(chatty, "GET / HTTP/1.1\r\n\r\n", within(patience));
  CHECK(closed_by_peer(chatty, within(patience)));
  CHECK(f.log.eventually_has("does not speak the store's language"));
  const Socket half = f.stranger();
  write_all(half, std::string(store_magic) + "some", within(patience));
  {
    const Socket third = f.stranger();
    const Socket fourth = f.stranger();  // one more than max_strangers
    CHECK(closed_by_peer(fourth, within(patience)));
    CHECK(f.log.eventually_has("3 of them not proved yet"));
  }
  CHECK(f.log.eventually_has("it left without proving the job token"));
  member->set("k", "v", within(patience));
  CHECK(member->get("k", within(patience)) == "v");
  const auto later = f.client();
  CHECK(later->get("k", within(patience)) == "v");
  for (const Socket* s : {&silent, &half}) CHECK(!closed_by_peer(*s, CommClock::now()));
}

TEST_CASE("Strangers have so much time and no more", "[store]") {
  TcpFixture f(100ms);
  const auto begin = CommClock::now();
  const Socket silent = f.stranger(), half = f.stranger();
  write_all(half, std::string(store_magic) + "some", within(patience));
  for (const Socket* s : {&silent, &half}) CHECK(closed_by_peer(*s, within(patience)));
  CHECK(CommClock::now() - begin >= 100ms);
  CHECK(f.log.eventually_has("did not prove the job token in time"));
  std::string greeting(store_greeting_bytes, '\0');
  CHECK(read_exactly(f.stranger(), greeting, within(patience)) == IoResult::done);
}

// A client that knows the token and then misbehaves.
Socket member(TcpFixture& f) {
  Socket s = f.stranger();
  std::string greeting(store_greeting_bytes, '\0');
  REQUIRE(read_exactly(s, greeting, within(patience)) == IoResult::done);
  const std::string ours(challenge_bytes, 'o');
  std::string answer = std::string(store_magic) + ours;
  answer +=
      bytes_of(store_proof(Side::client, "secret", greeting.substr(store_magic.size()), ours));
  REQUIRE(write_all(s, answer, within(patience)) == IoResult::done);
  std::string proof(sizeof(Digest), '\0');
  REQUIRE(read_exactly(s, proof, within(patience)) == IoResult::done);
  return s;
}

TEST_CASE("A member that sends nonsense is dropped", "[store]") {
  TcpFixture f;
  const Socket s = member(f);
  SECTION("too long") {
    write_all(s, std::string("\xff\xff\xff\x7f", 4), within(patience));
    CHECK(closed_by_peer(s, within(patience)));
    CHECK(f.log.eventually_has("2147483647 bytes, at most"));
  }
  SECTION("malformed") {
    write_all(s, framed("nonsense"), within(patience));
    CHECK(closed_by_peer(s, within(patience)));
    CHECK(f.log.eventually_has("operation 110"));
  }
  SECTION("never reading its replies") {
    f.client()->set("big", std::string(1 << 20, 'b'), within(patience));
    const std::string get = framed(encode(StoreRequest{StoreOp::get, 0, 0, {"big"}, ""}));
    for (int i = 0; i < 100; ++i) {
      if (write_all(s, get, within(1ms)) != IoResult::done) break;
    }
    CHECK(f.client()->get("big", within(patience)).size() == 1 << 20);
  }
  CHECK(!f.client()->try_get("k", within(patience)));
}

TEST_CASE("Requests sent ahead are all answered", "[store]") {
  TcpFixture f;
  const Socket s = member(f);
  std::string all = framed(encode(StoreRequest{StoreOp::get, 60'000, 0, {"late"}, ""}));
  for (int i = 0; i < 3; ++i) all += framed(encode(StoreRequest{StoreOp::add, 0, 1, {"n"}, ""}));
  write_all(s, all, within(patience));
  f.client()->set("late", "v", within(patience));
  std::string replies(4 * (4 + 1 + 8 + 4) + 1, '\0');
  REQUIRE(read_exactly(s, replies, within(patience)) == IoResult::done);
  CHECK(parse_store_reply(*take_frame(replies)).value == "v");
  for (int i = 1; i <= 3; ++i) CHECK(parse_store_reply(*take_frame(replies)).number == i);
}

TEST_CASE("The server's end is peer_lost, also for those who wait", "[store]") {
  auto f = std::make_unique<TcpFixture>();
  const auto store = f->client();
  std::thread end([&] {
    std::this_thread::sleep_for(30ms);
    f.reset();
  });
  try {
    store->get("never", within(patience));
    FAIL("got a value from nobody");
  } catch (const CommError& e) {
    CHECK(e.kind() == CommErrorKind::peer_lost);
    CHECK_THAT(e.what(), Contains("its server has ended"));
  }
  end.join();
  CHECK_THROWS_AS(store->set("k", "v", within(patience)), CommError);
}

TEST_CASE("A killed process leaves the file store usable", "[store]") {
  const std::string directory = scratch_directory();
  const auto store = make_file_store(directory);
  const pid_t child = fork();
  if (child == 0) {
    const auto own = make_file_store(directory);
    own->set("up", "", within(patience));
    for (;;) own->add("n", 1, within(patience));
  }
  store->get("up", within(patience));
  std::this_thread::sleep_for(20ms);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const int64_t n = store->add("n", 0, within(patience));
  CHECK(store->add("n", 1, within(patience)) == n + 1);
  std::filesystem::remove_all(directory);
}

TEST_CASE("Addresses that cannot be had are named", "[store]") {
  TcpStoreServerOptions o;
  o.token = "t";
  o.bind_address = "no.such.host.invalid";
  CHECK_THROWS_WITH(TcpStoreServer(o), Contains("'no.such.host.invalid' is not an address"));
  o.bind_address = "127.0.0.1";
  const Socket taken = listen_tcp("127.0.0.1", 0);
  o.port = local_port(taken);
  CHECK_THROWS_WITH(TcpStoreServer(o), Contains("cannot listen at 127.0.0.1:"));
}

}  // namespace
}  // namespace rondo
