#include "engine/plan/measure_links.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "comm/group/process_group.h"
#include "comm/in_process/run_ranks.h"
#include "engine/plan/cluster_links.h"
#include "engine/plan/fit.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

constexpr size_t most_bytes = size_t{16} << 20;
constexpr size_t sizes[] = {256, 4096, 65536, size_t{1} << 20, size_t{4} << 20, most_bytes};

double seconds_since(CommClock::time_point begin) {
  return std::chrono::duration<double>(CommClock::now() - begin).count();
}

// The median of runs that all ranks begin together; the first one warms up.
double median_seconds(ProcessGroup& control, size_t bytes, const std::function<void()>& action) {
  const size_t runs = bytes < (size_t{1} << 20) ? 41 : 9;
  std::vector<double> seconds;
  for (size_t i = 0; i <= runs; ++i) {
    control.barrier().wait();
    const auto begin = CommClock::now();
    action();
    if (i > 0) seconds.push_back(seconds_since(begin));
  }
  return median(std::move(seconds));
}

// Between ranks 0 and 1; the others wait.
void there_and_back(ProcessGroup& group, std::span<std::byte> data) {
  if (group.rank() > 1) return;
  const int other = 1 - group.rank();
  for (const bool there : {true, false}) {
    const bool sends = there == (group.rank() == 0);
    (sends ? group.send(other, 0, data) : group.recv(other, 0, data)).wait();
  }
}

constexpr size_t burst_messages = 64;

// Many messages of sizes[0] from rank 0 to rank 1 at once, and one back.
void burst_and_back(ProcessGroup& group, std::span<std::byte> data) {
  if (group.rank() > 1) return;
  const bool sends = group.rank() == 0;
  std::vector<Work> all;
  for (size_t i = 0; i < burst_messages; ++i) {
    const auto part = data.subspan(i * sizes[0], sizes[0]);
    all.push_back(sends ? group.send(1, 0, part) : group.recv(0, 0, part));
  }
  for (Work& w : all) w.wait();
  (sends ? group.recv(1, 0, data.first(sizes[0])) : group.send(0, 0, data.first(sizes[0]))).wait();
}

// Rank 0's, on all ranks.
void share(ProcessGroup& group, std::vector<LinkTime>& times) {
  std::vector<double> seconds;
  for (const LinkTime& t : times) seconds.push_back(t.seconds);
  group.broadcast(TensorView(seconds.data(), DType::f64, {static_cast<int64_t>(seconds.size())}), 0)
      .wait();
  for (size_t i = 0; i < times.size(); ++i) times[i].seconds = seconds[i];
}

// The times of rings that sum f32 elements.
std::vector<LinkTime> measure_rings(ProcessGroup& control,
                                    const std::function<void(int64_t elements)>& all_reduce) {
  std::vector<LinkTime> times;
  for (const size_t bytes : sizes) {
    const auto elements = static_cast<int64_t>(bytes / sizeof(float));
    times.push_back(
        {LinkTime::ring, bytes, median_seconds(control, bytes, [&] { all_reduce(elements); })});
  }
  return times;
}

}  // namespace

double seconds_of(const LinkModel& link, LinkTime::Kind kind, int ranks, double bytes) {
  switch (kind) {
    case LinkTime::message:
      return link.seconds(bytes);
    case LinkTime::burst:
      return link.busy(bytes);
    case LinkTime::ring:
      break;
  }
  return ring_seconds(link.in_ring(), ranks, bytes);
}

LinkModel fit_link(std::span<const LinkTime> times, int ranks) {
  std::vector<Sample> messages, rings;
  double gap = 0;
  for (const LinkTime& t : times) {
    if (t.kind == LinkTime::burst) {
      gap = t.seconds;
      continue;
    }
    const bool ring = t.kind == LinkTime::ring;
    Sample s;
    s.work.launches = ring ? 2 * (ranks - 1) : 1;
    s.work.bytes = s.work.launches * static_cast<double>(t.bytes) / (ring ? ranks : 1);
    s.seconds = std::max(t.seconds, 1e-9);
    (ring ? rings : messages).push_back(s);
  }
  const Rates of_ring = fit_rates(rings),
              of_message = messages.empty() ? of_ring : fit_rates(messages);
  const auto bandwidth = [](const Rates& r) { return 1 / std::max(r.byte, 1e-15); };
  return {"", true, of_message.launch, bandwidth(of_message), of_ring.launch, bandwidth(of_ring),
          gap};
}

std::vector<LinkTime> measure_links(ProcessGroup& group) {
  RONDO_CHECK(group.size() > 1, "links of a single rank");
  std::vector<float> data(most_bytes / sizeof(float), 0.0f);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(data));
  std::vector<LinkTime> times;
  for (const size_t n : sizes) {
    const double both = median_seconds(group, n, [&] { there_and_back(group, bytes.first(n)); });
    times.push_back({LinkTime::message, n, both / 2});
  }
  const double both = median_seconds(group, sizes[0], [&] { burst_and_back(group, bytes); });
  const double further = (both - 2 * times[0].seconds) / (burst_messages - 1);
  times.push_back({LinkTime::burst, sizes[0], std::max(0.0, further)});
  const auto rings = measure_rings(group, [&](int64_t n) {
    group.all_reduce(TensorView(data.data(), DType::f32, {n}), Reduction::sum).wait();
  });
  times.insert(times.end(), rings.begin(), rings.end());
  share(group, times);
  return times;
}

std::vector<LinkTime> measure_links(DeviceGroup& sums, ProcessGroup& control) {
  RONDO_CHECK(control.size() > 1, "links of a single rank");
  const Buffer data(sums.device(), most_bytes, "measuring the link");
  sums.device().fill_bytes(sums.stream(), data.data(), 0, most_bytes);
  std::vector<LinkTime> times = measure_rings(control, [&](int64_t n) {
    sums.all_reduce(TensorView(data.data(), DType::f32, {n}), Reduction::sum).wait();
  });
  share(control, times);
  return times;
}

LinkModel measure_thread_link() {
  LinkModel link;
  run_ranks(2, [&link](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    const auto times = measure_links(*group);
    if (rank == 0) link = fit_link(times, 2);
  });
  link.name = "threads";
  return link;
}

}  // namespace rondo::plan
