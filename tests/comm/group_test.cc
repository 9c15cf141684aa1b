#include <algorithm>
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "comm/group/collectives.h"
#include "comm/group/process_group.h"
#include "comm/in_process/run_ranks.h"
#include "tests/catch.h"
#include "tests/comm/decorators.h"
#include "tests/comm/sums.h"
#include "tests/comm/time_limits.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TEST_CASE("Collectives are asynchronous and run in the order of issue", "[group]") {
  std::vector<float> wrong(3);
  run_ranks(3, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    std::vector<std::vector<float>> buckets;
    for (size_t b = 0; b < 20; ++b) buckets.push_back(input<float>(rank, 10 * b));
    std::vector<Work> works;
    for (auto& b : buckets) works.push_back(group->all_reduce(view(b), Reduction::sum));
    works.push_back(group->barrier());
    works.back().wait();
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (!works[b].poll()) wrong[static_cast<size_t>(rank)] += 1;
      if (buckets[b] != expected_sum<float>(3, 10 * b)) wrong[static_cast<size_t>(rank)] += 1;
      if (b > 0 && works[b].start() < works[b - 1].end()) wrong[static_cast<size_t>(rank)] += 1;
    }
  });
  CHECK(wrong == std::vector<float>(3));
}

// The group's thread may come first now and then, on a busy machine often.
TEST_CASE("Who waits for a collective runs it; else the group's thread does", "[group]") {
  std::vector<int> right(2);
  run_ranks(2, [&](int rank, Transport& transport) {
    std::vector<std::thread::id> threads;
    GroupOptions options;
    options.verify = false;
    options.all_reduce = [&](const TensorView&, uint32_t, Deadline) {
      threads.push_back(std::this_thread::get_id());
    };
    const auto group = make_ring_group(transport, options);
    std::vector<float> data(3);
    const auto own = std::this_thread::get_id();
    size_t waited = 0, run_by_waiting = 0;
    for (; waited < 200 || (run_by_waiting == 0 && waited < 100000); ++waited) {
      group->all_reduce(view(data), Reduction::sum).wait();
      if (threads.back() == own) ++run_by_waiting;
    }
    Work work = group->all_reduce(view(data), Reduction::sum);
    while (!work.poll()) std::this_thread::yield();
    const bool polled = threads.back() != own;
    // A wait that gives up earlier than the collective leaves it to the group's thread.
    group->all_reduce(view(data), Reduction::sum).wait(within(1min));
    right[static_cast<size_t>(rank)] =
        run_by_waiting > 0 && polled && threads.back() != own && threads.size() == waited + 2;
  });
  CHECK(right == std::vector<int>(2, 1));
}

TEST_CASE("broadcast from every root", "[group]") {
  for (const int ranks : {1, 2, 3, 4, 5, 7}) {
    std::atomic<int> wrong{0};
    run_ranks(ranks, [&](int rank, Transport& transport) {
      const auto group = make_ring_group(transport);
      for (int root = 0; root < ranks; ++root) {
        for (size_t n : {0u, 1u, 17u}) {
          std::vector<double> data = input<double>(rank, n);
          group->broadcast(view(data), root).wait();
          wrong += data != input<double>(root, n);
        }
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("Nobody passes a barrier before everybody has reached it", "[group]") {
  for (const int ranks : {1, 2, 3, 4, 5, 7}) {
    std::atomic<int> arrived{0}, early{0};
    run_ranks(ranks, [&](int rank, Transport& transport) {
      const auto group = make_ring_group(transport);
      for (int round = 1; round <= 5; ++round) {
        if (rank == round % ranks) std::this_thread::sleep_for(5ms);
        ++arrived;
        group->barrier().wait();
        early += arrived < round * ranks;
        group->barrier().wait();
      }
    });
    CHECK(early == 0);
  }
}

TEST_CASE("Groups over subsets of the ranks work beside each other", "[group]") {
  // Ranks 0 and 2, 1 and 3 reduce; 0 and 1, 2 and 3 hand something on: data x pipeline.
  std::atomic<int> wrong{0};
  run_ranks(4, [&](int rank, Transport& transport) {
    GroupOptions replicas{.members = {rank % 2 + 2, rank % 2}, .id = 1};
    GroupOptions stages{.members = {rank / 2 * 2, rank / 2 * 2 + 1}, .id = 2};
    const auto data = make_ring_group(transport, replicas);
    const auto pipeline = make_ring_group(transport, stages);
    wrong += data->size() != 2 || data->rank() != (rank < 2 ? 1 : 0);
    std::vector<float> gradient = input<float>(rank, 33), expected = input<float>(rank, 33);
    const std::vector<float> theirs = input<float>((rank + 2) % 4, 33);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += theirs[i];
    Work reduce = data->all_reduce(view(gradient), Reduction::sum);
    float activation = static_cast<float>(rank);
    const auto memory = std::as_writable_bytes(std::span(&activation, 1));
    if (pipeline->rank() == 0) {
      pipeline->send(1, 4, memory).wait();
    } else {
      pipeline->recv(0, 4, memory).wait();
      wrong += activation != static_cast<float>(rank - 1);
    }
    reduce.wait();
    wrong += gradient != expected;
  });
  CHECK(wrong == 0);
}

std::string message_of(const std::exception_ptr& error) {
  REQUIRE(error != nullptr);
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

TEST_CASE("A rank that throws ends the others' collectives with its name", "[group]") {
  const auto begin = CommClock::now();
  const RankOutcome outcome = run_ranks_and_collect(3, [](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    std::vector<float> data(1000, 1.0f);
    if (rank == 1) {
      // Its own reduction is under way when it throws: unwinding must neither hang nor hide the
      // cause from the others.
      Work pending = group->all_reduce(view(data), Reduction::sum);
      Work never_started = group->barrier();
      Work third = group->barrier();
      throw InputError("utterance 12 is damaged");
    }
    group->all_reduce(view(data), Reduction::sum).wait();
    group->barrier().wait();
    group->barrier().wait();
    group->barrier().wait();
  });
  CHECK(CommClock::now() - begin < 60s);
  CHECK(outcome.first_failed == 1);
  for (size_t r : {0u, 2u}) {
    CHECK_THAT(message_of(outcome.errors[r]), Contains("rank 1 aborted: utterance 12 is damaged"));
    CHECK_THROWS_AS(std::rethrow_exception(outcome.errors[r]), CommError);
  }
}

TEST_CASE("A missing rank is a timeout that names it, on every rank that waits", "[group]") {
  std::vector<std::string> later(3);
  const auto begin = CommClock::now();
  std::latch both(2);
  const RankOutcome outcome = run_ranks_and_collect(3, [&](int rank, Transport& transport) {
    GroupOptions options;
    // Rank 0 waits for rank 2, the left neighbour, from the start; rank 1 only after rank 0 has
    // sent. So it is rank 0 whose time is up.
    options.timeout = rank == 0 ? CommClock::duration(100ms) : 30s;
    const auto group = make_ring_group(transport, options);
    std::vector<float> data(10);
    if (rank == 2) {
      // Waits for the end of the others without taking part.
      std::byte token{};
      transport.recv(0, 99, std::span(&token, 1), within(30s)).wait();
    }
    both.arrive_and_wait();
    Work queued;
    try {
      Work work = group->all_reduce(view(data), Reduction::sum);
      queued = group->barrier();
      work.wait();
    } catch (const CommError&) {
      try {
        queued.wait();
      } catch (const CommError& e) {
        later[static_cast<size_t>(rank)] = e.what();
      }
      throw;
    }
  });
  CHECK(CommClock::now() - begin >= 100ms);
  for (const size_t waiting : {0u, 1u}) {
    const std::string first = message_of(outcome.errors[waiting]);
    CHECK_THAT(first, Contains("all_reduce of 10 f32: rank"));
    CHECK(timed_out_since(first, begin));
    CHECK_THAT(first, Contains("rank 2 (check of collective 0"));
  }
  CHECK_THAT(later[0], Contains("rank 0: barrier, collective 1: not run"));
  CHECK_THAT(later[0], Contains("all_reduce of 10 f32"));
  CHECK_THAT(message_of(outcome.errors[2]), Contains("timed out"));  // told by abort
}

TEST_CASE("Ranks that do different things get a mismatch that names both", "[group]") {
  const auto begin = CommClock::now();
  const CommClock::duration timeout = 30s;
  const auto run = [&](bool verify, auto first) {
    const RankOutcome outcome = run_ranks_and_collect(3, [&](int rank, Transport& transport) {
      GroupOptions options;
      options.verify = verify;
      options.timeout = timeout;
      const auto group = make_ring_group(transport, options);
      std::vector<float> data(rank == 1 ? 12 : 15);
      first(rank, *group, data).wait();
    });
    std::string all;
    for (const auto& e : outcome.errors) all += message_of(e) + "\n";
    return all;
  };
  const auto sizes = [](int, ProcessGroup& g, auto& data) {
    return g.all_reduce(view(data), Reduction::sum);
  };
  const auto order = [](int rank, ProcessGroup& g, auto& data) {
    return rank == 1 ? g.barrier() : g.all_reduce(view(data), Reduction::sum);
  };
  const auto roots = [](int rank, ProcessGroup& g, auto& data) {
    return g.broadcast(TensorView(data.data(), DType::f32, {12}), rank == 2 ? 0 : 1);
  };
  // Two pairs of neighbours disagree: whichever notices first.
  CHECK_THAT(run(true, sizes),
             Contains("ranks disagree on collective 0: rank 0 calls all_reduce of 15 f32, rank 1 "
                      "calls all_reduce of 12 f32") ||
                 Contains("ranks disagree on collective 0: rank 1 calls all_reduce of 12 f32, rank "
                          "2 calls all_reduce of 15 f32"));
  CHECK_THAT(run(true, order),
             Contains("rank 0 calls all_reduce of 15 f32, rank 1 calls barrier") ||
                 Contains("rank 1 calls barrier, rank 2 calls all_reduce of 15 f32"));
  CHECK_THAT(run(true, roots),
             Contains("rank 2 calls broadcast of 12 f32 from 0, rank 0 calls broadcast") ||
                 Contains("rank 1 calls broadcast of 12 f32 from 1, rank 2 calls broadcast"));
  CHECK_THAT(run(false, sizes),
             Contains("sends 20 bytes, rank") || Contains("sends 16 bytes, rank"));
  CHECK(CommClock::now() - begin < timeout);  // none was needed
}

TEST_CASE("Verification costs a fixed number of small messages", "[group]") {
  for (const bool verify : {true, false}) {
    std::vector<Traffic> checks(3);
    run_ranks(3, [&](int rank, Transport& transport) {
      Recorder recorder(transport);
      GroupOptions options;
      options.verify = verify;
      std::vector<float> data(1000);
      const auto group = make_ring_group(recorder, options);
      for (int i = 0; i < 5; ++i) group->all_reduce(view(data), Reduction::sum).wait();
      checks[static_cast<size_t>(rank)] = recorder.verification();
    });
    for (const Traffic& t : checks) {
      CHECK(t.messages == (verify ? 10 : 0));
      CHECK(t.largest <= 96);
    }
  }
}

TEST_CASE("reduce_scatter: every rank has its chunk's sum, and sent all the others",
          "[slow][group]") {
  for (const int ranks : {1, 2, 3, 4, 5, 7}) {
    for (const size_t n : {0u, 1u, 3u, 64u, 1003u}) {
      for (const size_t message : {16u, 256u * 1024u}) {
        std::atomic<int> wrong{0};
        run_ranks(ranks, [&](int rank, Transport& transport) {
          Recorder recorder(transport);
          GroupOptions options;
          options.message_bytes = message;
          const auto group = make_ring_group(recorder, options);
          std::vector<float> data = input<float>(rank, n);
          const std::vector<float> sum = expected_sum<float>(ranks, n);
          group->reduce_scatter(view(data), Reduction::sum).wait();
          const ChunkRange own = chunk_range(static_cast<int64_t>(n), ranks, rank);
          for (auto i = static_cast<size_t>(own.begin); i < static_cast<size_t>(own.end); ++i) {
            wrong += data[i] != sum[i];
          }
          const size_t others = n - static_cast<size_t>(own.size());
          wrong += recorder.sent().bytes != (ranks == 1 ? 0 : others * sizeof(float));
          // All-gathered, it is the all-reduce.
          group->all_gather(view(data)).wait();
          wrong += data != sum;
        });
        INFO(ranks << " ranks, " << n << " elements, messages of " << message);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("all_gather of any dtype, exact bytes", "[group]") {
  for (const int ranks : {1, 2, 3, 4, 5, 7}) {
    std::atomic<int> wrong{0};
    run_ranks(ranks, [&](int rank, Transport& transport) {
      Recorder recorder(transport);
      const auto group = make_ring_group(recorder);
      const auto check = [&]<class E>(E, DType dtype, int64_t n) {
        const uint64_t before = recorder.sent().bytes;
        std::vector<E> data(static_cast<size_t>(n), E(99));
        const ChunkRange own = chunk_range(n, ranks, rank);
        for (int64_t i = own.begin; i < own.end; ++i) data[static_cast<size_t>(i)] = E(i % 90);
        group->all_gather(TensorView(data.data(), dtype, {n})).wait();
        for (int64_t i = 0; i < n; ++i) wrong += data[static_cast<size_t>(i)] != E(i % 90);
        const int64_t sent = n - chunk_range(n, ranks, (rank + 1) % ranks).size();
        wrong += recorder.sent().bytes - before !=
                 (ranks == 1 ? 0 : static_cast<uint64_t>(sent) * sizeof(E));
      };
      check(uint8_t{}, DType::u8, 131);
      check(uint16_t{}, DType::bf16, 70'001);
      check(int32_t{}, DType::i32, 5);
      check(double{}, DType::f64, 1);
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("Misuse of a group is an Error at the call", "[group]") {
  run_ranks(2, [](int, Transport& transport) {
    const auto group = make_ring_group(transport);
    std::vector<int32_t> integers(4);
    const TensorView data(integers.data(), DType::i32, {4});
    bool dtype = false, root = false, member = false;
    try {
      (void)group->all_reduce(data, Reduction::sum);
    } catch (const Error& e) {
      dtype = std::string(e.what()).find("i32, expected f32 or f64") != std::string::npos;
    }
    try {
      (void)group->broadcast(data, 2);
    } catch (const Error& e) {
      root = std::string(e.what()).find("rank 2 of a group of 2") != std::string::npos;
    }
    try {
      (void)make_ring_group(transport, {.members = {0, 5}});
    } catch (const Error& e) {
      member = std::string(e.what()).find("member 5") != std::string::npos;
    }
    if (!dtype || !root || !member) throw Error("misuse was not reported");
  });
}

}  // namespace
}  // namespace rondo
