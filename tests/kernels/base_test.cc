// kernels/base: packed layouts, messages, the thread pool, bf16.
#include <atomic>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/dtype.h"
#include "kernels/base/error.h"
#include "kernels/base/packed_host.h"
#include "tests/catch.h"
#include "tests/few_threads.h"

using namespace rondo;

TEST_CASE("a packed layout holds exactly the frames that exist") {
  const PackedHost p = build_packed(std::vector<int32_t>{5, 3, 2, 0});
  CHECK(p.extent.rows == 10);
  CHECK(p.extent.frames == 5);
  CHECK(p.extent.sequences == 4);
  CHECK(p.batch_sizes == std::vector<int32_t>{3, 3, 2, 1, 1});
  CHECK(p.row_offsets == std::vector<int32_t>{0, 3, 6, 8, 9, 10});
  CHECK(p.row_frame == std::vector<int32_t>{0, 0, 0, 1, 1, 1, 2, 2, 3, 4});
  CHECK(p.row(2, 1) == 7);
}

TEST_CASE("an empty batch has an empty layout") {
  const PackedHost p = build_packed({});
  CHECK(p.extent.rows == 0);
  CHECK(p.row_offsets == std::vector<int32_t>{0});
}

TEST_CASE("unsorted or negative lengths are refused") {
  CHECK_THROWS_AS(build_packed(std::vector<int32_t>{2, 3}), Error);
  CHECK_THROWS_AS(build_packed(std::vector<int32_t>{2, -1}), Error);
}

TEST_CASE("more frames than 32 bits may count are refused") {
  using Catch::Matchers::Contains;
  constexpr int32_t most = std::numeric_limits<int32_t>::max();
  CHECK_THROWS_WITH(build_packed(std::vector<int32_t>{most}),
                    Contains("a sequence of 2147483647 frames, expected at most 1073741823"));
  CHECK_THROWS_AS(build_packed(std::vector<int32_t>{most_sequence_frames + 1}), InputError);
  CHECK_THROWS_WITH(
      build_packed(std::vector<int32_t>{most_sequence_frames, most_sequence_frames, 2}),
      Contains("a batch of 2147483648 frames, expected at most 2147483647"));
}

TEST_CASE("sorting longest first is stable") {
  CHECK(longest_first(std::vector<int32_t>{2, 5, 2, 7}) == std::vector<int32_t>{3, 1, 0, 2});
}

TEST_CASE("messages: text as it is, numbers as streams write them") {
  CHECK(str().empty());
  CHECK(str("a", 'b', std::string("c"), std::string_view("d")) == "abcd");
  CHECK(str(-1, " ", 2u, " ", true, " ", uint8_t{65}) == "-1 2 1 65");
  CHECK(str(std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max()) ==
        "-922337203685477580818446744073709551615");
  const auto streamed = [](auto x) {
    std::ostringstream out;
    out << x;
    return out.str();
  };
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double x : {0.0, -0.0, 0.1, 1.0 / 3, 100000.0, 1e6, 1234567.0, -2.5e-7, 5e-324,
                         1.7e308, infinity, -infinity, static_cast<double>(NAN)}) {
    CHECK(str(x) == streamed(x));
    CHECK(str(static_cast<float>(x)) == streamed(static_cast<float>(x)));
  }
}

TEST_CASE("the pool runs every index once and passes exceptions on") {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      pool.for_range(n, 3, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)]++;
      });
      pool.for_each(n, [&](int64_t i) { seen[static_cast<size_t>(i)]++; });
      for (auto& s : seen) CHECK(s == 2);
    }
    CHECK_THROWS_AS(pool.for_each(10, [](int64_t i) { RONDO_CHECK(i != 7, "seven"); }), Error);
    std::atomic<int> after{0};
    pool.run([&](int) { after++; });
    CHECK(after == threads);
  }
}

TEST_CASE("a pool of more threads than the system starts is an error, and leaves none") {
  using Catch::Matchers::Matches;
  CHECK_THAT(test::with_few_threads([] { ThreadPool(1000); }),
             Matches("InputError: thread [2-9] of 1000 cannot be started: Resource temporarily "
                     "unavailable; there is a limit on processes or memory"));
  // What it had started is gone, and its memory with it: as many can be had again.
  CHECK(test::with_few_threads([] {
          for (int i = 0; i < 20; ++i) {
            try {
              ThreadPool(1000);
            } catch (const InputError&) {
            }
            ThreadPool(2).run([](int) {});
          }
        }) == "done");
}

TEST_CASE("workers of one call meet at a barrier") {
  ThreadPool pool(3);
  SpinBarrier barrier(3);
  std::atomic<int> phase{0};
  std::atomic<bool> ordered{true};
  pool.run([&](int) {
    for (int step = 0; step < 200; ++step) {
      if (phase.load() / 3 != step) ordered = false;
      barrier.arrive_and_wait();
      phase++;
      barrier.arrive_and_wait();
    }
  });
  CHECK(ordered);
  CHECK(phase == 600);
}

TEST_CASE("bf16 rounds to nearest even and keeps NaN and infinity") {
  CHECK(bf16(1.0f).bits == 0x3f80);
  CHECK(bf16(1.00390625f).bits == 0x3f80);  // half way, even below
  CHECK(bf16(1.01171875f).bits == 0x3f82);  // half way, even above
  CHECK(static_cast<float>(bf16(-2.5f)) == -2.5f);
  CHECK(std::isinf(static_cast<float>(bf16(std::numeric_limits<float>::max()))));
  CHECK(std::isnan(static_cast<float>(bf16(std::numeric_limits<float>::signaling_NaN()))));
}
