// All-reduces over several machines: one ring of all ranks beside rings inside machines and between
// them (comm/group/collectives.h). Ranks are threads; what leaves a machine goes over a cable of
// its own of limited speed and latency, what stays costs a copy between threads.
//   build/bench/machines_bench [--machines 2] [--ranks-each 4] [--latency-us 200]
//                              [--mb-per-second 1000]
// One row per size: medians of both, in turns within one run. With more ranks than cores the
// processors are shared, which makes both slower; latencies above a hand-over between threads
// (some 20 us) are what this measures.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "comm/group/process_group.h"
#include "comm/in_process/run_ranks.h"
#include "kernels/base/cpu/parallel.h"
#include "tests/comm/decorators.h"

using namespace rondo;

namespace {

using namespace std::chrono_literals;

struct Setting {
  double machines = 2, ranks_each = 4, latency_us = 200, mb_per_second = 1000;
};

constexpr size_t sizes[] = {4096, 65536, size_t{1} << 20, size_t{8} << 20};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void check(const std::vector<float>& data, int ranks) {
  for (const float v : data) {
    if (!(v == static_cast<float>(ranks))) throw Error(str("a sum is ", v, ", expected ", ranks));
  }
}

void run(const Setting& s) {
  const int each = static_cast<int>(s.ranks_each);
  const int ranks = static_cast<int>(s.machines) * each;
  std::vector<int> machines;
  for (int r = 0; r < ranks; ++r) machines.push_back(r / each);
  std::vector<std::shared_ptr<Cable>> cables;
  for (int m = 0; m < static_cast<int>(s.machines); ++m)
    cables.push_back(std::make_shared<Cable>());
  if (ranks > usable_cpus()) std::printf("%d ranks on %d cores\n", ranks, usable_cpus());
  std::printf("%10s %16s %22s %8s\n", "bytes", "one ring, us", "rings by machine, us", "times");
  run_ranks(ranks, [&](int rank, Transport& transport) {
    OnMachines placed(transport, machines);
    LinkLimits limits;
    limits.bytes_per_second = 1e6 * s.mb_per_second;
    limits.latency = std::chrono::microseconds(static_cast<int64_t>(s.latency_us));
    limits.between_machines = true;
    limits.cable = cables[static_cast<size_t>(rank / each)];
    const auto slow = make_throttled(placed, limits);
    GroupOptions first, second;
    first.id = 1;
    second.id = 2;
    first.one_ring = true;
    const auto flat = make_ring_group(*slow, first), nested = make_ring_group(*slow, second);
    for (const size_t bytes : sizes) {
      std::vector<float> data(bytes / sizeof(float));
      const TensorView view(data.data(), DType::f32, {static_cast<int64_t>(data.size())});
      std::map<ProcessGroup*, std::vector<double>> us;
      for (int i = 0; i < 15; ++i) {
        for (ProcessGroup* group : {flat.get(), nested.get()}) {
          std::fill(data.begin(), data.end(), 1.0f);
          group->barrier().wait();
          const auto begin = CommClock::now();
          group->all_reduce(view, Reduction::sum).wait();
          const std::chrono::duration<double, std::micro> took = CommClock::now() - begin;
          check(data, ranks);
          if (i > 0) us[group].push_back(took.count());
        }
      }
      if (rank != 0) continue;
      const double before = median(us[flat.get()]), now = median(us[nested.get()]);
      std::printf("%10zu %16.0f %22.0f %8.2f\n", bytes, before, now, before / now);
      std::fflush(stdout);
    }
    flat->barrier().wait();
  });
}

}  // namespace

int main(int argc, char** argv) {
  Setting s;
  const std::map<std::string, double*> options = {{"--machines", &s.machines},
                                                  {"--ranks-each", &s.ranks_each},
                                                  {"--latency-us", &s.latency_us},
                                                  {"--mb-per-second", &s.mb_per_second}};
  for (int i = 1; i < argc; i += 2) {
    const auto option = options.find(argv[i]);
    const double value = i + 1 < argc ? std::atof(argv[i + 1]) : -1;
    if (option == options.end() || !(value >= 1)) {
      std::fprintf(stderr, "machines_bench: '%s' is not known, or needs a number from 1\n",
                   argv[i]);
      return 2;
    }
    *option->second = value;
  }
  try {
    run(s);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "machines_bench: %s\n", e.what());
    return 1;
  }
}
