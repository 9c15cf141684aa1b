// The real NCCL on the GPUs of this machine: every number of ranks from one to all of them, each
// rank a thread with a GPU of its own.
//
//   nccl_check            a line of JSON per number of ranks and kind of sum, with times
//
// Sums have to be exact, our ring has to send the bytes it says, a rank that gives up has to end
// the others. Exit status: 0 all passed, 1 something did not, 77 no GPU or no NCCL.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include "comm/group/collectives.h"
#include "comm/nccl/nccl_group.h"
#include "comm/store/memory_store.h"
#include "engine/reduce/device_arithmetic.h"
#include "kernels/devices.h"

using namespace rondo;

namespace {

constexpr int skipped = 77;
constexpr int64_t elements = (int64_t{64} << 20) / 4;
constexpr int repeats = 5;

struct Task {
  NcclAlgorithm algorithm;
  DType dtype;
  const char* name;
};
constexpr Task tasks[] = {{NcclAlgorithm::ring, DType::f32, "ring f32"},
                          {NcclAlgorithm::ring, DType::bf16, "ring bf16"},
                          {NcclAlgorithm::nccl, DType::f32, "nccl f32"},
                          {NcclAlgorithm::nccl, DType::bf16, "nccl bf16"}};

// Whole numbers that are exact in bf16, and so are their sums over sixteen ranks.
float part(int rank, int64_t i) { return static_cast<float>(i % 7 + rank % 2); }

void fill(std::vector<std::byte>& host, DType dtype, const std::function<float(int64_t)>& value) {
  visit_floating(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* to = reinterpret_cast<T*>(host.data());
    for (int64_t i = 0; i < elements; ++i) to[i] = T(value(i));
  });
}

// Seconds of one all-reduce, the least of a few. Throws when a sum is wrong.
double run_rank(const NcclOptions& options, const Task& task) {
  Device& device = *options.device;
  const auto group = make_nccl_group(options);
  std::vector<std::byte> host(static_cast<size_t>(elements) * size_of(task.dtype)), wanted = host;
  const int ranks = options.world_size;
  fill(host, task.dtype, [&](int64_t i) { return part(options.rank, i); });
  fill(wanted, task.dtype, [&](int64_t i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += part(r, i);
    return sum;
  });
  const Buffer data(device, host.size(), "nccl_check");
  const TensorView view(data.data(), task.dtype, {elements});
  double least = 0;
  for (int i = 0; i <= repeats; ++i) {
    device.copy(group->stream(), data.data(), host.data(), host.size());
    group->barrier().wait();
    const auto begin = CommClock::now();
    Work work = group->all_reduce(view, Reduction::sum);
    work.wait();
    const double seconds = std::chrono::duration<double>(CommClock::now() - begin).count();
    if (i == 1 || (i > 1 && seconds < least)) least = seconds;
    if (task.algorithm == NcclAlgorithm::ring && elements % ranks == 0 &&
        work.bytes() * static_cast<size_t>(ranks) !=
            2 * static_cast<size_t>(ranks - 1) * host.size()) {
      throw Error(str(work.bytes(), " bytes were sent"));
    }
    std::vector<std::byte> result(host.size());
    device.copy(group->stream(), result.data(), data.data(), result.size());
    group->stream().synchronize();
    if (std::memcmp(result.data(), wanted.data(), result.size()) != 0) throw Error("a wrong sum");
  }
  return least;
}

// Rank 0 gives up while the others wait for it.
void run_abort(const NcclOptions& options) {
  const auto group = make_nccl_group(options);
  const Buffer data(*options.device, 4096, "nccl_check");
  const TensorView view(data.data(), DType::f32, {1024});
  group->all_reduce(view, Reduction::sum).wait();
  if (options.rank == 0) return group->abort("as planned");
  try {
    group->all_reduce(view, Reduction::sum).wait();
  } catch (const CommError& e) {
    if (std::strstr(e.what(), "as planned") != nullptr) return;
    throw;
  }
  throw Error("a sum without rank 0");
}

// What went wrong, or nothing; the seconds of the slowest rank.
std::string on_ranks(const Nccl& nccl, const std::vector<Device*>& devices, int ranks,
                     NcclAlgorithm algorithm, const std::function<double(const NcclOptions&)>& body,
                     double* seconds) {
  const auto table = make_memory_table();
  std::mutex mutex;
  std::string wrong;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto store = make_memory_store(table);
        NcclOptions o;
        o.nccl = &nccl;
        o.device = devices[static_cast<size_t>(rank)];
        o.arithmetic = device_arithmetic(*o.device);
        o.rank = rank;
        o.world_size = ranks;
        o.store = store.get();
        o.timeout = std::chrono::seconds(60);
        o.algorithm = algorithm;
        const double own = body(o);
        const std::lock_guard lock(mutex);
        *seconds = std::max(*seconds, own);
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        if (wrong.empty()) wrong = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return wrong;
}

}  // namespace

int main() {
  std::string why;
  std::vector<Device*> devices;
  while (Device* device = find_device(DeviceKind::cuda, &why, static_cast<int>(devices.size()))) {
    devices.push_back(device);
  }
  const Nccl* nccl = devices.empty() ? nullptr : find_nccl(&why);
  if (nccl == nullptr) {
    std::fprintf(stderr, "nccl_check: skipped: %s\n", why.c_str());
    return skipped;
  }
  int version = 0;
  (void)nccl->get_version(&version);
  bool good = true;
  const auto tell = [&](int ranks, const char* name, const std::string& wrong, double seconds) {
    good = good && wrong.empty();
    const double bytes = static_cast<double>(elements) * (std::strstr(name, "bf16") ? 2 : 4);
    const double algbw = seconds > 0 ? bytes / seconds * 1e-9 : 0;
    std::printf(
        "{\"nccl\": %d, \"ranks\": %d, \"sum\": \"%s\", \"status\": \"%s\", \"us\": %.1f, "
        "\"algbw_gb_s\": %.2f, \"busbw_gb_s\": %.2f}\n",
        version, ranks, name, wrong.empty() ? "passed" : "failed", seconds * 1e6, algbw,
        algbw * 2 * (ranks - 1) / ranks);
    if (!wrong.empty())
      std::fprintf(stderr, "nccl_check: %d ranks, %s: %s\n", ranks, name, wrong.c_str());
    std::fflush(stdout);
  };
  for (int ranks = 1; ranks <= static_cast<int>(devices.size()); ++ranks) {
    for (const Task& task : tasks) {
      double seconds = 0;
      const std::string wrong = on_ranks(
          *nccl, devices, ranks, task.algorithm,
          [&](const NcclOptions& o) { return run_rank(o, task); }, &seconds);
      tell(ranks, task.name, wrong, seconds);
    }
    double unused = 0;
    const std::string wrong = on_ranks(
        *nccl, devices, ranks, NcclAlgorithm::ring,
        [](const NcclOptions& o) {
          run_abort(o);
          return 0.0;
        },
        &unused);
    tell(ranks, "abort", wrong, 0);
  }
  return good ? 0 : 1;
}
