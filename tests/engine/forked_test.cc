// Processes made by fork(): what an object of the parent does there, whose threads are not there.
#include <atomic>
#include <thread>
#include <vector>

#include "comm/group/process_group.h"
#include "comm/shared/shared_transport.h"
#include "engine/data/batch.h"
#include "engine/session.h"
#include "kernels/base/cpu/parallel.h"
#include "tests/catch.h"
#include "tests/comm/socket_ranks.h"
#include "tests/engine/gradient_check.h"
#include "tests/in_child.h"

using namespace rondo;
using rondo::test::in_child;

namespace {

constexpr int32_t classes = 5;

// How many workers of a call run at once, from the numbers that they leave.
int64_t sum_of_workers(ThreadPool& pool) {
  std::atomic<int64_t> sum{0};
  SpinBarrier all(pool.size());
  pool.run([&](int worker) {
    all.arrive_and_wait();
    sum += 1 << (4 * worker);
  });
  return sum;
}

Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "lstm", {.hidden = 24, .bidirectional = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

SessionOptions options() {
  SessionOptions o;
  o.threads = 3;
  return o;
}

struct Batch {
  Batch() { model(shape_only); }
  BatchView view() { return random.view(shape_only, classes, 3); }
  Graph shape_only;
  test::RandomBatch random{{40, 31, 12}, classes, 1};
};

// Utterances of a frame, each of which takes a moment.
class SlowDataset final : public Dataset {
 public:
  int64_t size() const override { return 1000; }
  int32_t feature_dim() const override { return 1; }
  int32_t frames(int64_t, uint64_t) const override { return 1; }
  uint64_t key(int64_t i) const override { return static_cast<uint64_t>(i); }
  std::string name(int64_t i) const override { return std::to_string(i); }
  Example load(int64_t, uint64_t) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Example e;
    e.features = Matrix(1, 1);
    return e;
  }
};

}  // namespace

TEST_CASE("a pool of threads works in a forked child, and after its parent did") {
  auto pool = std::make_unique<ThreadPool>(3);
  const int64_t want = sum_of_workers(*pool);
  CHECK(want == 0x111);
  CHECK(in_child([&] {
          const int64_t first = sum_of_workers(*pool), second = sum_of_workers(*pool);
          pool.reset();
          return str(first == want, second == want);
        }) == "11");
  CHECK(in_child([&] {  // destroyed without having worked
          pool.reset();
          return std::string("gone");
        }) == "gone");
  CHECK(sum_of_workers(*pool) == want);
}

TEST_CASE("two threads of a child may be the first to use a pool of the parent") {
  ThreadPool pool(3);
  CHECK(in_child([&] {
          int64_t sums[2] = {};
          std::thread other([&] { sums[0] = sum_of_workers(pool); });
          sums[1] = sum_of_workers(pool);
          other.join();
          return str(sums[0] == 0x111, sums[1] == 0x111);
        }) == "11");
}

TEST_CASE("a child of a child has threads of its own too") {
  ThreadPool pool(2);
  CHECK(in_child([&] {
          return str(sum_of_workers(pool), " ",
                     in_child([&] { return std::to_string(sum_of_workers(pool)); }));
        }) == "17 17");
}

TEST_CASE("a session recognises in a forked child as in its parent, and does not train there") {
  Batch batch;
  auto session = std::make_unique<Session>(model, options());
  session->train_step(batch.view());
  const std::vector<float> want = session->predict(batch.view());
  CHECK(in_child([&] {
          const bool same = session->predict(batch.view()) == want;
          std::string said;
          for (const auto& act : std::vector<std::function<void()>>{
                   [&] { session->train_step(batch.view()); },
                   [&] { session->accumulate(batch.view()); },
                   [&] { session->enqueue(batch.view()); },
                   [&] { Session(model, options()).train_step(batch.view()); }}) {
            try {
              act();
              said += "trained;";
            } catch (const InputError& e) {
              const std::string why = e.what();
              said += why.starts_with("training: this process was forked from") ? "refused;" : why;
            }
          }
          session.reset();
          return str(same, " ", said);
        }) == "1 refused;refused;refused;refused;");
  CHECK(session->predict(batch.view()) == want);
  session->train_step(batch.view());
}

TEST_CASE("what reads batches ahead can be destroyed in a forked child") {
  const SlowDataset data;
  auto ahead = std::make_unique<Prefetcher>(
      data,
      [n = 0]() mutable -> std::optional<BatchRequest> {
        BatchRequest r;
        r.utterances = {n++ % 1000, n++ % 1000};
        return r;
      },
      PrefetchOptions{.threads = 3, .depth = 4});
  HostBatch b;
  REQUIRE(ahead->next(b));
  CHECK(in_child([&] {
          ahead.reset();
          return std::string("gone");
        }) == "gone");
  CHECK(ahead->next(b));
}

TEST_CASE("transports and groups can be destroyed in a forked child; the parent's go on") {
  constexpr int ranks = 2;
  const bool in_memory = GENERATE(false, true);
  CAPTURE(in_memory);
  std::vector<std::unique_ptr<Transport>> transports(ranks);
  std::vector<std::unique_ptr<ProcessGroup>> groups(ranks);
  const auto each = [&](const std::function<void(size_t)>& act) {
    std::thread other([&] { act(1); });
    act(0);
    other.join();
  };
  {
    TcpStoreServer server(test_store_options());
    each([&](size_t r) {
      const auto store =
          make_tcp_store("127.0.0.1", server.port(), "secret", within(std::chrono::seconds(20)));
      auto transport = make_tcp_transport(rank_options(static_cast<int>(r), ranks, *store));
      if (in_memory) transport = make_shared_transport(std::move(transport), {.required = true});
      transports[r] = std::move(transport);
      groups[r] = make_ring_group(*transports[r]);
    });
  }
  const auto add = [&] {
    std::vector<float> sums(ranks);
    each([&](size_t r) {
      sums[r] = static_cast<float>(r + 1);
      groups[r]->all_reduce({&sums[r], DType::f32, {1}}, Reduction::sum).wait();
    });
    return sums;
  };
  CHECK(add() == std::vector<float>{3, 3});
  CHECK(in_child([&] {
          groups.clear();
          transports.clear();
          return std::string("gone");
        }) == "gone");
  CHECK(add() == std::vector<float>{3, 3});
}
