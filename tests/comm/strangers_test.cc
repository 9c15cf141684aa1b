// Faults of processes over our TCP, and strangers at the ports at which real processes wait for
// each other.
#include <poll.h>
#include <sys/socket.h>

#include "comm/group/process_group.h"
#include "comm/tcp/handshake.h"
#include "comm/tcp/meeting.h"
#include "tests/catch.h"
#include "tests/comm/process_faults.h"
#include "tests/comm/processes.h"
#include "tests/comm/time_limits.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using tcp_transport::answer_bytes, tcp_transport::encode_answer, tcp_transport::encode_greeting;
using tcp_transport::greeting_bytes, tcp_transport::handshake_magic,
    tcp_transport::handshake_timeout;
using tcp_transport::Job, tcp_transport::nonce_bytes, tcp_transport::parse_greeting;

TEST_CASE("Faults of processes over TCP", "[tcp][fault]") { check_process_faults({}); }

TEST_CASE("Faults of processes that are connected when they need it", "[tcp][fault]") {
  check_process_faults({.first_peers = chain});
}

// Where rank 0 listens, from the store that ranks meet in.
class Door {
 public:
  explicit Door(Store& store) {
    const auto prefixed = make_prefix_store(store, TcpOptions().rendezvous_id);
    const std::string place = prefixed->get("tcp-0", within(20s));
    const size_t space = place.find(' ');
    REQUIRE(space != std::string::npos);
    port_ = static_cast<uint16_t>(std::stoi(place.substr(0, space)));
    host_ = place.substr(space + 1);
  }
  // Empty when nobody listens.
  Socket knock() const {
    std::string why;
    return connect_tcp(host_, port_, within(20s), why);
  }
  // Connects, hears the greeting, says this.
  Socket say(const std::string& bytes) const {
    Socket s = knock();
    REQUIRE(s);
    write_all(s, bytes, within(20s));
    return s;
  }

 private:
  std::string host_;
  uint16_t port_ = 0;
};

// An answer to the right challenge by somebody who does not know the token.
Socket impostor(const Door& door, int from, int to) {
  Socket s = door.knock();
  REQUIRE(s);
  std::string greeting(greeting_bytes, '\0');
  REQUIRE(read_exactly(s, greeting, within(20s)) == IoResult::done);
  const Job job{"guess", TcpOptions().rendezvous_id, 2};
  write_all(s, encode_answer(job, from, to, parse_greeting(greeting), random_bytes(nonce_bytes)),
            within(20s));
  return s;
}

TEST_CASE("Strangers at the port neither end nor delay a job of two ranks", "[tcp][fault]") {
  const Meeting meeting;
  const auto store = make_file_store(meeting.directory);
  Processes p(2, [&](int rank, const auto& say) {
    const auto own_store = make_file_store(meeting.directory);
    TcpOptions o = rank_options(rank, 2, *own_store);
    o.log = [&](const std::string& line) { say("log " + line); };
    if (rank == 1) own_store->get("go", within(20s));
    const auto transport = make_tcp_transport(o);
    say("joined");
    own_store->get("reduce", within(20s));
    const auto group = make_ring_group(*transport);
    for (int i = 0; i < 3; ++i) {
      std::vector<float> data(100'000, static_cast<float>(rank + 1));
      group->all_reduce(TensorView(data.data(), DType::f32, {100'000}), Reduction::sum, within(20s))
          .wait();
      for (const float v : data) {
        if (v != 3) throw Error("a wrong sum");
      }
    }
    group->barrier(within(20s)).wait();
  });
  const Door door(*store);
  std::vector<Socket> stay;
  stay.push_back(door.knock());  // says nothing
  stay.push_back(door.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  stay.push_back(door.say(std::string(1 << 20, '\xff')));
  stay.push_back(door.say(std::string(handshake_magic)));  // and no more
  std::string lengths(handshake_magic);
  lengths += std::string(8, '\xff') + std::string(100, '\0');
  stay.push_back(door.say(lengths));
  for (const int from : {1, 0}) stay.push_back(impostor(door, from, 0));
  for (int i = 0; i < 3; ++i) door.say("bye");  // leaves at once
  for (int i = 0; i < 100; ++i) stay.push_back(door.knock());
  CHECK_THAT(p.line_starting(0, "log"), Contains("rank 0: dropped 127.0.0.1:"));
  const HeldUp held_up;
  const auto begin = CommClock::now();
  store->set("go", "1", within(20s));
  p.line_starting(0, "joined");
  p.line_starting(1, "joined");
  // Nobody waited for a stranger's time to be up (some of which had passed before).
  CHECK(CommClock::now() - begin - held_up.so_far() < handshake_timeout / 2);
  // From here on there is no port at all.
  CHECK_FALSE(door.knock());
  store->set("reduce", "1", within(20s));
  for (const int r : {0, 1}) CHECK(p.line_starting(r, "done") == "done");
}

// What ranks 0 and 1 say, of whom rank 1 has another token, and rank 0 waits in vain for so long
// from when the other one comes.
std::vector<std::string> with_another_token(CommClock::duration patience) {
  const Meeting meeting;
  Processes p(2, [&](int rank, const auto&) {
    const auto store = make_file_store(meeting.directory);
    const auto own_turn = make_prefix_store(*store, "test");
    TcpOptions o = rank_options(rank, 2, *store);
    o.log = [](const std::string&) {};
    if (rank == 1) {
      o.token = "guess";
      own_turn->set("knocks", "", within(20s));
    } else {
      own_turn->get("knocks", within(20s));
      o.timeout = patience;
    }
    make_tcp_transport(o);
  });
  return {p.line_starting(0, "threw"), p.line_starting(1, "threw")};
}

TEST_CASE("A rank with another token is refused by its name, and told so", "[tcp]") {
  // Longer where a busy machine holds up rank 1 until rank 0 has gone.
  std::vector<std::string> said;
  for (const auto patience : {1s, 3s, 9s}) {
    said = with_another_token(patience);
    if (said[0].find("dropped") != std::string::npos) break;
  }
  CHECK_THAT(said[0], Contains("rank 0: rendezvous of 2 ranks: timed out without rank 1; dropped "
                               "127.0.0.1:") &&
                          Contains("it does not prove the job token"));
  CHECK_THAT(said[1], Contains("rank 1: rendezvous with rank 0: 127.0.0.1:") &&
                          Contains(" does not accept the job token"));
}

TEST_CASE("A listener that does not know the token is refused as well", "[tcp]") {
  const Meeting meeting;
  const auto store = make_file_store(meeting.directory);
  const Socket listener = listen_tcp("127.0.0.1", 0);
  const auto prefixed = make_prefix_store(*store, TcpOptions().rendezvous_id);
  prefixed->set("tcp-0", str(local_port(listener), " 127.0.0.1"), within(20s));
  Processes p(1, [&](int, const auto&) {
    const auto own_store = make_file_store(meeting.directory);
    make_tcp_transport(rank_options(1, 2, *own_store));
  });
  pollfd polled{listener.fd(), POLLIN, 0};
  REQUIRE(poll(&polled, 1, 20'000) == 1);
  const Socket s(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  REQUIRE(s);
  write_all(s, encode_greeting(std::string(nonce_bytes, 'x')), within(20s));
  std::string answer(answer_bytes, '\0');
  REQUIRE(read_exactly(s, answer, within(20s)) == IoResult::done);
  write_all(s, std::string(sizeof(Digest), 'y'), within(20s));
  CHECK_THAT(p.line_starting(0, "threw"), Contains(" does not prove the job token"));
}

}  // namespace
}  // namespace rondo
