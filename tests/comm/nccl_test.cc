// The NCCL adapter over the stand-in: sums, bytes, order on streams, and every way to fail.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <random>

#include "comm/group/collectives.h"
#include "comm/in_process/run_ranks.h"
#include "kernels/simt/sim/scheduler.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/comm/nccl_ranks.h"
#include "tests/comm/time_limits.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

void require_success(const std::vector<std::string>& failures) {
  for (const std::string& f : failures) REQUIRE(f == "");
}

// Whole numbers whose sums are exact in every type: rank r's element i.
double part(int rank, int64_t i) { return static_cast<double>(i % 13 + rank); }
double total(int ranks, int64_t i) {
  return static_cast<double>(ranks * (i % 13) + ranks * (ranks - 1) / 2);
}

bool holds(const Values& values, const ChunkRange& range, int ranks) {
  for (int64_t i = range.begin; i < range.end; ++i) {
    if (values[i] != total(ranks, i)) return false;
  }
  return true;
}

// What rank r sends: every chunk twice, but its right neighbour's and the one after that once.
size_t all_reduce_elements(int rank, int ranks, int64_t n) {
  int64_t sent = 2 * n;
  sent -= chunk_range(n, ranks, (rank + 1) % ranks).size();
  sent -= chunk_range(n, ranks, (rank + 2) % ranks).size();
  return static_cast<size_t>(sent);
}

std::vector<float> random_values(int rank, int64_t n) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(random);
  return values;
}

// A rank waits in vain for as long as `soon`; `far` is farther than a busy machine holds it up.
constexpr milliseconds soon(300), far(20000);

template <class Condition>
void wait_for(const Condition& condition) {
  const Deadline end = within(far);
  while (!condition() && CommClock::now() < end) std::this_thread::sleep_for(milliseconds(1));
}

// What ranks end with of whom one is asked where it stands; again where a busy machine has kept a
// rank from answering within the half second that it has.
std::vector<std::string> answered(const std::function<std::vector<std::string>()>& run) {
  for (int attempt = 0;; ++attempt) {
    std::vector<std::string> failures = run();
    const bool silent = std::any_of(failures.begin(), failures.end(), [](const std::string& f) {
      return f.find("does not answer") != std::string::npos;
    });
    if (!silent || attempt == 9) return failures;
  }
}

}  // namespace

TEST_CASE("our ring over NCCL: exact sums, and as many bytes as the ring needs", "[nccl]") {
  struct Case {
    DType dtype;
    Wire wire;
    size_t message_bytes;
  };
  const Case cases[] = {{DType::f32, Wire::exact, 1024},
                        {DType::f32, Wire::exact, 1 << 20},
                        {DType::bf16, Wire::exact, 512},
                        {DType::f32, Wire::bf16, 512}};
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const Case& c : cases) {
      const size_t width = c.wire == Wire::bf16 ? 2 : size_of(c.dtype);
      require_success(run_nccl_ranks(
          ranks, {.options =
                      [&](NcclOptions& o) {
                        o.wire = c.wire;
                        o.message_bytes = c.message_bytes;
                        o.algorithm = NcclAlgorithm::ring;
                      },
                  .body =
                      [&](int rank, DeviceGroup& group) {
                        for (int64_t n : {1, 3, 1200, 4099}) {
                          const Values v(c.dtype, n, [&](int64_t i) { return part(rank, i); });
                          Work work = group.all_reduce(v.view(), Reduction::sum);
                          work.wait();
                          if (!holds(v, {0, n}, ranks)) throw Error(str("a wrong sum of ", n));
                          const size_t bytes =
                              ranks == 1 ? 0 : width * all_reduce_elements(rank, ranks, n);
                          if (work.bytes() != bytes) {
                            throw Error(str(n, ": sent ", work.bytes(), ", expected ", bytes));
                          }
                          // Exactly 2(N-1)/N of the tensor, when N divides it.
                          if (n % ranks == 0 && ranks > 1 &&
                              bytes * static_cast<size_t>(ranks) !=
                                  2 * static_cast<size_t>(ranks - 1) * width *
                                      static_cast<size_t>(n)) {
                            throw Error("the formula is wrong");
                          }
                        }
                      }}));
    }
  }
}

TEST_CASE("our ring over NCCL gives the bits of the ring on the host", "[nccl]") {
  constexpr int64_t n = 3001;
  for (const Wire wire : {Wire::exact, Wire::bf16}) {
    for (int ranks : {2, 3, 4}) {
      std::vector<std::vector<float>> host(static_cast<size_t>(ranks));
      run_ranks(ranks, [&](int rank, Transport& transport) {
        GroupOptions g;
        g.wire = wire;
        const auto group = make_ring_group(transport, g);
        auto values = random_values(rank, n);
        group->all_reduce(TensorView(values.data(), DType::f32, {n}), Reduction::sum).wait();
        host[static_cast<size_t>(rank)] = values;
      });
      require_success(run_nccl_ranks(
          ranks, {.options =
                      [&](NcclOptions& o) {
                        o.wire = wire;
                        o.message_bytes = 1024;
                        o.algorithm = NcclAlgorithm::ring;
                      },
                  .body =
                      [&](int rank, DeviceGroup& group) {
                        const auto own = random_values(rank, n);
                        const Values v(DType::f32, n, [&](int64_t i) {
                          return static_cast<double>(own[static_cast<size_t>(i)]);
                        });
                        group.all_reduce(v.view(), Reduction::sum).wait();
                        if (std::memcmp(v.bytes(), host[static_cast<size_t>(rank)].data(),
                                        n * sizeof(float)) != 0) {
                          throw Error("other bits than on the host");
                        }
                      }}));
    }
  }
}

TEST_CASE("NCCL's own collectives, and the others", "[nccl]") {
  for (const NcclAlgorithm algorithm : {NcclAlgorithm::nccl, NcclAlgorithm::ring}) {
    for (int ranks : {1, 2, 3}) {
      const auto body = [&](int rank, DeviceGroup& group) {
        for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
          if (dtype == DType::f64 && algorithm == NcclAlgorithm::ring) continue;
          for (const int64_t n : {6, 601}) {
            const auto fresh = [&] {
              return Values(dtype, n, [&](int64_t i) { return part(rank, i); });
            };
            const auto require = [&](bool right, const char* what) {
              if (!right) throw Error(str("wrong: ", what, " of ", n, " ", name_of(dtype)));
            };
            const Values reduced = fresh(), scattered = fresh(), gathered = fresh(), sent = fresh();
            Work a = group.all_reduce(reduced.view(), Reduction::sum);
            Work b = group.reduce_scatter(scattered.view(), Reduction::sum);
            Work c = group.all_gather(gathered.view());
            Work d = group.broadcast(sent.view(), ranks - 1);
            Work e = group.barrier();
            for (Work* w : {&e, &d, &c, &b, &a}) w->wait();
            require(holds(reduced, {0, n}, ranks), "all_reduce");
            require(holds(scattered, chunk_range(n, ranks, rank), ranks), "reduce_scatter");
            for (int r = 0; r < ranks; ++r) {
              const ChunkRange chunk = chunk_range(n, ranks, r);
              for (int64_t i = chunk.begin; i < chunk.end; ++i) {
                require(gathered[i] == part(r, i), "all_gather");
              }
            }
            for (int64_t i = 0; i < n; ++i) require(sent[i] == part(ranks - 1, i), "broadcast");
          }
        }
      };
      require_success(run_nccl_ranks(
          ranks, {.options = [&](NcclOptions& o) { o.algorithm = algorithm; }, .body = body}));
    }
  }
}

TEST_CASE("messages between ranks: one exchange, or in an order that fits", "[nccl]") {
  require_success(
      run_nccl_ranks(2, {.body = [](int rank, DeviceGroup& group) {
                       const Values out(DType::f32, 100, [&](int64_t i) { return part(rank, i); });
                       const Values in(DType::f32, 100, [](int64_t) { return 0.0; });
                       const auto bytes = [](const Values& v) {
                         return std::span(static_cast<std::byte*>(v.view().data), v.view().bytes());
                       };
                       const NcclMessage send{1 - rank, bytes(out)}, recv{1 - rank, bytes(in)};
                       Work both = nccl_exchange(group, {&send, 1}, {&recv, 1});
                       both.wait();
                       if (in[7] != part(1 - rank, 7) || both.bytes() != 400)
                         throw Error("a wrong message");
                       if (rank == 0) {
                         group.send(1, 3, bytes(out)).wait();
                       } else {
                         group.recv(0, 3, bytes(in)).wait();
                       }
                       if (in[9] != part(rank == 0 ? 1 : 0, 9)) throw Error("a wrong message");
                     }}));
}

TEST_CASE("sums start when their event has come, and are there when theirs has", "[nccl]") {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    set_sim_options({.seed = seed});
    require_success(run_nccl_ranks(
        3, {.body = [](int rank, DeviceGroup& group) {
          constexpr int64_t n = 700;
          const Values a(DType::f32, n, [](int64_t) { return 0.0; });
          const Values b(DType::f32, n, [](int64_t) { return 0.0; });
          Stream compute = sim_device().make_stream();
          Event ready = sim_device().make_event(), done = sim_device().make_event();
          for (int step = 1; step <= 3; ++step) {
            compute.enqueue([&, step] {
              for (int64_t i = 0; i < n; ++i)
                a.view().as<float>()[i] = static_cast<float>(step + rank);
            });
            ready.record(compute);
            ready.wait(group.stream());
            Work work = group.all_reduce(a.view(), Reduction::sum);
            done.record(group.stream());
            done.wait(compute);
            sim_device().copy(compute, b.view().data, a.view().data, a.view().bytes());
            compute.synchronize();
            for (int64_t i = 0; i < n; ++i) {
              if (b[i] != 3 * step + 3) throw Error(str("read ", b[i], " in step ", step));
            }
            work.wait();
          }
        }}));
  }
  set_sim_options({});
}

TEST_CASE("a rank that is late to the first sum is waited for", "[nccl]") {
  require_success(run_nccl_ranks(2, {.body = [](int rank, DeviceGroup& group) {
                                   const Values v(DType::f32, 50,
                                                  [&](int64_t i) { return part(rank, i); });
                                   if (rank == 1) std::this_thread::sleep_for(milliseconds(100));
                                   group.all_reduce(v.view(), Reduction::sum).wait();
                                   if (!holds(v, {0, 50}, 2)) throw Error("a wrong sum");
                                 }}));
}

TEST_CASE("who waits in NCCL is let go when a rank aborts, and at the deadline", "[nccl]") {
  for (const bool aborts : {true, false}) {
    std::atomic<int> ended{0};
    const auto failures = answered([&] {
      ended = 0;
      return run_nccl_ranks(3, {.body = [&](int rank, DeviceGroup& group) {
                              const Values v(DType::f32, 50, [](int64_t) { return 1.0; });
                              if (rank == 0) {
                                if (aborts) return group.abort("no more data");
                                wait_for([&] { return ended == 2; });
                                return;
                              }
                              Work work =
                                  group.all_reduce(v.view(), Reduction::sum,
                                                   within(rank == 1 && !aborts ? soon : far));
                              const std::string failure = failure_of(std::move(work));
                              ++ended;
                              throw Error(failure);
                            }});
    });
    CHECK(failures[0] == "");
    for (int rank : {1, 2}) {
      CHECK_THAT(failures[static_cast<size_t>(rank)],
                 Contains(aborts ? "rank 0 aborted: no more data" : "has issued 0 collectives"));
    }
  }
}

TEST_CASE("sends before receives in separate groups wait until the deadline", "[nccl]") {
  const auto begin = CommClock::now();
  const auto failures = run_nccl_ranks(
      2, {.options = [](NcclOptions& o) { o.timeout = milliseconds(300); },
          .body =
              [](int rank, DeviceGroup& group) {
                const Values v(DType::f32, 10, [](int64_t) { return 1.0; });
                const std::span bytes(static_cast<std::byte*>(v.view().data), v.view().bytes());
                Work send = group.send(1 - rank, 0, bytes), recv = group.recv(1 - rank, 0, bytes);
                const std::string failure = failure_of(std::move(send));
                const std::string after = failure_of(std::move(recv));
                if (!Contains("aborted: ").match(after)) throw Error("not aborted: " + after);
                throw Error(failure);
              }});
  int timed_out = 0;
  for (const std::string& f : failures) {
    CHECK(timed_out_since(f, begin));
    timed_out += f.starts_with("timeout: ") ? 1 : 0;
  }
  CHECK(timed_out >= 1);
}

TEST_CASE("ranks in different collectives are told so", "[nccl]") {
  const auto failures = answered([] {
    std::atomic<int> issued{0};
    return run_nccl_ranks(3, {.body = [&](int rank, DeviceGroup& group) {
                            const Values v(DType::f32, 12, [](int64_t) { return 1.0; });
                            group.barrier().wait();
                            TensorView view = v.view();
                            if (rank == 1) view.dims[0] = 9;
                            // Rank 0 waits in vain, when the others are there.
                            if (rank == 0) wait_for([&] { return issued == 2; });
                            Work work = group.all_reduce(view, Reduction::sum,
                                                         within(rank == 0 ? soon : far));
                            ++issued;
                            work.wait();
                          }});
  });
  bool mismatch = false;
  for (const std::string& f : failures) {
    CHECK_THAT(f, Contains("ranks disagree on collective 1") &&
                      Contains("rank 1 calls all_reduce of 9 f32") &&
                      Contains(" calls all_reduce of 12 f32"));
    mismatch = mismatch || f.starts_with("mismatch: ");
  }
  CHECK(mismatch);
}

TEST_CASE("a rank that is late is named", "[nccl]") {
  const auto failures = answered([] {
    std::atomic<bool> issued{false}, ended{false};
    return run_nccl_ranks(3, {.body = [&](int rank, DeviceGroup& group) {
                            const Values v(DType::f32, 12, [](int64_t) { return 1.0; });
                            group.barrier().wait();
                            if (rank == 0) wait_for([&] { return issued.load(); });
                            if (rank == 2) wait_for([&] { return ended.load(); });
                            Work work = group.all_reduce(v.view(), Reduction::sum,
                                                         within(rank == 0 ? soon : far));
                            if (rank == 1) issued = true;
                            const std::string failure = failure_of(std::move(work));
                            if (rank == 0) ended = true;
                            throw Error(failure);
                          }});
  });
  for (const std::string& f : failures) {
    CHECK_THAT(f, Contains("rank 2 has issued 1 collectives"));
  }
}

TEST_CASE("a rank that does not come is named", "[nccl]") {
  const auto failures = run_nccl_ranks(
      3, {.options =
              [](NcclOptions& o) {
                if (o.rank == 1) throw Error("stays away");
                // As long as it takes that both are there.
                const int other = 2 - o.rank;
                o.store->set(str("comes/", o.rank), "", within(far));
                o.store->get(str("comes/", other), within(far));
                if (other == 0) o.store->get(str(o.name, "/here/", other), within(far));
                o.timeout = soon;
              },
          .body = [](int, DeviceGroup&) { throw Error("came about without rank 1"); }});
  CHECK(failures[1] == "stays away");
  for (int rank : {0, 2}) {
    CHECK_THAT(failures[static_cast<size_t>(rank)],
               Contains("connecting by NCCL") && Contains("not there: rank 1"));
  }
}

TEST_CASE("an error that NCCL reports ends all ranks with its cause", "[nccl]") {
  StandInFaults faults;
  faults.failing_rank = 1;
  faults.error = ncclRemoteError;
  for (const int groups : {0, 5}) {
    faults.groups_before = groups;
    const auto failures =
        run_nccl_ranks(3,
                       {.body =
                            [](int, DeviceGroup& group) {
                              const Values v(DType::f32, 1000, [](int64_t) { return 1.0; });
                              for (int i = 0; i < 5; ++i)
                                group.all_reduce(v.view(), Reduction::sum).wait();
                            }},
                       faults);
    CHECK(failures[1].starts_with("peer lost: "));
    for (const std::string& f : failures) CHECK_THAT(f, Contains("remote process exited"));
    for (int rank : {0, 2}) {
      CHECK(failures[static_cast<size_t>(rank)].starts_with("aborted: "));
      CHECK_THAT(failures[static_cast<size_t>(rank)], Contains("rank 1 aborted: "));
    }
  }
}

TEST_CASE("a rank that aborts tells the others why", "[nccl]") {
  const auto begin = CommClock::now();
  const auto failures =
      run_nccl_ranks(3, {.body = [](int rank, DeviceGroup& group) {
                       const Values v(DType::f32, 1000, [](int64_t) { return 1.0; });
                       group.all_reduce(v.view(), Reduction::sum).wait();
                       if (rank == 2) group.abort("no more data");
                       group.all_reduce(v.view(), Reduction::sum).wait();
                     }});
  CHECK(CommClock::now() - begin < far);  // no time-out was needed
  for (const std::string& f : failures) {
    CHECK(f.starts_with("aborted: "));
    CHECK_THAT(f, Contains("rank 2 aborted: no more data"));
  }
}

TEST_CASE("a rank that leaves is lost to those who wait for it", "[nccl]") {
  // If none, they wait in NCCL, which has not connected them.
  for (const bool sums_before : {true, false}) {
    const auto begin = CommClock::now();
    const auto failures =
        run_nccl_ranks(3, {.body = [&](int rank, DeviceGroup& group) {
                         const Values v(DType::f32, 1000, [](int64_t) { return 1.0; });
                         if (sums_before) group.all_reduce(v.view(), Reduction::sum).wait();
                         if (rank == 0) return;
                         group.all_reduce(v.view(), Reduction::sum).wait();
                       }});
    CHECK(CommClock::now() - begin < far);  // no time-out was needed
    CHECK(failures[0] == "");
    for (int rank : {1, 2}) {
      CHECK_THAT(failures[static_cast<size_t>(rank)], Contains("rank 0 is lost: it has finished"));
    }
  }
}

TEST_CASE("dropping a Work ends the group, and its memory is free", "[nccl]") {
  std::atomic<bool> dropped{false};
  const auto failures =
      run_nccl_ranks(2, {.body = [&](int rank, DeviceGroup& group) {
                       const Values v(DType::f32, 100, [](int64_t) { return 1.0; });
                       group.barrier().wait();  // connects
                       if (rank == 1) {         // or the sum might be there before it is dropped
                         wait_for([&] { return dropped.load(); });
                         group.all_reduce(v.view(), Reduction::sum).wait();
                         return;
                       }
                       {
                         const Values own(DType::f32, 100, [](int64_t) { return 1.0; });
                         static_cast<void>(group.all_reduce(own.view(), Reduction::sum));
                       }
                       dropped = true;
                       group.abort("unwinding");
                     }});
  CHECK(failures[0] == "");
  CHECK_THAT(failures[1], Contains("rank 0 aborted: unwinding"));
}

TEST_CASE("an abort that NCCL does not carry out is told", "[nccl]") {
  for (const bool hangs : {true, false}) {
    StandInFaults faults;
    faults.abort_hangs = hangs;
    std::mutex mutex;
    std::vector<std::string> told;
    const auto failures = run_nccl_ranks(
        2,
        {.options =
             [&](NcclOptions& o) {
               o.abort_timeout = hangs ? std::chrono::milliseconds(20) : std::chrono::minutes(10);
               o.hung = [&](const std::string& why) {
                 const std::lock_guard lock(mutex);
                 told.push_back(why);
                 if (told.size() == 2) let_aborts_end();  // what the end of the process would do
               };
             },
         .body =
             [](int rank, DeviceGroup& group) {
               const Values v(DType::f32, 100, [](int64_t) { return 1.0; });
               if (rank == 1) group.abort("no more data");
               group.all_reduce(v.view(), Reduction::sum).wait();
             }},
        faults);
    for (const std::string& f : failures) CHECK_THAT(f, Contains("rank 1 aborted: no more data"));
    CHECK(told.size() == (hangs ? 2 : 0));
    for (const std::string& why : told) CHECK_THAT(why, Contains("rank 1 aborted: no more data"));
  }
}

TEST_CASE("misuse is an error at the call", "[nccl]") {
  require_success(run_nccl_ranks(
      1, {.body = [](int, DeviceGroup& group) {
        const Values v(DType::f32, 4, [](int64_t) { return 1.0; });
        TensorView integers = v.view();
        integers.dtype = DType::i32;
        const auto refused = [](const auto& call) {
          try {
            call();
          } catch (const CommError&) {
            return false;
          } catch (const Error&) {
            return true;
          }
          return false;
        };
        const bool all = refused([&] { group.all_reduce(integers, Reduction::sum).wait(); }) &&
                         refused([&] { group.broadcast(v.view(), 1).wait(); }) &&
                         refused([&] { group.send(0, 1, {}).wait(); });
        if (!all) throw Error("misuse went unnoticed");
      }}));
}

TEST_CASE("NCCL itself is found, or what was looked for is told", "[nccl]") {
  std::string why;
  const Nccl* nccl = find_nccl(&why);
  if (nccl == nullptr) {
    CHECK_THAT(why, Contains("RONDO_NCCL"));
    return;
  }
  int version = 0;
  REQUIRE(nccl->get_version(&version) == ncclSuccess);
  CHECK(version >= 21901);
  CHECK(std::string(nccl->get_error_string(ncclRemoteError)) != "");
}
