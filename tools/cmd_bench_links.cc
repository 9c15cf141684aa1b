// rondo bench links: what messages between ranks cost.
#include <cstdio>
#include <cstdlib>

#include "comm/in_process/run_ranks.h"
#include "comm/store/memory_store.h"
#include "engine/io/file.h"
#include "engine/io/output_file.h"
#include "engine/parallel/launch_environment.h"
#include "engine/plan/measure_links.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"
#include "tools/ranks/device_ranks.h"
#include "tools/ranks/rank_world.h"

namespace rondo {
namespace {

constexpr CommClock::duration patience = std::chrono::minutes(1);

struct LinkOptions {
  int ranks = 2;
  std::string transport, out;
  DeviceChoice device;
};

const std::vector<std::pair<std::string, RankTransport>> transports = {
    {"auto", RankTransport::automatic},
    {"shared", RankTransport::shared},
    {"tcp", RankTransport::tcp},
    {"gloo", RankTransport::gloo},
    {"mpi", RankTransport::mpi}};

RankTransport transport_named(const std::string& name) {
  for (const auto& [text, transport] : transports) {
    if (text == name) return transport;
  }
  return RankTransport::automatic;
}

DeviceId device_of(const LinkOptions& o) {
  return o.device.named().text == "auto" ? DeviceId(DeviceKind::cpu) : resolve(o.device);
}

// Collective. `place`: of this rank on its machine.
std::vector<plan::LinkTime> measure(const LinkOptions& o, Transport& transport, Store& store,
                                    int local_rank, int local_size) {
  GroupOptions g;
  g.timeout = patience;
  g.one_ring = true;  // whose steps plan::fit_link() counts
  const auto group = make_ring_group(transport, g);
  const DeviceId device = device_of_rank(o.device, device_of(o), local_rank, local_size);
  const auto sums = make_device_group(device, transport, store, "links", patience);
  return sums ? plan::measure_links(*sums, *group) : plan::measure_links(*group);
}

void tell(const LinkOptions& o, const std::string& between, int ranks,
          const std::vector<plan::LinkTime>& times) {
  plan::LinkModel link = plan::fit_link(times, ranks);
  link.name = str(between, " (", ranks, " ranks)");
  std::printf("%-8s %10s %12s %8s %12s\n", "", "bytes", "us", "GB/s", "modelled us");
  for (const plan::LinkTime& t : times) {
    const auto bytes = static_cast<double>(t.bytes);
    const bool ring = t.kind == plan::LinkTime::ring, burst = t.kind == plan::LinkTime::burst;
    // A ring's figure is what each of its links carries.
    const double carried = ring ? 2 * bytes * (ranks - 1) / ranks : bytes;
    std::printf("%-8s %10zu %12.1f %8.2f %12.1f\n",
                ring    ? "ring"
                : burst ? "burst"
                        : "message",
                t.bytes, 1e6 * t.seconds, 1e-9 * carried / t.seconds,
                1e6 * plan::seconds_of(link, t.kind, ranks, bytes));
  }
  const auto print = [](const std::string& what, double latency, double bandwidth) {
    std::printf("%s: latency %.1f us, bandwidth %.2f GB/s\n", what.c_str(), 1e6 * latency,
                1e-9 * bandwidth);
  };
  print(link.name, link.latency, link.bandwidth);
  print("a step of its rings", link.ring_latency, link.ring_bandwidth);
  std::printf("each further message at once: %.2f us\n", 1e6 * link.gap);
  if (ranks > usable_cpus()) {
    std::printf("%d ranks on %d cores: the figures tell how these are shared, too\n", ranks,
                usable_cpus());
  }
  if (o.out.empty()) return;
  replace_text_file(o.out, plan::to_json(link));
  std::printf("%s: for 'rondo plan --link' and '--node-link'\n", o.out.c_str());
}

std::string device_words(const LinkOptions& o) {
  const DeviceId device = device_of(o);
  return device.kind == DeviceKind::cpu ? "" : str(" of ", name_of(device.kind), " devices");
}

void measure_threads(const LinkOptions& o) {
  std::vector<plan::LinkTime> times;
  const auto table = make_memory_table();
  run_ranks(o.ranks, [&](int rank, Transport& transport) {
    const auto store = make_memory_store(table);
    auto mine = measure(o, transport, *store, rank, o.ranks);
    if (rank == 0) times = std::move(mine);
  });
  tell(o, "threads" + device_words(o), o.ranks, times);
}

// As one of several processes that somebody has started.
void measure_as_rank(const LinkOptions& o, const RankPlace& place) {
  if (place.world_size < 2) fail_input("a link takes two ranks, and there is one");
  const std::string name = o.transport.empty() ? "auto" : o.transport;
  const auto world = join_ranks(place, transport_named(name), patience);
  const auto times =
      measure(o, world->transport(), world->store(), place.local_rank, place.local_size);
  if (place.rank == 0) tell(o, name + device_words(o), place.world_size, times);
}

int measure_processes(const LinkOptions& o) {
  std::vector<std::string> words{"bench", "links", "--transport", o.transport};
  if (!o.out.empty()) words.insert(words.end(), {"--out", o.out});
  if (!o.device.text.empty()) words.insert(words.end(), {"--device", o.device.text});
  return launch_ranks(o.ranks, words);
}

int bench_links(const LinkOptions& o) {
  require_folder_of(o.out);
  const auto place = find_place([](const char* name) { return std::getenv(name); });
  if (place) {
    if (o.transport == "threads") {
      throw WrongUsage("--transport threads within one of several processes");
    }
    measure_as_rank(o, *place);
    return 0;
  }
  if (!o.transport.empty() && o.transport != "threads") return measure_processes(o);
  measure_threads(o);
  return 0;
}

}  // namespace

void add_bench_links(Command& bench) {
  Command& command = bench.add_command(
      "links", "Measure latency and bandwidth of what ranks send each other, for 'rondo plan'");
  auto o = std::make_shared<LinkOptions>();
  command.add_option("--ranks", o->ranks, "so many, on this machine, in one ring")
      .range(2, 1024)
      .show_default();
  command
      .add_option("--transport", o->transport,
                  "between threads of a process, or processes: auto, shared (memory), tcp, gloo, "
                  "mpi (under mpirun or srun) (default: threads; under a launcher auto)")
      .one_of({"threads", "auto", "shared", "tcp", "gloo", "mpi"})
      .type_name("NAME");
  command
      .add_option("--device", o->device.text,
                  "whose memory: cpu, sim, cuda or cuda:N (default: cpu)")
      .check(check_device_name)
      .type_name("NAME");
  command.add_option("--out", o->out, "write the link to FILE").value_text("FILE");
  command.footer(
      "\nExample:  rondo bench links --out links.json\n"
      "          rondo bench links --transport tcp --ranks 4\n"
      "          rondo launch -n 1 --nodes 2 --node-rank 0 --master HOST:PORT -- bench links\n");
  command.action([o] { return bench_links(*o); });
}

}  // namespace rondo
