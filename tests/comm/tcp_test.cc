#include "comm/tcp/tcp_transport.h"

#include <atomic>

#include "comm/channels/frame.h"
#include "comm/group/collectives.h"
#include "comm/group/process_group.h"
#include "comm/store/memory_store.h"
#include "comm/tcp/handshake.h"
#include "comm/tcp/meeting.h"
#include "tests/catch.h"
#include "tests/comm/decorators.h"
#include "tests/comm/socket_ranks.h"
#include "tests/comm/sums.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using namespace tcp_transport;
using Catch::Matchers::Contains;

TEST_CASE("TCP keeps the transport's promises", "[tcp]") {
  check_transport_contract([](int ranks) { return std::make_unique<SocketThreads>(ranks); });
}

TEST_CASE("TCP keeps them where ranks are connected when they first exchange a message",
          "[slow][tcp]") {
  check_transport_contract([](int ranks) {
    return std::make_unique<SocketThreads>(ranks, Stack{.first_peers = chain});
  });
}

TEST_CASE("First peers are each other's, and word reaches everybody in a few hops", "[tcp]") {
  for (const int n : {2, 3, 64, 65, 96, 100, 127, 128, 1000, 1024}) {
    std::vector<int> hops(static_cast<size_t>(n), -1), next{0};
    hops[0] = 0;
    for (int hop = 1; !next.empty(); ++hop) {
      std::vector<int> reached;
      for (const int a : next) {
        const std::vector<int> peers = first_peers(a, n);
        CHECK(std::is_sorted(peers.begin(), peers.end()));
        for (const int b : peers) {
          const std::vector<int> back = first_peers(b, n);
          CHECK(std::count(back.begin(), back.end(), a) == 1);
          int& seen = hops[static_cast<size_t>(b)];
          if (seen >= 0) continue;
          seen = hop;
          reached.push_back(b);
        }
      }
      next = reached;
    }
    CHECK(std::count(hops.begin(), hops.end(), -1) == 0);
    CHECK(*std::max_element(hops.begin(), hops.end()) <= (n <= whole_mesh ? 1 : 5));
    CHECK(first_peers(0, n).size() <= (n <= whole_mesh ? 63u : 20u));
    CHECK(is_whole_mesh(first_peers, n) == (n <= whole_mesh));
  }
}

TEST_CASE("A world of one rank over TCP needs nobody", "[tcp]") {
  const auto transport = make_tcp_transport({});
  CHECK(transport->world_size() == 1);
  transport->abort("nobody hears it");
}

TEST_CASE("All-reduces over TCP: exact sums and exact bytes on every rank", "[tcp]") {
  for (const int ranks : {2, 3, 4}) {
    SocketThreads world(ranks);
    constexpr int64_t n = 1'000'003;  // more than sockets hold
    std::vector<std::vector<float>> data(static_cast<size_t>(ranks), std::vector<float>(n));
    std::vector<size_t> reported(static_cast<size_t>(ranks)), sent(reported);
    world.each([&](size_t r) {
      Recorder transport(world.transport(static_cast<int>(r)));
      // The recorder stores and sums; TCP itself adds on arrival.
      const bool adds = ranks != 3;
      const auto group = make_ring_group(adds ? world.transport(static_cast<int>(r)) : transport);
      for (size_t i = 0; i < n; ++i) data[r][i] = static_cast<float>((r + 1) * (i % 97));
      Work work = group->all_reduce(TensorView(data[r].data(), DType::f32, {n}), Reduction::sum);
      work.wait();
      reported[r] = work.bytes();
      sent[r] = adds ? reported[r] : transport.sent().bytes;
      group->barrier().wait();
    });
    const auto sum = static_cast<size_t>(ranks * (ranks + 1) / 2);
    for (size_t r = 0; r < data.size(); ++r) {
      CHECK(reported[r] == promised_bytes(static_cast<int>(r), ranks, n, sizeof(float)));
      CHECK(sent[r] == reported[r]);
      size_t wrong = 0;
      for (size_t i = 0; i < n; ++i) wrong += data[r][i] != static_cast<float>(sum * (i % 97));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("Addresses for TCP that cannot be had are named", "[tcp]") {
  const auto store = make_memory_store(make_memory_table());
  TcpOptions o = rank_options(0, 2, *store);
  o.interface = "nosuchif0";
  CHECK_THROWS_AS(make_tcp_transport(o), InputError);
  CHECK_THROWS_WITH(make_tcp_transport(o), Contains("rank 0 cannot listen at 'nosuchif0'"));
  o.interface.clear();
  o.bind_address = "192.0.2.1";  // for documentation: nobody's
  CHECK_THROWS_WITH(make_tcp_transport(o), Contains("rank 0 cannot listen at '192.0.2.1'"));
}

TEST_CASE("Ranks meet at the address of an interface", "[tcp]") {
  const auto table = make_memory_table();
  std::atomic<int> met{0};
  const auto run = [&](int rank) {
    const auto store = make_memory_store(table);
    TcpOptions o = rank_options(rank, 2, *store);
    o.interface = "lo";
    const auto transport = make_tcp_transport(o);
    if (transport->world_size() == 2) ++met;
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  CHECK(met == 2);
}

TEST_CASE("A rank that never comes is named when the time is up", "[tcp]") {
  const auto store = make_memory_store(make_memory_table());
  TcpOptions o = rank_options(1, 3, *store);
  o.timeout = 100ms;
  const auto error = [&] {
    try {
      make_tcp_transport(o);
    } catch (const CommError& e) {
      return str(name_of(e.kind()), ": ", e.what());
    }
    return std::string("met somebody");
  };
  CHECK_THAT(error(), Contains("timeout: rank 1: rendezvous of 3 ranks: "));
  // Nobody answers at this address.
  make_prefix_store(*store, o.rendezvous_id)->set("tcp-0", "1 127.0.0.1", within(1s));
  CHECK_THAT(error(), Contains("peer lost: rank 1: rendezvous with rank 0: 127.0.0.1:1: "));
  o.rank = 0;
  CHECK_THAT(error(),
             Contains("timeout: rank 0: rendezvous of 3 ranks: timed out without rank 1, 2"));
}

TEST_CASE("Of many ranks that do not come ten are named, and the others counted", "[tcp]") {
  const auto error = [](const std::vector<int>& here) {
    const auto store = make_memory_store(make_memory_table());
    TcpOptions o = rank_options(0, whole_mesh + 1, *store);
    o.timeout = 100ms;
    const auto place = make_prefix_store(*store, o.rendezvous_id);
    for (const int r : here) place->set(str("tcp-", r), "1 127.0.0.1", within(1s));
    try {
      make_tcp_transport(o);
    } catch (const CommError& e) {
      CHECK(e.kind() == CommErrorKind::timeout);
      return str(e.peer(), ": ", e.what());
    }
    return std::string("met somebody");
  };
  std::vector<int> here;
  CHECK_THAT(error(here), Catch::Equals("1: rank 0: rendezvous of 65 ranks: timed out without rank "
                                        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 54 more"));
  for (int r = 1; r < whole_mesh; ++r) {
    if (r % 6 != 0) here.push_back(r);
  }
  CHECK_THAT(error(here), Catch::EndsWith("6, 12, 18, 24, 30, 36, 42, 48, 54, 60 and 1 more"));
  here.push_back(whole_mesh);
  CHECK_THAT(error(here), Catch::EndsWith("without rank 6, 12, 18, 24, 30, 36, 42, 48, 54, 60"));
}

// A rank of two that has met rank 0 and is then used by hand.
struct ByHand {
  ByHand() {
    const auto table = make_memory_table();
    std::thread other([&] {
      const auto store = make_memory_store(table);
      TcpOptions o = rank_options(1, 2, *store);
      const auto prefixed = make_prefix_store(*store, o.rendezvous_id);
      o.store = prefixed.get();
      socket = std::move(tcp_transport::Meeting(o, within(20s)).meet().at(0).socket);
    });
    const auto store = make_memory_store(table);
    zero = make_tcp_transport(rank_options(0, 2, *store));
    other.join();
  }
  void write(std::string_view bytes) const {
    REQUIRE(write_all(socket, bytes, within(20s)) == IoResult::done);
  }
  void write(const channels::Frame& frame) const {
    write({reinterpret_cast<const char*>(&frame), sizeof frame});
  }

  std::unique_ptr<Transport> zero;
  Socket socket;
};

TEST_CASE("A rank that sends what no rank sends is lost, and nothing else happens", "[tcp]") {
  using channels::Frame;
  using channels::FrameKind;
  const int which = GENERATE(range(0, 6));
  ByHand peer;
  std::vector<int> got(1000, -1);
  Work work = peer.zero->recv(1, 7, bytes_of(got), within(test_patience));
  std::string expected;
  switch (which) {
    case 0:
      peer.write(std::string(5000, 'x'));
      expected = "a frame of kind";
      break;
    case 1:  // half a frame
      peer.write(std::string(17, '\1'));
      peer.socket = Socket();
      expected = "onnection";  // is closed, or reset: it had not read what it was told
      break;
    case 2:
      peer.write(Frame{FrameKind::data, 0, 0, uint64_t{1} << 62});
      expected = "bytes";
      break;
    case 3:  // not the size that was announced
      peer.write(Frame{FrameKind::data, 0, 0, 4001});
      expected = "4001 bytes for a recv of 4000";
      break;
    case 4:
      peer.write(Frame{FrameKind::abort, 1, 0, 1 << 20});
      expected = "a frame of kind 6";
      break;
    default:  // half a message
      peer.write(Frame{FrameKind::data, 0, 0, 4000});
      peer.write(std::string(2000, '\0'));
      peer.socket = Socket();
      expected = "onnection";
  }
  const CommError e = comm_error_of(work);
  CHECK(e.kind() == CommErrorKind::peer_lost);
  CHECK(e.peer() == 1);
  CHECK_THAT(e.what(), Contains("rank 1 is lost: ") && Contains(expected));
  if (which != 5) CHECK(got == std::vector<int>(1000, -1));
}

TEST_CASE("A reason for an abort that names nobody blames who sent it", "[tcp]") {
  ByHand peer;
  std::vector<int> got(10);
  Work work = peer.zero->recv(1, 7, bytes_of(got), within(test_patience));
  peer.write(channels::Frame{channels::FrameKind::abort, 77, 0, 4});
  peer.write("fire");
  const CommError e = comm_error_of(work);
  CHECK(e.kind() == CommErrorKind::aborted);
  CHECK_THAT(e.what(), Contains("rank 1 aborted: fire"));
}

TEST_CASE("What ranks say before they know each other", "[tcp]") {
  const Job job{"secret", "attempt-1", 4};
  const std::string challenge(nonce_bytes, 'c'), own(nonce_bytes, 'o');
  CHECK(parse_greeting(encode_greeting(challenge)) == challenge);
  CHECK_THROWS_AS(parse_greeting("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"), InputError);
  const std::string bytes = encode_answer(job, 3, 1, challenge, own);
  for (size_t n = 0; n < bytes.size(); ++n) CHECK(!parse_answer(bytes.substr(0, n), 4));
  const auto answer = parse_answer(bytes, 4);
  REQUIRE(answer);
  CHECK(answer->from == 3);
  CHECK(answer->to == 1);
  CHECK(proves(job, *answer, challenge));
  CHECK_FALSE(proves(job, *answer, own));
  CHECK_FALSE(proves({"guess", "attempt-1", 4}, *answer, challenge));
  CHECK_FALSE(proves({"secret", "attempt-2", 4}, *answer, challenge));
  CHECK_FALSE(equal_digests(answer->proof, listener_proof(job, *answer, challenge)));
  for (size_t at = handshake_magic.size(); at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    const auto other = [&]() -> std::optional<Answer> {
      try {
        return parse_answer(changed, 4);
      } catch (const InputError&) {
        return std::nullopt;
      }
    }();
    if (other) CHECK_FALSE(proves(job, *other, challenge));
  }
  CHECK_THROWS_WITH(parse_answer("GET / HTTP/1.1", 4), Contains("does not speak"));
  CHECK_THROWS_WITH(parse_answer(bytes, 3), Contains("it says that it is rank 3"));
  CHECK_THROWS_AS(parse_answer(bytes + "x", 4), InputError);
}

}  // namespace
}  // namespace rondo
