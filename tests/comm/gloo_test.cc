#include <atomic>

#include "comm/gloo/gloo_transport.h"
#include "comm/group/collectives.h"
#include "comm/group/process_group.h"
#include "tests/catch.h"
#include "tests/comm/decorators.h"
#include "tests/comm/process_faults.h"
#include "tests/comm/processes.h"
#include "tests/comm/sums.h"
#include "tests/comm/time_limits.h"
#include "tests/few_threads.h"

// Gloo does not free the list of interfaces when the one it looks for is not there.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:gloo::transport::tcp::CreateDeviceAttr";
}

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TEST_CASE("Gloo keeps the transport's promises", "[gloo]") {
  check_transport_contract(
      [](int ranks) { return std::make_unique<SocketThreads>(ranks, Stack{make_gloo_transport}); });
}

TEST_CASE("A rank that cannot start its threads says so, and the others hear of it", "[gloo]") {
  const Meeting meeting;
  Processes ranks(4, [&](int rank, const Processes::Say&) {
    if (rank == 3) test::limit_threads();  // to fewer than two per peer
    const auto transport = join(meeting, rank, 4, {make_gloo_transport});
    transport->recv(3, message_tag(0, 1), {}, within(10min)).wait();
  });
  CHECK_THAT(ranks.line(3), Catch::Matchers::Matches(
                                "threw rank 3: a thread that serves rank [012] cannot be started: "
                                "Resource temporarily unavailable; .*"));
  for (const int rank : {0, 1, 2}) CHECK_THAT(ranks.line(rank), Contains("threw peer lost: "));
}

TEST_CASE("A world of one rank needs nobody", "[gloo]") {
  GlooOptions o;
  const auto transport = make_gloo_transport(o);
  CHECK(transport->world_size() == 1);
  transport->abort("nobody hears it");
}

TEST_CASE("All-reduces over Gloo: exact sums and, of ours, exact bytes on every rank", "[gloo]") {
  for (const int ranks : {2, 3, 4}) {
    SocketThreads world(ranks, {make_gloo_transport});
    for (const int which : {0, 1, 2}) {
      std::vector<std::vector<float>> data(static_cast<size_t>(ranks), std::vector<float>(300'007));
      std::atomic<int> gloos{0};
      std::vector<size_t> reported(static_cast<size_t>(ranks)), sent(reported);
      world.each([&](size_t r) {
        Recorder transport(world.transport(static_cast<int>(r)));
        GroupOptions o;
        o.id = static_cast<uint16_t>(which);
        if (which > 0) {
          o.all_reduce =
              [&, sum = gloo_all_reduce(world.transport(static_cast<int>(r)),
                                        which == 1 ? GlooAlgorithm::ring : GlooAlgorithm::bcube)](
                  const TensorView& d, uint32_t number, Deadline deadline) {
                ++gloos;
                sum(d, number, deadline);
              };
        }
        const auto group = make_ring_group(transport, o);
        for (size_t i = 0; i < data[r].size(); ++i) {
          data[r][i] = static_cast<float>((r + 1) * (i % 97));
        }
        const TensorView view(data[r].data(), DType::f32, {static_cast<int64_t>(data[r].size())});
        Work work = group->all_reduce(view, Reduction::sum);
        work.wait();
        reported[r] = work.bytes();
        sent[r] = transport.sent().bytes;
        group->barrier().wait();
      });
      CHECK(gloos == (which == 0 ? 0 : ranks));
      for (int r = 0; r < ranks; ++r) {  // Gloo's own do not say
        const auto at = static_cast<size_t>(r);
        CHECK(reported[at] == (which == 0 ? promised_bytes(r, ranks, 300'007, sizeof(float)) : 0));
        if (which == 0) CHECK(sent[at] == reported[at]);
      }
      const auto sum = static_cast<size_t>(ranks * (ranks + 1) / 2);
      for (const auto& d : data) {
        size_t wrong = 0;
        for (size_t i = 0; i < d.size(); ++i) wrong += d[i] != static_cast<float>(sum * (i % 97));
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("Gloo's all-reduce that waits in vain is a timeout and ends the transport", "[gloo]") {
  SocketThreads world(2, {make_gloo_transport});
  std::vector<double> data(1000);
  const TensorView view(data.data(), DType::f64, {1000});
  const auto reduce = gloo_all_reduce(world.transport(0), GlooAlgorithm::ring);
  try {
    reduce(view, 1, within(50ms));
    FAIL("a sum of one rank");
  } catch (const CommError& e) {
    CHECK(e.kind() == CommErrorKind::timeout);
    CHECK_THAT(e.what(), Contains("rank 0: Gloo's all-reduce of 1000 f64: "));
  }
  CHECK_THROWS_AS(reduce(view, 2, within(1s)), CommError);
  std::vector<int> memory(1);
  Work later = world.transport(0).recv(1, 0, bytes_of(memory), within(20s));
  comm_error_of(later);
}

TEST_CASE("Addresses that cannot be had are named", "[gloo]") {
  const Meeting meeting;
  const auto store = make_file_store(meeting.directory);
  GlooOptions o = rank_options(0, 2, *store);
  o.interface = "nosuchif0";
  CHECK_THROWS_AS(make_gloo_transport(o), InputError);
  CHECK_THROWS_WITH(make_gloo_transport(o), Contains("rank 0 cannot listen at 'nosuchif0'"));
}

TEST_CASE("Ranks that have addresses of two families meet by one that all have", "[gloo]") {
  const auto run = [](const std::vector<std::string>& first,
                      const std::vector<std::string>& second) {
    const Meeting meeting;
    std::string failures[2];
    const auto rank = [&](int r) {
      const auto store = make_file_store(meeting.directory);
      GlooOptions o = rank_options(r, 2, *store);
      const std::vector<std::string>& own = r == 0 ? first : second;
      o.bind_address = own.front();
      o.other_addresses.assign(own.begin() + 1, own.end());
      try {
        make_gloo_transport(o);
      } catch (const Error& e) {
        failures[r] = e.what();
      }
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
    return failures[0] + failures[1];
  };
  CHECK(run({"127.0.0.1", "::1"}, {"127.0.0.1"}).empty());
  CHECK_THAT(run({"127.0.0.1"}, {"::1"}), Contains("rank 0 at 127.0.0.1, rank 1 at ::1"));
  if (listens_at("::1")) CHECK(run({"127.0.0.1", "::1"}, {"::1"}).empty());
}

TEST_CASE("Faults of processes over Gloo", "[gloo][fault]") {
  check_process_faults({make_gloo_transport});
}

TEST_CASE("A rank that never comes is a timeout of the rendezvous", "[gloo][fault]") {
  const Meeting meeting;
  const auto store = make_file_store(meeting.directory);
  GlooOptions o = rank_options(0, 2, *store);
  o.timeout = 100ms;
  const HeldUp held_up;
  const auto begin = CommClock::now();
  try {
    make_gloo_transport(o);
    FAIL("met nobody");
  } catch (const CommError& e) {
    CHECK(e.kind() == CommErrorKind::timeout);
    CHECK_THAT(e.what(), Contains("rank 0: rendezvous of 2 ranks: store in"));
  }
  CHECK(CommClock::now() - begin - held_up.so_far() < 5s);
}

TEST_CASE("A rank killed during the rendezvous ends it", "[gloo][fault]") {
  const Meeting meeting;
  Processes p(2, [&](int rank, const auto& say) {
    const auto store = make_file_store(meeting.directory);
    const GlooOptions o = rank_options(rank, 2, *store);
    if (rank == 1) {
      // Leaves an address behind at which nobody answers.
      const auto other = make_prefix_store(*store, o.rendezvous_id);
      other->set("addresses-1", "127.0.0.1", within(20s));
      other->set("nonce-1", "x", within(20s));
      other->set("1", other->get("0", within(20s)), within(20s));
      return;
    }
    say("trying");
    make_gloo_transport(o);
  });
  CHECK(p.line(1) == "done");
  // Gloo connects at once, or, in newer versions, with the first letter.
  CHECK_THAT(p.line_starting(0, "threw"), Contains("rank 0: rendezvous "));
}

TEST_CASE("A rank with another token is refused", "[gloo]") {
  const Meeting meeting;
  Processes p(2, [&](int rank, const auto&) {
    const auto store = make_file_store(meeting.directory);
    GlooOptions o = rank_options(rank, 2, *store);
    if (rank == 1) o.token = "guess";
    make_gloo_transport(o);
  });
  CHECK_THAT(p.line_starting(0, "threw"),
             Contains("rank 1 is lost: it does not prove the job token"));
  CHECK_THAT(p.line_starting(1, "threw"), Contains("rank 0 is lost: "));
}

}  // namespace
}  // namespace rondo
