// collectives: times all-reduces between ranks on this machine: processes through memory that they
// share or over TCP, ours and Gloo's, beside Gloo's all-reduces; or threads of one process. Under
// mpirun, which says how many ranks there are, those of mpirun over MPI.
//
//   collectives [--ranks 2,4] [--min-bytes 1024] [--max-bytes 268435456]
//               [--transport shared|tcp|gloo|threads|mpi]
//               [--message-bytes 2097152] [--numbers 0] [--json FILE]
//
// Every row: `ranks` processes reduce `bytes` of f32 in place, again and again, after one checked
// and one warming run. `algbw` is bytes / time; `busbw` is that times 2 (N-1) / N, what each link
// has to carry and so comparable across N. `send and recv` passes the array on to the neighbour
// without summing, into memory that stays in the cache: the transport's own peak, whose busbw is
// its bytes / time. `ring without sums` moves what a ring moves, from where and to where it does,
// but stores what it would add: the peak of arrays that no cache holds, where what arrives has to
// be written to memory as well. Times are rank 0's, from issuing to the end of the Work. With more
// ranks than cores the figures say how the scheduler shares them out, not how fast anything is;
// such rows are marked. On a machine that others use as well, the processor time of rank 0's
// process (`cpu`) tells more than the clock. With `--numbers N`, sums of so many f64 alone, as
// votes are: by recursive doubling, and by the ring, which has them where messages are short.
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>

#include "comm/gloo/gloo_transport.h"
#include "comm/group/collectives.h"
#include "comm/in_process/run_ranks.h"
#include "comm/shared/shared_transport.h"
#ifdef RONDO_HAVE_MPI
#include "comm/mpi/mpi_transport.h"
#include "kernels/base/cpu/parallel.h"
#endif

using namespace rondo;

namespace {

using namespace std::chrono_literals;

struct Options {
  std::vector<int> ranks = {2, 4};
  size_t min_bytes = 1024, max_bytes = size_t{256} << 20;
  size_t message_bytes = GroupOptions().message_bytes;  // of the ring, at most
  int numbers = 0;
  std::string json;
  enum class Kind : uint8_t { shared, tcp, gloo, threads, mpi } transport = Kind::shared;
  bool threads() const { return transport == Kind::threads; }
};

constexpr const char* transport_names[] = {"shared", "tcp", "gloo", "threads", "mpi"};
constexpr const char* transport_texts[] = {
    "memory shared between processes; gloo ring, gloo bcube: TCP over loopback",
    "our TCP over loopback; gloo ring, gloo bcube: Gloo's", "Gloo's TCP over loopback",
    "threads of one process", "MPI"};

// Instead of a sum: what the transport carries at best.
enum class Moves : uint8_t { sum, to_neighbour, around };

struct Contender {
  const char* name;
  GroupOptions options;
  Moves moves = Moves::sum;
};

struct Row {
  std::string contender;
  int ranks = 0;
  size_t bytes = 0;
  size_t runs = 0;
  double median_us = 0, min_us = 0;
  // Per run, of rank 0's process: processor time of all its threads and of the kernel for them,
  // page faults, context switches.
  double cpu_us = 0, faults = 0, switches = 0;
  Moves moves = Moves::sum;
  DType dtype = DType::f32;
  double busbw() const {
    return moves == Moves::to_neighbour ? algbw() : algbw() * 2 * (ranks - 1) / ranks;
  }
  double algbw() const { return static_cast<double>(bytes) / median_us * 1e-3; }  // GB/s
};

int usable_cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

struct Usage {
  double cpu_us = 0, faults = 0, switches = 0;
  static Usage now() {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    const auto us = [](const timeval& t) {
      return 1e6 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec);
    };
    return {us(u.ru_utime) + us(u.ru_stime), static_cast<double>(u.ru_minflt),
            static_cast<double>(u.ru_nvcsw + u.ru_nivcsw)};
  }
};

// `gloo`: beside the transport; none between threads.
std::vector<Contender> contenders(const Options& options, Transport* gloo) {
  GroupOptions ours, unverified, rounded, exchanged, moved, ring, bcube;
  uint16_t id = 0;
  for (GroupOptions* o : {&ours, &unverified, &rounded, &exchanged, &moved, &ring, &bcube}) {
    o->id = ++id;
    o->message_bytes = options.message_bytes;
  }
  unverified.verify = false;
  rounded.wire = Wire::bf16;
  std::vector<Contender> all = {{"ours", ours},
                                {"ours, not verified", unverified},
                                {"ours, bf16 wire", rounded},
                                {"send and recv", exchanged, Moves::to_neighbour},
                                {"ring without sums", moved, Moves::around}};
  if (gloo == nullptr) return all;
  ring.all_reduce = gloo_all_reduce(*gloo, GlooAlgorithm::ring);
  ring.verify = false;
  bcube.all_reduce = gloo_all_reduce(*gloo, GlooAlgorithm::bcube);
  bcube.verify = false;
  all.push_back({"gloo ring", ring});
  all.push_back({"gloo bcube", bcube});
  return all;
}

// Sums small integers, which every order and bf16 get right.
void check(ProcessGroup& group, const char* name, std::vector<float>& data,
           const TensorView& view) {
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<float>(static_cast<size_t>(group.rank()) + i % 8);
  }
  group.all_reduce(view, Reduction::sum).wait();
  const auto n = static_cast<size_t>(group.size());
  for (size_t i = 0; i < data.size(); ++i) {
    const auto expected = static_cast<float>(n * (n - 1) / 2 + n * (i % 8));
    if (!(data[i] == expected)) {
      throw Error(str(name, ": element ", i, " of ", data.size(), " is ", data[i], ", expected ",
                      expected));
    }
  }
}

// The array to the right neighbour and that of the left one here, in the ring's messages, three of
// them under way, into memory that stays in the cache as the ring's does: what a ring does but for
// its sums, and so the most that it can reach.
void exchange(ProcessGroup& group, std::span<const float> data, std::span<float> arrived) {
  const int right = (group.rank() + 1) % group.size();
  const int left = (group.rank() + group.size() - 1) % group.size();
  constexpr size_t ahead = 3;
  const size_t message = arrived.size() / ahead, n = data.size();
  std::array<Work, ahead> sends, recvs;
  for (size_t begin = 0, k = 0; begin < n || k % ahead != 0; begin += message, ++k) {
    for (Work* w : {&recvs[k % ahead], &sends[k % ahead]}) {
      if (*w) std::exchange(*w, Work()).wait();
    }
    if (begin >= n) continue;
    const size_t size = std::min(message, n - begin);
    recvs[k % ahead] =
        group.recv(left, 0, std::as_writable_bytes(arrived.subspan(k % ahead * message, size)));
    sends[k % ahead] = group.send(right, 0, std::as_bytes(data.subspan(begin, size)));
  }
  for (size_t k = 0; k < ahead; ++k) {
    for (Work* w : {&recvs[k], &sends[k]}) {
      if (*w) std::exchange(*w, Work()).wait();
    }
  }
}

// A ring's messages between the ring's places, three of them under way.
void pass_around(ProcessGroup& group, std::span<float> data, size_t message) {
  const int n = group.size(), right = (group.rank() + 1) % n, left = (group.rank() + n - 1) % n;
  constexpr size_t ahead = 3;
  const auto piece = [&](int step, size_t j) {
    const int chunk = ((group.rank() - step) % n + n) % n;
    const ChunkRange r = chunk_range(static_cast<int64_t>(data.size()), n, chunk);
    const size_t begin =
        std::min(static_cast<size_t>(r.begin) + j * message, static_cast<size_t>(r.end));
    return data.subspan(begin, std::min(message, static_cast<size_t>(r.end) - begin));
  };
  const size_t longest = (data.size() + static_cast<size_t>(n) - 1) / static_cast<size_t>(n);
  std::array<Work, ahead> sends, recvs;
  const auto finish = [&](size_t j) {
    for (Work* w : {&recvs[j], &sends[j]}) {
      if (*w) std::exchange(*w, Work()).wait();
    }
  };
  for (size_t group_begin = 0; group_begin * message < longest; group_begin += ahead) {
    for (int step = 0; step < 2 * (n - 1); ++step) {
      for (size_t j = 0; j < ahead; ++j) {
        finish(j);  // what leaves now has arrived, and where the next arrives has left
        const auto in = piece(step + 1, group_begin + j), out = piece(step, group_begin + j);
        if (!in.empty()) recvs[j] = group.recv(left, 0, std::as_writable_bytes(in));
        if (!out.empty()) sends[j] = group.send(right, 0, std::as_bytes(out));
      }
    }
  }
  for (size_t j = 0; j < ahead; ++j) finish(j);
}

Row measure(ProcessGroup& group, const Contender& c, size_t bytes) {
  std::vector<float> data(bytes / sizeof(float));
  const size_t message = c.options.message_bytes / sizeof(float);
  std::vector<float> arrived(c.moves == Moves::to_neighbour ? 3 * message : 0);
  const TensorView view(data.data(), DType::f32, {static_cast<int64_t>(data.size())});
  if (c.moves == Moves::sum) check(group, c.name, data, view);
  std::fill(data.begin(), data.end(), 0.0f);
  // The same number on all ranks: about 128 MB in all, between 5 and 300 runs.
  const size_t runs = std::clamp<size_t>((size_t{128} << 20) / bytes, 5, 300);
  std::vector<double> us;
  group.barrier().wait();
  Usage before;
  for (size_t i = 0; i <= runs; ++i) {
    if (i == 1) before = Usage::now();
    const auto begin = CommClock::now();
    if (c.moves == Moves::to_neighbour) {
      exchange(group, data, arrived);
    } else if (c.moves == Moves::around) {
      pass_around(group, data, message);
    } else {
      group.all_reduce(view, Reduction::sum).wait();
    }
    const std::chrono::duration<double, std::micro> time = CommClock::now() - begin;
    if (i > 0) us.push_back(time.count());
  }
  const Usage after = Usage::now();
  std::sort(us.begin(), us.end());
  const auto n = static_cast<double>(runs);
  return {c.name,
          group.size(),
          bytes,
          runs,
          us[us.size() / 2],
          us.front(),
          (after.cpu_us - before.cpu_us) / n,
          (after.faults - before.faults) / n,
          (after.switches - before.switches) / n,
          c.moves};
}

// Medians of sums of a few f64, in turns: one contender may meet another state of the machine.
std::vector<Row> sum_numbers(const Options& o, Transport& transport) {
  const int ranks = transport.world_size();
  std::vector<double> data(static_cast<size_t>(o.numbers));
  const TensorView view(data.data(), DType::f64, {o.numbers});
  GroupOptions doubling, ring;
  doubling.id = 1;
  ring.id = 2;
  ring.message_bytes = static_cast<size_t>((o.numbers + ranks - 1) / ranks) * sizeof(double);
  const std::unique_ptr<ProcessGroup> groups[] = {make_ring_group(transport, doubling),
                                                  make_ring_group(transport, ring)};
  const bool differ = !fits_doubling(view, ranks, ring_staging_messages * ring.message_bytes);
  constexpr size_t rounds = 50, runs = 40;
  std::vector<double> us[2];
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t which = 0; which < (differ ? 2 : 1); ++which) {
      groups[which]->barrier().wait();
      for (size_t i = 0; i < runs; ++i) {
        const auto begin = CommClock::now();
        groups[which]->all_reduce(view, Reduction::sum).wait();
        const std::chrono::duration<double, std::micro> time = CommClock::now() - begin;
        us[which].push_back(time.count());
      }
    }
  }
  std::vector<Row> rows;
  for (size_t which = 0; which < (differ ? 2 : 1); ++which) {
    std::sort(us[which].begin(), us[which].end());
    Row r;
    r.contender = which == 0 ? "numbers, doubling" : "numbers, ring";
    r.ranks = ranks;
    r.bytes = view.bytes();
    r.dtype = DType::f64;
    r.runs = us[which].size();
    r.median_us = us[which][r.runs / 2];
    r.min_us = us[which].front();
    rows.push_back(r);
    if (transport.rank() != 0) continue;
    std::printf("%d ranks %4d f64  %-20s %10.1f us %10.1f us min%s\n", ranks, o.numbers,
                r.contender.c_str(), r.median_us, r.min_us,
                ranks > usable_cpus() ? "  (more ranks than cores)" : "");
  }
  std::fflush(stdout);
  groups[0]->barrier().wait();
  return rows;
}

std::vector<Row> run_rank(const Options& o, Transport& transport, Transport* gloo) {
  if (o.numbers > 0) return sum_numbers(o, transport);
  const int rank = transport.rank(), ranks = transport.world_size();
  std::vector<Row> rows;
  for (size_t bytes = o.min_bytes; bytes <= o.max_bytes; bytes *= 4) {
    for (const Contender& c : contenders(o, gloo)) {
      const auto group = make_ring_group(transport, c.options);
      rows.push_back(measure(*group, c, bytes));
      group->barrier().wait();
      if (rank != 0) continue;
      const Row& r = rows.back();
      std::printf(
          "%d ranks %10zu bytes  %-20s %10.1f us %10.1f us min %10.1f us cpu %7.3f GB/s alg "
          "%7.3f bus %8.0f faults %8.0f switches%s\n",
          r.ranks, r.bytes, r.contender.c_str(), r.median_us, r.min_us, r.cpu_us, r.algbw(),
          r.busbw(), r.faults, r.switches,
          ranks > usable_cpus() ? "  (more ranks than cores)" : "");
      std::fflush(stdout);
    }
  }
  return rows;
}

std::vector<Row> run_process(const Options& o, int rank, int ranks, const std::string& directory) {
  const auto store = make_file_store(directory);
  GlooOptions g;
  g.rank = rank;
  g.world_size = ranks;
  g.store = store.get();
  g.rendezvous_id = str("bench-", ranks);
  const auto gloo = make_gloo_transport(g);
  if (o.transport == Options::Kind::gloo) return run_rank(o, *gloo, gloo.get());
  g.rendezvous_id += "-tcp";
  auto transport = make_tcp_transport(g);
  if (o.transport == Options::Kind::shared) {
    transport = make_shared_transport(std::move(transport), {.required = true});
  }
  return run_rank(o, *transport, gloo.get());
}

// One of mpirun's. Rank 0's rows.
std::vector<Row> run_under_mpi(const Options& o) {
#ifdef RONDO_HAVE_MPI
  const char* const number = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* const directory = std::getenv("RONDO_MEETING");
  if (!number || !size || !directory) {
    fail_input("--transport mpi: expected ranks of mpirun, and a directory in RONDO_MEETING: ",
               "tests/comm/under_mpirun mpirun 2 PROGRAM...");
  }
  const auto store = make_file_store(directory);
  TcpOptions t;
  t.rank = std::atoi(number);
  t.world_size = std::atoi(size);
  t.store = store.get();
  const auto transport = make_mpi_transport(make_tcp_transport(t));
  const auto rows = run_rank(o, *transport, nullptr);
  return t.rank == 0 ? rows : std::vector<Row>();
#else
  (void)o;
  fail_input("--transport mpi: built without MPI");
#endif
}

std::vector<Row> run_threads(const Options& o, int ranks) {
  std::vector<Row> rows;
  run_ranks(ranks, [&](int rank, Transport& transport) {
    std::vector<Row> mine = run_rank(o, transport, nullptr);
    if (rank == 0) rows = std::move(mine);
  });
  return rows;
}

// Rank 0 is this process, the others are its children.
std::vector<Row> run_world(const Options& o, int ranks) {
  std::string directory =
      (std::filesystem::temp_directory_path() / "rondo-collectives-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) fail_input("cannot create '", directory, "'");
  std::vector<pid_t> children;
  std::fflush(stdout);
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) fail_input("cannot start a process: ", std::strerror(errno));
    if (pid > 0) {
      children.push_back(pid);
      continue;
    }
    try {
      run_process(o, rank, ranks, directory);
    } catch (const std::exception& e) {
      std::cerr << "rank " << rank << ": " << e.what() << "\n";
      _exit(1);
    }
    _exit(0);
  }
  std::vector<Row> rows;
  std::exception_ptr error;
  try {
    rows = run_process(o, 0, ranks, directory);
  } catch (...) {
    error = std::current_exception();
    for (const pid_t pid : children) kill(pid, SIGKILL);
  }
  for (const pid_t pid : children) waitpid(pid, nullptr, 0);
  std::filesystem::remove_all(directory);
  if (error) std::rethrow_exception(error);
  return rows;
}

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  }
  return "?";
}

void write_json(const std::string& path, const std::vector<Row>& rows, const char* transport) {
  std::ofstream out(path);
  utsname system{};
  uname(&system);
  out << "{\"name\": \"collectives\",\n \"machine\": {\"cpu\": \"" << cpu_model()
      << "\", \"cpus\": " << usable_cpus() << ", \"system\": \"" << system.sysname
      << "\", \"release\": \"" << system.release << "\"},\n \"transport\": \"" << transport << "\""
      << ",\n \"rows\": [";
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    out << (i == 0 ? "\n" : ",\n") << "  {\"op\": \""
        << (r.moves == Moves::sum ? "all_reduce" : "exchange") << "\", \"dtype\": \""
        << name_of(r.dtype) << "\", \"shape\": {\"elements\": " << r.bytes / size_of(r.dtype)
        << "}, \"by\": \"" << r.contender << "\", \"ranks\": " << r.ranks
        << ", \"bytes\": " << r.bytes << ", \"runs\": " << r.runs
        << ", \"median_us\": " << r.median_us << ", \"min_us\": " << r.min_us
        << ", \"algbw_gbytes_per_s\": " << r.algbw() << ", \"busbw_gbytes_per_s\": " << r.busbw()
        << ", \"rank_0_cpu_us\": " << r.cpu_us << ", \"rank_0_page_faults\": " << r.faults
        << ", \"rank_0_switches\": " << r.switches
        << ", \"more_ranks_than_cores\": " << (r.ranks > usable_cpus() ? "true" : "false") << "}";
  }
  out << "\n ]}\n";
  out.close();
  if (!out) fail_input("cannot write '", path, "': ", std::strerror(errno));
}

size_t bytes_from(const std::string& text) {
  const long long n = std::atoll(text.c_str());
  if (n < 4 || n % 4 != 0) fail_input("'", text, "': expected bytes, a multiple of 4");
  return static_cast<size_t>(n);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::puts(
          "Times all-reduces between processes of this machine, ours beside Gloo's; or threads.\n"
          "Usage: collectives [--ranks 2,4] [--min-bytes 1024] [--max-bytes 268435456] "
          "[--transport shared|tcp|gloo|threads|mpi] [--message-bytes 2097152] [--numbers 0] "
          "[--json "
          "FILE]");
      std::exit(0);
    }
    if (i + 1 == argc)
      fail_input(name, ": a value is missing; see the head of bench/collectives.cc");
    const std::string value = argv[i + 1];
    if (name == "--ranks") {
      o.ranks.clear();
      for (size_t at = 0; at < value.size(); at = value.find_first_of(',', at) + 1) {
        o.ranks.push_back(std::atoi(value.c_str() + at));
        if (o.ranks.back() < 2) fail_input("--ranks ", value, ": expected numbers above 1");
        if (value.find(',', at) == std::string::npos) break;
      }
    } else if (name == "--min-bytes") {
      o.min_bytes = bytes_from(value);
    } else if (name == "--max-bytes") {
      o.max_bytes = bytes_from(value);
    } else if (name == "--message-bytes") {
      o.message_bytes = bytes_from(value);
    } else if (name == "--numbers") {
      o.numbers = std::atoi(value.c_str());
      if (o.numbers < 1 || o.numbers > most_doubled) {
        fail_input("--numbers ", value, ": expected a number from 1 to ", most_doubled);
      }
    } else if (name == "--transport") {
      const auto at = std::find(std::begin(transport_names), std::end(transport_names), value);
      if (at == std::end(transport_names)) {
        fail_input("--transport ", value, ": expected shared, tcp, gloo, threads or mpi");
      }
      o.transport = static_cast<Options::Kind>(at - std::begin(transport_names));
    } else if (name == "--json") {
      o.json = value;
    } else {
      fail_input("unknown option ", name, "; see the head of bench/collectives.cc");
    }
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options o = parse(argc, argv);
    std::vector<Row> rows;
    const bool by_mpi = o.transport == Options::Kind::mpi;
    if (by_mpi) rows = run_under_mpi(o);
    for (const int ranks : by_mpi ? std::vector<int>() : o.ranks) {
      const std::vector<Row> more = o.threads() ? run_threads(o, ranks) : run_world(o, ranks);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    if (!o.json.empty() && !rows.empty())
      write_json(o.json, rows, transport_texts[static_cast<size_t>(o.transport)]);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "collectives: " << e.what() << "\n";
    return 1;
  }
}
