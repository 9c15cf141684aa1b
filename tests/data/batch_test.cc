// engine/data/batch.h: packing, and the threads that do it ahead of time.
#include "engine/data/batch.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "engine/data/features/random.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/few_threads.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

int priority_of_thread() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

// Holds threads up, but none for ever.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    if (!opened_.wait_for(lock, std::chrono::seconds(20), [&] { return open_; })) gave_up = true;
  }
  std::atomic<bool> gave_up{false};

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// Made-up utterances; some fail, some are slow.
class FakeDataset final : public Dataset {
 public:
  int64_t size() const override { return 60; }
  int32_t feature_dim() const override { return 3; }
  int32_t frames(int64_t i, uint64_t) const override {
    return static_cast<int32_t>(1 + i * 7 % 23);
  }
  uint64_t key(int64_t i) const override { return static_cast<uint64_t>(1000 + i); }
  std::string name(int64_t i) const override { return "fake:" + std::to_string(i); }
  Example load(int64_t i, uint64_t epoch) const override {
    ++loads;
    if (std::this_thread::get_id() != maker) {
      lowest_priority = std::min<int>(lowest_priority, priority_of_thread());
      if (gate) gate->pass();
    }
    if (slow) {
      data::Random random(1, epoch, static_cast<uint64_t>(i), data::Purpose::order);
      const auto microseconds = static_cast<int64_t>(random.below(300));
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      slept += microseconds;
    }
    if (i == bad_input) fail_input("fake:", i, ": the file is broken");
    if (i == bad_program) throw std::runtime_error("out of luck");
    Example e;
    e.features = Matrix(frames(i, epoch), 3);
    for (int64_t t = 0; t < e.features.frames; ++t)
      for (int c = 0; c < 3; ++c)
        e.features.row(t)[c] =
            static_cast<float>(i * 1000 + t * 10 + c) + static_cast<float>(epoch) * 0.5f;
    e.labels.assign(static_cast<size_t>(i % 4), static_cast<int32_t>(i + 1));
    e.class_index = static_cast<int32_t>(i);
    e.target = {static_cast<float>(i), 0.5f};
    e.frame_labels.assign(static_cast<size_t>(e.features.frames), static_cast<int32_t>(i));
    return e;
  }

  bool slow = false;
  int64_t bad_input = -1, bad_program = -1;
  mutable std::atomic<int64_t> loads{0}, slept{0};  // microseconds
  Gate* gate = nullptr;                             // for other threads than the one that made this
  const std::thread::id maker = std::this_thread::get_id();
  mutable std::atomic<int> lowest_priority{100};  // nice, of those
};

std::function<std::optional<BatchRequest>()> requests(const FakeDataset& d, int64_t count) {
  SamplerConfig c;
  c.batch_frames = 100;
  auto sampler = std::make_shared<Sampler>(
      d.size(), [&d](int64_t i, uint64_t e) { return d.frames(i, e); }, c);
  auto left = std::make_shared<int64_t>(count);
  return [sampler, left]() -> std::optional<BatchRequest> {
    if ((*left)-- <= 0) return std::nullopt;
    return sampler->next();
  };
}

bool equal(const HostBatch& a, const HostBatch& b) {
  return a.epoch == b.epoch && a.step == b.step && a.features == b.features &&
         a.labels == b.labels && a.label_offsets == b.label_offsets && a.classes == b.classes &&
         a.frame_classes == b.frame_classes && a.targets == b.targets &&
         a.utterances == b.utterances && a.layout.lengths == b.layout.lengths &&
         a.layout.row_offsets == b.layout.row_offsets && a.layout.keys == b.layout.keys;
}

std::vector<HostBatch> all_batches(const FakeDataset& d, int threads, int depth) {
  Prefetcher p(d, requests(d, 40), {threads, depth});
  std::vector<HostBatch> out;
  for (HostBatch b; p.next(b);) out.push_back(b);
  return out;
}

}  // namespace

TEST_CASE("threads that read data and cannot be started are an error", "[batch]") {
  const FakeDataset d;
  CHECK_THAT(test::with_few_threads([&] {
               Prefetcher(d, requests(d, 40), {500, 2});
             }),
             Catch::Matchers::Matches("InputError: thread [2-9] of 500 that read data cannot be "
                                      "started: Resource temporarily unavailable; .*"));
}

TEST_CASE("a batch is packed longest first, time-major", "[batch]") {
  const FakeDataset d;
  BatchRequest r;
  r.epoch = 1;
  r.step = 9;
  r.utterances = {4, 1, 10, 0};  // 6, 8, 2, 1 frames
  const HostBatch b = load_batch(d, r);
  CHECK(b.epoch == 1);
  CHECK(b.step == 9);
  CHECK(b.utterances == std::vector<int64_t>{1, 4, 10, 0});
  CHECK(b.layout.lengths == std::vector<int32_t>{8, 6, 2, 1});
  CHECK(b.layout.keys == std::vector<uint64_t>{1001, 1004, 1010, 1000});
  CHECK(b.rows() == 17);
  CHECK(b.features.size() == 51);
  for (int32_t n = 0; n < 4; ++n) {
    for (int32_t t = 0; t < b.layout.lengths[static_cast<size_t>(n)]; ++t) {
      const auto row = static_cast<size_t>(b.layout.row(t, n));
      const int64_t u = b.utterances[static_cast<size_t>(n)];
      for (size_t c = 0; c < 3; ++c)
        CHECK(b.features[row * 3 + c] ==
              static_cast<float>(u * 1000 + t * 10 + static_cast<int64_t>(c)) + 0.5f);
      CHECK(b.frame_classes[row] == u);
    }
  }
  CHECK(b.labels == std::vector<int32_t>{2, 11, 11});
  CHECK(b.label_offsets == std::vector<int32_t>{0, 1, 1, 3, 3});
  CHECK(b.classes == std::vector<int32_t>{1, 4, 10, 0});
  CHECK(b.target_dim == 2);
  CHECK(b.targets == std::vector<float>{1, 0.5f, 4, 0.5f, 10, 0.5f, 0, 0.5f});
}

TEST_CASE("a batch that is filled anew keeps nothing, and equal lengths their order", "[batch]") {
  const FakeDataset d;
  HostBatch b = load_batch(d, {1, 9, {4, 1, 10, 0}});
  // Two frames each but for the last, of which nothing is known but labels.
  const std::vector<int64_t> utterances = {7, 5, 3, 9};
  std::vector<Example> examples;
  for (const int64_t u : utterances) {
    Example& e = examples.emplace_back();
    e.features = Matrix(u == 9 ? 3 : 2, 2);
    for (size_t i = 0; i < e.features.data.size(); ++i)
      e.features.data[i] = static_cast<float>(10 * u) + static_cast<float>(i);
    e.labels = {static_cast<int32_t>(u)};
  }
  pack_batch({4, 2, utterances}, examples, {77, 55, 33, 99}, 2, b);
  CHECK((b.epoch == 4 && b.step == 2 && b.feature_dim == 2 && b.target_dim == 0));
  CHECK(b.utterances == std::vector<int64_t>{9, 7, 5, 3});
  CHECK(b.layout.keys == std::vector<uint64_t>{99, 77, 55, 33});
  CHECK(b.layout.lengths == std::vector<int32_t>{3, 2, 2, 2});
  CHECK(b.features == std::vector<float>{90, 91, 70, 71, 50, 51, 30, 31,  //
                                         92, 93, 72, 73, 52, 53, 32, 33, 94, 95});
  CHECK(b.labels == std::vector<int32_t>{9, 7, 5, 3});
  CHECK(b.label_offsets == std::vector<int32_t>{0, 1, 2, 3, 4});
  CHECK((b.classes.empty() && b.targets.empty() && b.frame_classes.empty()));
  // Nothing at all, after a batch with everything.
  b = load_batch(d, {1, 9, {4, 1}});
  pack_batch({4, 3, {}}, {}, {}, 2, b);
  CHECK((b.epoch == 4 && b.step == 3 && b.rows() == 0 && b.sequences() == 0));
  CHECK((b.features.empty() && b.labels.empty() && b.classes.empty() && b.targets.empty()));
  CHECK((b.target_dim == 0 && b.frame_classes.empty()));
  CHECK(b.label_offsets == std::vector<int32_t>{0});
}

TEST_CASE("an empty share of a batch is a batch without rows", "[batch]") {
  const FakeDataset d;
  const HostBatch b = load_batch(d, {2, 5, {}});
  CHECK(b.rows() == 0);
  CHECK(b.sequences() == 0);
  CHECK(b.label_offsets == std::vector<int32_t>{0});
}

TEST_CASE("examples that do not fit together break a contract", "[batch]") {
  Example a, b;
  a.features = Matrix(2, 3);
  b.features = Matrix(2, 4);
  HostBatch out;
  CHECK_THROWS_AS(pack_batch({0, 0, {1, 2}}, {a, b}, {1, 2}, 3, out), Error);
  b.features = Matrix(2, 3);
  b.target = {1};
  CHECK_THROWS_AS(pack_batch({0, 0, {1, 2}}, {a, b}, {1, 2}, 3, out), Error);
  b.target = {};
  b.class_index = 2;
  CHECK_THROWS_AS(pack_batch({0, 0, {1, 2}}, {a, b}, {1, 2}, 3, out), Error);
}

TEST_CASE("prefetched batches are the same for any number of threads", "[prefetch]") {
  FakeDataset d;
  const std::vector<HostBatch> want = all_batches(d, 0, 1);
  REQUIRE(want.size() == 40);
  CHECK(want.back().epoch >= 2);
  d.slow = true;
  for (int threads : {1, 2, 5}) {
    for (int depth : {1, 3, 8}) {
      const std::vector<HostBatch> got = all_batches(d, threads, depth);
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) REQUIRE(equal(got[i], want[i]));
    }
  }
}

TEST_CASE("a failure arrives in its batch, naming the utterance", "[prefetch]") {
  for (int threads : {0, 1, 4}) {
    FakeDataset d;
    d.slow = true;
    const std::vector<HostBatch> want = all_batches(d, 0, 1);
    d.bad_input = 17;
    d.bad_program = 44;
    Prefetcher p(d, requests(d, 40), {threads, 4});
    HostBatch b;
    for (size_t i = 0; i < 40; ++i) {
      const auto& u = want[i].utterances;
      // The first of the request counts; both in one batch does not occur here.
      const bool input = std::count(u.begin(), u.end(), 17) > 0;
      const bool program = std::count(u.begin(), u.end(), 44) > 0;
      REQUIRE_FALSE((input && program));
      if (input) {
        CHECK_THROWS_AS(p.next(b), InputError);
      } else if (program) {
        CHECK_THROWS_WITH(p.next(b), Contains("fake:44: out of luck"));
      } else {
        REQUIRE(p.next(b));
        REQUIRE(equal(b, want[i]));
      }
    }
    CHECK_FALSE(p.next(b));
    CHECK_FALSE(p.next(b));
  }
}

TEST_CASE("of several failures in a batch the first of its request is told", "[prefetch]") {
  FakeDataset d;
  d.slow = true;
  d.bad_input = 17;
  d.bad_program = 44;
  for (const auto& [utterances, what] :
       {std::pair(std::vector<int64_t>{9, 44, 17}, "fake:44: out of luck"),
        std::pair(std::vector<int64_t>{17, 8, 44}, "fake:17: the file is broken")}) {
    for (int threads : {0, 3}) {
      bool given = false;
      Prefetcher p(d,
                   [&, list = utterances]() -> std::optional<BatchRequest> {
                     if (std::exchange(given, true)) return std::nullopt;
                     return BatchRequest{0, 0, list};
                   },
                   {threads, 2});
      HostBatch b;
      CHECK_THROWS_WITH(p.next(b), Contains(what));
      CHECK_FALSE(p.next(b));
    }
  }
}

TEST_CASE("a failing source is reported after the batches before it", "[prefetch]") {
  const FakeDataset d;
  for (int threads : {0, 2}) {
    int64_t n = 0;
    Prefetcher p(d,
                 [&]() -> std::optional<BatchRequest> {
                   if (n == 2) throw InputError("no more batches");
                   return BatchRequest{0, n++, {1, 2}};
                 },
                 {threads, 4});
    HostBatch b;
    CHECK(p.next(b));
    CHECK(p.next(b));
    CHECK_THROWS_WITH(p.next(b), Contains("no more batches"));
  }
}

TEST_CASE("the queue is bounded and stopping is clean", "[prefetch]") {
  FakeDataset d;
  std::atomic<int64_t> asked{0};
  {
    auto inner = requests(d, 1000000);
    Prefetcher p(d,
                 [&] {
                   ++asked;
                   return inner();
                 },
                 {3, 5});
    HostBatch b;
    CHECK(p.next(b));
    CHECK(p.next(b));
    while (asked < 3) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(asked <= 2 + 5);
  }  // destroyed with work in flight
  const int64_t after = d.loads;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(d.loads == after);
  for (int i = 0; i < 20; ++i) {  // destroyed at once
    Prefetcher p(d, requests(d, 10), {2, 2});
  }
}

TEST_CASE("threads that do not get the processor hold up nobody", "[prefetch]") {
  FakeDataset d;
  const std::vector<HostBatch> want = all_batches(d, 0, 1);
  Gate gate;
  d.gate = &gate;
  Prefetcher p(d, requests(d, 40), {2, 3});
  HostBatch b;
  for (const HostBatch& w : want) {
    REQUIRE(p.next(b));
    REQUIRE(equal(b, w));
  }
  CHECK_FALSE(p.next(b));
  CHECK_FALSE(gate.gave_up);
  gate.open();
}

TEST_CASE("what is ready is delivered while the next batch is being chosen", "[prefetch]") {
  const FakeDataset d;
  Gate gate;
  int64_t n = 0;
  Prefetcher p(d,
               [&]() -> std::optional<BatchRequest> {
                 if (n == 2) gate.pass();
                 if (n == 3) return std::nullopt;
                 return BatchRequest{0, n++, {1, 2}};
               },
               {1, 5});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // most likely it chooses by then
  HostBatch b;
  CHECK(p.next(b));
  CHECK(p.next(b));
  gate.open();
  CHECK(p.next(b));
  CHECK_FALSE(p.next(b));
  CHECK_FALSE(gate.gave_up);
}

TEST_CASE("threads in the background have the lowest priority", "[prefetch]") {
  const int own = priority_of_thread();
  for (bool background : {false, true}) {
    FakeDataset d;
    d.slow = true;
    Prefetcher p(d, requests(d, 40), {1, 40, background});
    while (d.lowest_priority == 100) std::this_thread::yield();
    CHECK(d.lowest_priority == (background ? 19 : own));
  }
  CHECK(priority_of_thread() == own);
}

TEST_CASE("waiting for input is measured", "[prefetch]") {
  for (int threads : {0, 1}) {
    FakeDataset d;
    d.slow = true;
    const auto begin = std::chrono::steady_clock::now();
    Prefetcher p(d, requests(d, 5), {threads, 1});
    HostBatch b;
    while (p.next(b)) {
    }
    const double waited = p.wait_seconds();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    // All of it is waited for where nothing is loaded ahead; else as much as came too late.
    CHECK(waited >= (threads == 0 ? 1e-6 * static_cast<double>(d.slept) : 0));
    CHECK(waited < passed.count());
  }
}
