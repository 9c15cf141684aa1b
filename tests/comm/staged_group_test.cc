// Groups of devices by way of the host: sums, order on streams, and how they fail.
#include <algorithm>
#include <atomic>
#include <thread>

#include "comm/group/collectives.h"
#include "comm/group/staged_group.h"
#include "comm/in_process/run_ranks.h"
#include "kernels/simt/sim/scheduler.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/comm/time_limits.h"

using namespace rondo;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

std::unique_ptr<DeviceGroup> staged(Device& device, Transport& transport,
                                    CommClock::duration timeout = std::chrono::seconds(20)) {
  GroupOptions g;
  g.id = 1;
  g.timeout = timeout;
  return make_staged_group(device, make_ring_group(transport, g), timeout);
}

std::string message_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const CommError& e) {
    return str(name_of(e.kind()), ": ", e.what());
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("collectives by way of the host, on devices that queue and on those that do not",
          "[staged]") {
  for (Device* device : {&sim_device(), &cpu_device()}) {
    for (int ranks : {1, 2, 3}) {
      run_ranks(ranks, [&](int rank, Transport& transport) {
        const auto group = staged(*device, transport);
        constexpr int64_t n = 1001;
        const Buffer a(*device, n * sizeof(float), "test"), b(*device, n * sizeof(float), "test");
        for (int64_t i = 0; i < n; ++i) {
          a.as<float>()[i] = static_cast<float>(i + rank);
          b.as<float>()[i] = static_cast<float>(rank);
        }
        Work sum = group->all_reduce({a.data(), DType::f32, {n}}, Reduction::sum);
        Work copy = group->broadcast({b.data(), DType::f32, {n}}, ranks - 1);
        group->barrier().wait();
        sum.wait();
        copy.wait();
        for (int64_t i = 0; i < n; ++i) {
          const auto wanted = static_cast<float>(ranks * i + ranks * (ranks - 1) / 2);
          if (a.as<float>()[i] != wanted) throw Error("a wrong sum");
          if (b.as<float>()[i] != static_cast<float>(ranks - 1)) throw Error("a wrong copy");
        }
        // Every chunk twice, but the two after this rank's own once.
        int64_t elements = ranks > 1 ? 2 * n : 0;
        for (int once : {rank + 1, rank + 2}) {
          if (ranks > 1) elements -= chunk_range(n, ranks, once % ranks).size();
        }
        if (sum.bytes() != static_cast<size_t>(elements) * sizeof(float)) {
          throw Error(str(sum.bytes(), " bytes were sent, expected those of ", elements));
        }
        if (ranks < 2 || rank > 1) return;
        const std::span bytes(a.as<std::byte>(), 8);
        if (rank == 0) {
          group->send(1, 5, bytes).wait();
        } else {
          b.as<float>()[0] = -1;
          group->recv(0, 5, {b.as<std::byte>(), 8}).wait();
          if (b.as<float>()[0] != a.as<float>()[0]) throw Error("a wrong message");
        }
      });
    }
  }
}

TEST_CASE("sums by way of the host keep the order of streams", "[staged]") {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    set_sim_options({.seed = seed});
    run_ranks(3, [](int rank, Transport& transport) {
      Device& device = sim_device();
      const auto group = staged(device, transport);
      const Buffer a(device, 400, "test"), b(device, 400, "test");
      Stream compute = device.make_stream();
      Event ready = device.make_event(), done = device.make_event();
      for (int step = 1; step <= 3; ++step) {
        compute.enqueue(
            [&, step] { std::fill_n(a.as<float>(), 100, static_cast<float>(step + rank)); });
        ready.record(compute);
        ready.wait(group->stream());
        Work work = group->all_reduce({a.data(), DType::f32, {100}}, Reduction::sum);
        done.record(group->stream());
        done.wait(compute);
        device.copy(compute, b.data(), a.data(), 400);
        compute.synchronize();
        for (int i = 0; i < 100; ++i) {
          if (b.as<float>()[i] != static_cast<float>(3 * step + 3)) throw Error("a wrong sum");
        }
        work.wait();
      }
    });
  }
  set_sim_options({});
}

TEST_CASE("a rank that is late, aborts or leaves ends the others with a cause", "[staged]") {
  // A deadline that a busy machine does not come near: where it is given, the cause has to arrive.
  const milliseconds far(30000);
  std::atomic<int> ended{0};
  const auto outcome_of = [&](milliseconds deadline,
                              const std::function<void(int, DeviceGroup&)>& late) {
    const auto begin = CommClock::now();
    const RankOutcome outcome = run_ranks_and_collect(3, [&](int rank, Transport& transport) {
      const auto group = staged(sim_device(), transport, deadline);
      const Buffer a(sim_device(), 400, "test");
      const TensorView view(a.data(), DType::f32, {100});
      group->all_reduce(view, Reduction::sum, within(far)).wait();
      if (rank == 1) late(rank, *group);
      Work first = group->all_reduce(view, Reduction::sum);
      Work second = group->all_reduce(view, Reduction::sum);
      try {
        first.wait();
      } catch (...) {
        ++ended;
        throw;
      }
      second.wait();
    });
    CHECK(CommClock::now() - begin < far);
    return message_of(outcome.errors[0]);
  };
  // The two that wait do so for rank 1; a busy machine may hold up one of them so that the other
  // one has waited for that first, or names nobody. Then they do it again.
  std::string late;
  for (int attempt = 0; attempt < 10 && late.find("rank 1") == std::string::npos; ++attempt) {
    const auto begin = CommClock::now();
    ended = 0;
    late = outcome_of(milliseconds(300), [&](int, DeviceGroup&) {
      while (ended < 2 && CommClock::now() < begin + far)
        std::this_thread::sleep_for(milliseconds(1));
    });
    INFO(late);
    CHECK(timed_out_since(late, begin));
  }
  CHECK_THAT(late, Contains("rank 1"));
  CHECK_THAT(outcome_of(far, [](int, DeviceGroup& g) { g.abort("no more data"); }),
             Contains("rank 1 aborted: no more data"));
  CHECK_THAT(outcome_of(far, [](int, DeviceGroup&) { throw Error("bad data"); }),
             Contains("bad data"));
}

TEST_CASE("dropping a Work frees its memory at once", "[staged]") {
  std::atomic<bool> dropped{false};
  const RankOutcome outcome = run_ranks_and_collect(2, [&](int rank, Transport& transport) {
    const auto group = staged(sim_device(), transport);
    if (rank == 1) {  // is there until the other one has dropped its part of the sum
      const Deadline end = within(std::chrono::seconds(20));
      while (!dropped && CommClock::now() < end) std::this_thread::sleep_for(milliseconds(1));
      throw Error("gives up");
    }
    {
      const Buffer a(sim_device(), 400, "test");
      static_cast<void>(group->all_reduce({a.data(), DType::f32, {100}}, Reduction::sum));
    }
    dropped = true;
    const Buffer b(sim_device(), 400, "test");
    group->all_reduce({b.data(), DType::f32, {100}}, Reduction::sum).wait();
  });
  CHECK_THAT(message_of(outcome.errors[0]), Contains("withdrawn before it was done"));
}
