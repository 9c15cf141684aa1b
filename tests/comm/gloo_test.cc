#include "comm/gloo/gloo_transport.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <thread>

#include "comm/collectives.h"
#include "comm/decorators.h"
#include "comm/process_group.h"
#include "comm/tcp_store.h"
#include "tests/comm/processes.h"
#include "tests/comm/transport_contract.h"

// Gloo does not free the list of interfaces when the one it looks for is not there.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:gloo::transport::tcp::CreateDeviceAttr";
}

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TcpStoreServerOptions store_options() {
  TcpStoreServerOptions o;
  o.token = "secret";
  o.log = [](const std::string&) {};
  return o;
}

GlooOptions options(int rank, int ranks, Store& store) {
  GlooOptions o;
  o.rank = rank;
  o.world_size = ranks;
  o.store = &store;
  o.token = "secret";
  o.timeout = 20s;
  return o;
}

// Ranks as threads of one process, each with a Gloo context of its own.
class GlooThreads final : public TestWorld {
 public:
  explicit GlooThreads(int ranks) : transports_(static_cast<size_t>(ranks)) {
    TcpStoreServer server(store_options());
    each([&](size_t r) {
      const auto store = make_tcp_store("127.0.0.1", server.port(), "secret", within(20s));
      transports_[r] = make_gloo_transport(options(static_cast<int>(r), ranks, *store));
    });
  }
  ~GlooThreads() override {
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

TEST_CASE("Gloo keeps the transport's promises", "[gloo]") {
  check_transport_contract([](int ranks) { return std::make_unique<GlooThreads>(ranks); });
}

TEST_CASE("A world of one rank needs nobody", "[gloo]") {
  GlooOptions o;
  const auto transport = make_gloo_transport(o);
  CHECK(transport->world_size() == 1);
  transport->abort("nobody hears it");
}

// Of a ring's all-reduce: every chunk twice, but the two after this rank's own once.
size_t ring_bytes(int rank, int ranks, int64_t n) {
  int64_t elements = 2 * n;
  for (int once : {rank + 1, rank + 2}) elements -= chunk_range(n, ranks, once % ranks).size();
  return static_cast<size_t>(elements) * sizeof(float);
}

TEST_CASE("All-reduces over Gloo: exact sums and, of ours, exact bytes on every rank", "[gloo]") {
  for (const int ranks : {2, 3, 4}) {
    GlooThreads world(ranks);
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
        CHECK(reported[at] == (which == 0 ? ring_bytes(r, ranks, 300'007) : 0));
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
  GlooThreads world(2);
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
  const auto store = make_file_store(std::filesystem::temp_directory_path() / "rondo-gloo-unused");
  GlooOptions o = options(0, 2, *store);
  o.interface = "nosuchif0";
  CHECK_THROWS_AS(make_gloo_transport(o), InputError);
  CHECK_THROWS_WITH(make_gloo_transport(o), Contains("rank 0 cannot listen at 'nosuchif0'"));
  std::filesystem::remove_all(std::filesystem::temp_directory_path() / "rondo-gloo-unused");
}

// A directory that ranks meet in, so that the parent needs no thread for a server before it forks.
struct Meeting {
  Meeting() { REQUIRE(mkdtemp(directory.data()) != nullptr); }
  ~Meeting() { std::filesystem::remove_all(directory); }
  std::string directory = (std::filesystem::temp_directory_path() / "rondo-gloo-XXXXXX").string();
};

std::unique_ptr<Transport> join(const Meeting& meeting, int rank, int ranks) {
  const auto store = make_file_store(meeting.directory);
  return make_gloo_transport(options(rank, ranks, *store));
}

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(CommClock::now().time_since_epoch())
      .count();
}

// All-reduces without end; says "running" after the third, and what ended it, and when.
void reduce_forever(const Meeting& meeting, int rank, int ranks, CommClock::duration timeout,
                    const Processes::Say& say) {
  const auto transport = join(meeting, rank, ranks);
  const auto group = make_ring_group(*transport);
  std::vector<float> data(1 << 20, 1.0f);
  try {
    for (int i = 0;; ++i) {
      const auto limit = within(i < 3 ? CommClock::duration(30s) : timeout);
      group
          ->all_reduce(TensorView(data.data(), DType::f32, {static_cast<int64_t>(data.size())}),
                       Reduction::sum, limit)
          .wait();
      if (i == 2) say("running");
    }
  } catch (const CommError& e) {
    say(str("at ", now_us()));
    throw;
  }
}

double seconds_until(const std::string& at_line, int64_t begin) {
  return static_cast<double>(std::stoll(at_line.substr(3)) - begin) * 1e-6;
}

TEST_CASE("A rank killed in the middle of an all-reduce is named by all others", "[gloo][fault]") {
  const Meeting meeting;
  constexpr int ranks = 3;
  Processes p(ranks,
              [&](int rank, const auto& say) { reduce_forever(meeting, rank, ranks, 60s, say); });
  for (int r = 0; r < ranks; ++r) p.line_starting(r, "running");
  const int64_t begin = now_us();
  p.signal(1, SIGKILL);
  for (const int r : {0, 2}) {
    const double after = seconds_until(p.line_starting(r, "at "), begin);
    std::cout << "rank " << r << " heard of a killed rank after " << 1e3 * after << " ms\n";
    CHECK(after < 2);
    const std::string error = p.line_starting(r, "threw");
    CHECK_THAT(error, Contains("all_reduce of 1048576 f32"));
    CHECK_THAT(error, Contains("rank 1 is lost: ") || Contains("rank 1 aborted"));
  }
}

TEST_CASE("A rank stopped in the middle of an all-reduce is a timeout", "[gloo][fault]") {
  const Meeting meeting;
  constexpr int ranks = 3;
  Processes p(ranks,
              [&](int rank, const auto& say) { reduce_forever(meeting, rank, ranks, 1s, say); });
  for (int r = 0; r < ranks; ++r) p.line_starting(r, "running");
  const int64_t begin = now_us();
  p.signal(1, SIGSTOP);
  std::string errors;
  for (const int r : {0, 2}) {
    const double after = seconds_until(p.line_starting(r, "at "), begin);
    std::cout << "rank " << r << " gave up on a stopped rank after " << after << " s\n";
    CHECK(after < 5);
    errors += p.line_starting(r, "threw") + "\n";
  }
  CHECK_THAT(errors, Contains("timed out after"));
  // Its neighbours name it; others may only know whom they were waiting for.
  CHECK_THAT(errors, Contains("from rank 1 (") || Contains("to rank 1 ("));
  p.signal(1, SIGCONT);
  CHECK_THAT(p.line_starting(1, "threw"), Contains("all_reduce of 1048576 f32"));
}

TEST_CASE("Processes that call different collectives are told which", "[gloo][fault]") {
  const Meeting meeting;
  constexpr int ranks = 3;
  const auto begin = CommClock::now();
  Processes p(ranks, [&](int rank, const auto&) {
    const auto transport = join(meeting, rank, ranks);
    GroupOptions o;
    o.timeout = 20s;
    const auto group = make_ring_group(*transport, o);
    std::vector<float> data(1 << 20);
    const auto n = static_cast<int64_t>(data.size());
    group->all_reduce(TensorView(data.data(), DType::f32, {n}), Reduction::sum).wait();
    // The same bytes, so that nothing but the comparison can tell.
    const TensorView other(data.data(), rank == 1 ? DType::f64 : DType::f32,
                           {rank == 1 ? n / 2 : n});
    group->all_reduce(other, Reduction::sum).wait();
  });
  for (int r = 0; r < ranks; ++r) {  // either pair may notice first
    CHECK_THAT(p.line_starting(r, "threw"), Contains("ranks disagree on collective 1: rank ") &&
                                                Contains(" calls all_reduce of 1048576 f32") &&
                                                Contains("rank 1 calls all_reduce of 524288 f64"));
  }
  CHECK(CommClock::now() - begin < 15s);
}

TEST_CASE("A rank that throws tells the others why", "[gloo][fault]") {
  const Meeting meeting;
  Processes p(3, [&](int rank, const auto& say) {
    const auto transport = join(meeting, rank, 3);
    say("joined");
    if (rank == 0) {
      transport->abort("utterance 12 is damaged");
      return;
    }
    std::vector<int> memory(1);
    transport->recv(0, 0, bytes_of(memory), within(30s)).wait();
  });
  for (const int r : {1, 2}) {
    CHECK_THAT(
        p.line_starting(r, "threw"),
        Contains("threw aborted: rank ") && Contains("rank 0 aborted: utterance 12 is damaged"));
  }
}

TEST_CASE("What was sent before a rank leaves arrives", "[gloo][fault]") {
  const Meeting meeting;
  Processes p(2, [&](int rank, const auto&) {
    const auto transport = join(meeting, rank, 2);
    std::vector<int> large(4'000'000, rank == 0 ? 7 : 0);
    if (rank == 0) {
      transport->send(1, 3, bytes_of(large), within(30s)).wait();
      return;
    }
    std::this_thread::sleep_for(50ms);
    transport->recv(0, 3, bytes_of(large), within(30s)).wait();
    for (const int v : large) {
      if (v != 7) throw Error("damaged");
    }
    Work more = transport->recv(0, 3, bytes_of(large), within(30s));
    const CommError e = comm_error_of(more);
    if (std::string(e.what()).find("rank 0 is lost: it has finished") == std::string::npos) throw e;
  });
  for (const int r : {0, 1}) CHECK(p.line(r) == "done");
}

TEST_CASE("A rank that never comes is a timeout of the rendezvous", "[gloo][fault]") {
  const Meeting meeting;
  const auto store = make_file_store(meeting.directory);
  GlooOptions o = options(0, 2, *store);
  o.timeout = 100ms;
  const auto begin = CommClock::now();
  try {
    make_gloo_transport(o);
    FAIL("met nobody");
  } catch (const CommError& e) {
    CHECK(e.kind() == CommErrorKind::timeout);
    CHECK_THAT(e.what(), Contains("rank 0: rendezvous of 2 ranks: store in"));
  }
  CHECK(CommClock::now() - begin < 5s);
}

TEST_CASE("A rank killed during the rendezvous ends it", "[gloo][fault]") {
  const Meeting meeting;
  Processes p(2, [&](int rank, const auto& say) {
    const auto store = make_file_store(meeting.directory);
    GlooOptions o = options(rank, 2, *store);
    o.timeout = 1s;
    if (rank == 1) {
      // Leaves an address behind at which nobody answers.
      const auto other = make_prefix_store(*store, o.rendezvous_id);
      other->set("nonce-1", "x", within(1s));
      other->set("1", other->get("0", within(10s)), within(1s));
      return;
    }
    say("trying");
    make_gloo_transport(o);
  });
  CHECK(p.line(1) == "done");
  CHECK_THAT(p.line_starting(0, "threw"), Contains("rank 0: rendezvous of 2 ranks: "));
}

TEST_CASE("A rank with another token is refused", "[gloo]") {
  const Meeting meeting;
  Processes p(2, [&](int rank, const auto&) {
    const auto store = make_file_store(meeting.directory);
    GlooOptions o = options(rank, 2, *store);
    if (rank == 1) o.token = "guess";
    o.timeout = 5s;
    make_gloo_transport(o);
  });
  CHECK_THAT(p.line_starting(0, "threw"),
             Contains("rank 1 is lost: it does not prove the job token"));
  CHECK_THAT(p.line_starting(1, "threw"), Contains("rank 0 is lost: "));
}

}  // namespace
}  // namespace rondo
