#include "comm/shared/shared_transport.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>

#include "comm/group/process_group.h"
#include "comm/in_process/in_process.h"
#include "comm/shared/inbox.h"
#include "comm/shared/shared_channel.h"
#include "comm/shared/waiting.h"
#include "tests/catch.h"
#include "tests/comm/process_faults.h"
#include "tests/comm/processes.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using namespace shared_transport;
using namespace channels;
using Catch::Matchers::Contains;

// `stream_bytes` as small as it gets: every message of some size wraps around and waits for room.
// `grace`: long, unless a rank is stopped.
Stack sharing(size_t stream_bytes, CommClock::duration grace = 20s,
              FirstPeers first_peers = rondo::first_peers) {
  return {make_tcp_transport,
          [=](std::unique_ptr<Transport> base) {
            SharedTransportOptions o;
            o.required = true;
            o.first_peers = first_peers;
            o.stream_bytes = stream_bytes;
            o.timeout = 20s;
            o.grace = grace;
            return make_shared_transport(std::move(base), o);
          },
          first_peers};
}

TEST_CASE("The shared transport keeps the transport's promises", "[shared]") {
  check_transport_contract(
      [](int ranks) { return std::make_unique<SocketThreads>(ranks, sharing(size_t{1} << 20)); });
}

TEST_CASE("The shared transport keeps them through streams of a page", "[shared]") {
  check_transport_contract(
      [](int ranks) { return std::make_unique<SocketThreads>(ranks, sharing(4096)); });
}

TEST_CASE("It keeps them where some ranks share memory and others connect later", "[shared]") {
  check_transport_contract([](int ranks) {
    return std::make_unique<SocketThreads>(ranks, sharing(size_t{1} << 20, 20s, chain));
  });
}

TEST_CASE("Faults of processes that share memory", "[shared][fault]") {
  check_process_faults(sharing(size_t{1} << 20, SharedTransportOptions().grace));
}

TEST_CASE("All-reduces through shared memory: exact sums on every rank", "[shared]") {
  const size_t stream_bytes = GENERATE(4096u, 1u << 20);
  for (const int ranks : {2, 3, 4}) {
    SocketThreads world(ranks, sharing(stream_bytes));
    std::vector<std::vector<float>> data(static_cast<size_t>(ranks), std::vector<float>(300'007));
    world.each([&](size_t r) {
      const auto group = make_ring_group(world.transport(static_cast<int>(r)));
      for (size_t i = 0; i < data[r].size(); ++i) {
        data[r][i] = static_cast<float>((r + 1) * (i % 97));
      }
      const TensorView view(data[r].data(), DType::f32, {static_cast<int64_t>(data[r].size())});
      group->all_reduce(view, Reduction::sum).wait();
      group->barrier().wait();
    });
    const auto sum = static_cast<size_t>(ranks * (ranks + 1) / 2);
    for (const auto& d : data) {
      size_t wrong = 0;
      for (size_t i = 0; i < d.size(); ++i) wrong += d[i] != static_cast<float>(sum * (i % 97));
      CHECK(wrong == 0);
    }
  }
}

// The one of two threads that does not wait may take what the other one waits for, before the peer
// has come to ring.
TEST_CASE("A thread whose operation another one ends is woken", "[shared]") {
  const auto own = std::make_shared<const Inbox>(2, 4096);
  const auto others = std::make_shared<const Inbox>(2, 4096);
  InProcessWorld world(2);
  const auto waiting = std::make_shared<Waiting>(own);
  const Stream in = own->stream(1);
  const auto channel = std::make_shared<SharedChannel>(
      0, 1, MemoryEnds{in, others->stream(0), own, others}, waiting, world.transport(0), 1s);
  waiting->start({channel});
  std::vector<int> got(8), sent(8);
  const auto post = [&](Direction direction, std::vector<int>& data) {
    return channel->post(direction, 7, bytes_of(data).data(), 32, within(60s));
  };
  Work wanted = post(Direction::recv, got);
  std::thread sleeper([&] { wanted.wait(); });
  while (own->bell().leader != static_cast<uint32_t>(Leader::asleep)) std::this_thread::yield();
  const Frame frame{FrameKind::data, 0, 0, 32};
  const std::vector<int> message{1, 2, 3, 4, 5, 6, 7, 8};
  std::memcpy(in.room().data(), &frame, frame_bytes);
  in.wrote(frame_bytes);
  std::memcpy(in.room().data(), message.data(), 32);
  in.wrote(32);
  const auto begin = CommClock::now();
  const Work other = post(Direction::send, sent);
  sleeper.join();
  CHECK(CommClock::now() - begin < 30s);
  CHECK(got == message);
  channel->end({CommErrorKind::aborted, -1, "the test is over"});
  waiting->stop();
}

TEST_CASE("A rank that shares no memory is reached over the other transport", "[shared]") {
  std::atomic<int> next{0}, refused{-1};
  SocketThreads world(3, {make_tcp_transport, [&](std::unique_ptr<Transport> base) {
                            SharedTransportOptions o;
                            o.share = ++next != 1;
                            if (!o.share) refused = base->rank();
                            return make_shared_transport(std::move(base), o);
                          }});
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 3; ++b) {
      const bool both = a != b && a != refused && b != refused;
      CHECK(shares_memory_with(world.transport(a), b) == both);
      if (a == b) continue;
      std::vector<int> sent(10'000, 10 * a + b), got(10'000);
      Work recv = world.transport(b).recv(a, 1, bytes_of(got), within(test_patience));
      world.transport(a).send(b, 1, bytes_of(sent), within(test_patience)).wait();
      recv.wait();
      CHECK(got == sent);
    }
  }
}

TEST_CASE("A rank that must share memory and cannot is told which and why", "[shared]") {
  std::atomic<int> told{0};
  SocketThreads world(
      2, {make_tcp_transport, [&](std::unique_ptr<Transport> base) -> std::unique_ptr<Transport> {
            SharedTransportOptions o;
            const int rank = base->rank();
            o.share = rank == 1;
            o.required = rank == 1;
            try {
              return make_shared_transport(std::move(base), o);
            } catch (const InputError& e) {
              const std::string text = e.what();
              if (text == "rank 1 shares no memory with rank 0: it shares no memory") ++told;
              return nullptr;
            }
          }});
  CHECK(told == 1);
}

TEST_CASE("Only the memory that a card tells of is opened", "[shared]") {
  const Inbox own(2, 4096);
  CHECK_NOTHROW(Inbox(own.card()));
  const auto refusal = [&](auto change) -> std::string {
    Card card = own.card();
    change(card);
    try {
      const Inbox other(card);
    } catch (const Error& e) {
      return e.what();
    }
    return "opened";
  };
  CHECK_THAT(refusal([](Card& c) { c.secret[3] ^= 1; }), Contains("not the memory"));
  CHECK_THAT(refusal([](Card& c) { c.stream_bytes *= 2; }), Contains("not the memory"));
  CHECK_THAT(refusal([](Card& c) { c.place[0] ^= 1; }), Contains("another machine"));
  CHECK_THAT(refusal([](Card& c) { c.place[sizeof(c.place) - 1] = 'x'; }), Contains("another"));
  CHECK_THAT(refusal([](Card& c) { ++c.user; }), Contains("another user"));
  CHECK_THAT(refusal([](Card& c) { ++c.version; }), Contains("shares no memory"));
  CHECK_THAT(refusal([](Card& c) { c.file = 1 << 20; }), Contains("No such file"));
  const Socket null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  CHECK_THAT(refusal([&](Card& c) { c.file = null.fd(); }), Contains("not the memory"));
}

TEST_CASE("Under a limit on the size of files no memory is shared, and nothing dies", "[shared]") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit tight = before;
  tight.rlim_cur = 16 << 10;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  std::string text;
  try {
    const Inbox own(4, 4096);
  } catch (const Error& e) {
    text = e.what();
  }
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK_THAT(text, Contains("a limit on files (ulimit -f) of 16384 bytes"));
}

TEST_CASE("A stream's impossible positions are errors", "[shared]") {
  const Inbox own(2, 4096);
  const Stream stream = own.stream(1);
  CHECK(stream.empty());
  CHECK(stream.room().size() == 4096);
  stream.wrote(4064);
  CHECK(stream.arrived().size() == 4064);
  stream.took(4064);
  stream.wrote(32);
  CHECK(stream.room().size() == 4064);  // from the beginning again
  stream.head().written = 1 << 20;
  CHECK_THROWS_AS(stream.arrived(), Error);
  stream.head().read = (1 << 20) + 1;
  CHECK_THROWS_AS(stream.room(), Error);
}

}  // namespace
}  // namespace rondo
