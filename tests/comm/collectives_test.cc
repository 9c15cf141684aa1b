#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "comm/group/collectives.h"
#include "comm/group/process_group.h"
#include "comm/in_process/run_ranks.h"
#include "tests/catch.h"
#include "tests/comm/decorators.h"
#include "tests/comm/sums.h"

namespace rondo {
namespace {

template <class T>
void check_all_reduce(int ranks, size_t n, size_t message_bytes) {
  INFO(ranks << " ranks, " << n << " elements of " << sizeof(T) << " bytes, messages of "
             << message_bytes);
  std::vector<std::vector<T>> result(static_cast<size_t>(ranks));
  std::vector<size_t> sent(result.size()), reported(result.size()), largest(result.size());
  run_ranks(ranks, [&](int rank, Transport& transport) {
    const auto r = static_cast<size_t>(rank);
    Recorder recorder(transport);
    GroupOptions options;
    options.message_bytes = message_bytes;
    const auto group = make_ring_group(recorder, options);
    result[r] = input<T>(rank, n);
    Work work = group->all_reduce(view(result[r]), Reduction::sum);
    work.wait();
    reported[r] = work.bytes();
    sent[r] = recorder.sent().bytes;
    largest[r] = recorder.sent().largest;
  });
  // A few f64 are not for the ring; where its messages are short, neither is there memory for more.
  const bool doubled = sizeof(T) == sizeof(double) && n <= most_doubled && message_bytes > 8 * n;
  size_t total = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    CHECK(result[r] == expected_sum<T>(ranks, n));
    CHECK(sent[r] ==
          (doubled ? doubled_bytes(rank, ranks, n) : promised_bytes(rank, ranks, n, sizeof(T))));
    CHECK(reported[r] == sent[r]);
    CHECK(largest[r] <= std::max(message_bytes, sizeof(double)));
    total += sent[r];
  }
  if (!doubled) CHECK(total == 2 * static_cast<size_t>(ranks - 1) * n * sizeof(T));
}

TEST_CASE("all_reduce: exact sums and exact bytes for every size", "[all_reduce]") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (size_t n : {0u, 1u, 2u, 3u, 4u, 5u, 7u, 12u, 31u, 64u, 1000u}) {
      check_all_reduce<float>(ranks, n, 256 * 1024);
      check_all_reduce<double>(ranks, n, 256 * 1024);
    }
  }
  for (int ranks : {5, 7}) {
    for (size_t n : {0u, 1u, 4u, 5u, 8u, 71u}) {
      check_all_reduce<float>(ranks, n, 256 * 1024);
      check_all_reduce<double>(ranks, n, 256 * 1024);
    }
  }
}

TEST_CASE("all_reduce in pieces smaller than the chunks", "[slow][all_reduce]") {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (size_t message : {1u, 16u, 24u, 64u}) {
      check_all_reduce<float>(ranks, 103, message);
      check_all_reduce<double>(ranks, 97, message);
    }
  }
  check_all_reduce<float>(3, 200'001, 4096);
  // Messages of four f32 or two f64: chunks of whole ones, and on some ranks of one element more.
  for (int ranks : {3, 5}) {
    for (int chunk : {8, 12}) {
      for (int more = 0; more < ranks; ++more) {
        check_all_reduce<float>(ranks, static_cast<size_t>(ranks * chunk + more), 16);
        check_all_reduce<double>(ranks, static_cast<size_t>(ranks * chunk + more), 16);
      }
    }
  }
}

TEST_CASE("all_reduce: 2(N-1)/N of the bytes when chunks are even", "[all_reduce]") {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      CHECK(promised_bytes(rank, ranks, 1200, 4) ==
            static_cast<size_t>(2 * (ranks - 1) * 1200 * 4 / ranks));
    }
  }
}

// Values whose sum depends on the order: the documented order, not just any, must come out.
TEST_CASE("Two ranks swap a short array in one message each", "[all_reduce]") {
  struct Case {
    size_t elements, messages;
  };
  // f32; longer ones go by the ring, chunk by chunk.
  for (const Case& c : {Case{1, 1}, Case{65536, 1}, Case{65537, 2}}) {
    std::vector<uint64_t> sent(2);
    std::vector<std::vector<float>> sums(2);
    run_ranks(2, [&](int rank, Transport& transport) {
      Recorder recorder(transport);
      GroupOptions options;
      options.verify = false;
      const auto group = make_ring_group(recorder, options);
      std::vector<float> data(c.elements);
      for (size_t i = 0; i < data.size(); ++i) {
        data[i] = 0.1f * static_cast<float>(i % 97) * (rank == 0 ? 1.0f : -3.7f);
      }
      group->all_reduce(view(data), Reduction::sum).wait();
      sent[static_cast<size_t>(rank)] = recorder.sent().messages;
      sums[static_cast<size_t>(rank)] = data;
    });
    CHECK(sent == std::vector<uint64_t>{c.messages, c.messages});
    CHECK(sums[0] == sums[1]);
    size_t wrong = 0;
    for (size_t i = 0; i < c.elements; ++i) {
      const float x = 0.1f * static_cast<float>(i % 97);
      wrong += sums[0][i] != x * 1.0f + x * -3.7f;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("all_reduce sums in the documented order, equal on all ranks", "[all_reduce]") {
  constexpr int ranks = 4;
  constexpr size_t n = 1003;
  const auto value = [](int rank, size_t i) {
    const double x = std::sin(static_cast<double>(i) * 12.9898 + rank * 78.233) * 43758.5453;
    return static_cast<float>(std::ldexp(x - std::floor(x), static_cast<int>(i % 13) * (rank - 1)));
  };
  std::vector<float> expected(n);
  bool order_matters = false;
  for (int c = 0; c < ranks; ++c) {
    const ChunkRange chunk = chunk_range(n, ranks, c);
    for (auto i = static_cast<size_t>(chunk.begin); i < static_cast<size_t>(chunk.end); ++i) {
      expected[i] = value(c, i);
      for (int k = 1; k < ranks; ++k) expected[i] += value((c + k) % ranks, i);
      float other = value(3, i);
      for (int k = 2; k >= 0; --k) other += value(k, i);
      order_matters |= other != expected[i];
    }
  }
  REQUIRE(order_matters);
  for (size_t message : {64u, 256u * 1024u}) {
    std::vector<std::vector<float>> result(ranks, std::vector<float>(n));
    run_ranks(ranks, [&](int rank, Transport& transport) {
      GroupOptions options;
      options.message_bytes = message;
      const auto group = make_ring_group(transport, options);
      auto& own = result[static_cast<size_t>(rank)];
      for (size_t i = 0; i < n; ++i) own[i] = value(rank, i);
      group->all_reduce(view(own), Reduction::sum).wait();
    });
    for (const auto& r : result) {
      CHECK(std::memcmp(r.data(), expected.data(), n * sizeof(float)) == 0);
    }
  }
}

float rounded(float v) { return static_cast<float>(bf16(v)); }

TEST_CASE("bf16 on the wire: half the bytes, rounded per hop, equal on all ranks", "[all_reduce]") {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (const size_t message : {64u, 256u * 1024u}) {
      constexpr size_t n = 1003;
      const auto value = [](int rank, size_t i) {
        return static_cast<float>(std::sin(static_cast<double>(i) * 12.9898 + rank * 78.233));
      };
      std::vector<float> expected(n);
      for (int c = 0; c < ranks; ++c) {
        const ChunkRange chunk = chunk_range(n, ranks, c);
        for (auto i = static_cast<size_t>(chunk.begin); i < static_cast<size_t>(chunk.end); ++i) {
          expected[i] = value(c, i);
          for (int k = 1; k < ranks; ++k) {
            expected[i] = value((c + k) % ranks, i) + rounded(expected[i]);
          }
          expected[i] = rounded(expected[i]);
        }
      }
      std::vector<std::vector<float>> result(static_cast<size_t>(ranks), std::vector<float>(n));
      std::vector<size_t> sent(result.size());
      run_ranks(ranks, [&](int rank, Transport& transport) {
        Recorder recorder(transport);
        GroupOptions options;
        options.message_bytes = message;
        options.wire = Wire::bf16;
        const auto group = make_ring_group(recorder, options);
        auto& own = result[static_cast<size_t>(rank)];
        for (size_t i = 0; i < n; ++i) own[i] = value(rank, i);
        group->all_reduce(view(own), Reduction::sum).wait();
        sent[static_cast<size_t>(rank)] = recorder.sent().bytes;
      });
      for (int r = 0; r < ranks; ++r) {
        const auto at = static_cast<size_t>(r);
        CHECK(std::memcmp(result[at].data(), expected.data(), n * sizeof(float)) == 0);
        CHECK(sent[at] == promised_bytes(r, ranks, n, sizeof(bf16)));
      }
    }
  }
}

TEST_CASE("bf16 on the wire rounds what travels: a rank's own chunk of a reduce-scatter stays",
          "[all_reduce]") {
  constexpr size_t n = 1008;
  const auto value = [](int rank, size_t i) {
    return static_cast<float>(std::sin(static_cast<double>(i) * 12.9898 + rank * 78.233));
  };
  for (int ranks = 2; ranks <= 4; ++ranks) {
    std::vector<size_t> wrong(static_cast<size_t>(ranks), n), unrounded(wrong.size());
    run_ranks(ranks, [&](int rank, Transport& transport) {
      GroupOptions options;
      options.wire = Wire::bf16;
      const auto group = make_ring_group(transport, options);
      std::vector<float> data(n);
      for (size_t i = 0; i < n; ++i) data[i] = value(rank, i);
      group->reduce_scatter(view(data), Reduction::sum).wait();
      const ChunkRange own = chunk_range(n, ranks, rank);
      const auto at = static_cast<size_t>(rank);
      wrong[at] = 0;
      for (auto i = static_cast<size_t>(own.begin); i < static_cast<size_t>(own.end); ++i) {
        float sum = value((rank + 1) % ranks, i);
        for (int k = 2; k <= ranks; ++k) sum = value((rank + k) % ranks, i) + rounded(sum);
        wrong[at] += data[i] != sum;
        unrounded[at] += sum != rounded(sum);
      }
    });
    CHECK(wrong == std::vector<size_t>(wrong.size(), 0));
    for (const size_t count : unrounded) CHECK(count > 100);
  }
}

TEST_CASE("Few numbers are doubled where there is memory for what every round brings",
          "[all_reduce]") {
  // An array arrives in each of floor(log2 N) rounds, and one more unless N is a power of two.
  for (int ranks = 2; ranks <= 40; ++ranks) {
    int power = 1, arrive = 0;
    for (; 2 * power <= ranks; power *= 2) ++arrive;
    if (power < ranks) ++arrive;
    for (const size_t n : {size_t{1}, size_t{3}, static_cast<size_t>(most_doubled)}) {
      INFO(ranks << " ranks, " << n << " numbers");
      std::vector<double> numbers(n);
      const size_t needed = static_cast<size_t>(arrive) * n * sizeof(double);
      CHECK(!fits_doubling(view(numbers), ranks, needed - 1));
      CHECK(fits_doubling(view(numbers), ranks, needed + n * sizeof(double)));
    }
  }
  std::vector<double> many(static_cast<size_t>(most_doubled) + 1);
  std::vector<float> single(1);
  CHECK(!fits_doubling(view(many), 2, size_t{1} << 20));
  CHECK(!fits_doubling(view(single), 2, size_t{1} << 20));
}

TEST_CASE("chunk_range covers everything once, sizes within one", "[all_reduce]") {
  for (int64_t n : {0, 1, 5, 17, 1000}) {
    for (int chunks = 1; chunks <= 7; ++chunks) {
      int64_t at = 0;
      for (int c = 0; c < chunks; ++c) {
        const ChunkRange r = chunk_range(n, chunks, c);
        CHECK(r.begin == at);
        CHECK((r.size() == n / chunks || r.size() == n / chunks + 1));
        at = r.end;
      }
      CHECK(at == n);
    }
  }
}

}  // namespace
}  // namespace rondo
