// rondo launch: the ranks of a training run, of a corpus to be read, or of bench links, as
// processes, watched and started again.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <tuple>

#include "comm/sha256.h"
#include "comm/store/tcp_store.h"
#include "engine/io/signals.h"
#include "engine/parallel/launch_environment.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/ranks/addresses.h"
#include "tools/ranks/elastic_ranks.h"
#include "tools/ranks/launchers.h"
#include "tools/ranks/local_ranks.h"
#include "tools/ranks/rank_process.h"

namespace rondo {
namespace {

struct LaunchOptions {
  int ranks = 1, nodes = 1, node_rank = 0;
  int max_restarts = 0;
  double grace = 10, join_timeout = 600;
  bool elastic = false;
  std::string master;
  std::vector<std::string> words;  // the command, "train" first
};

bool is_for_ranks(const std::vector<std::string>& words) {
  if (words.front() == "train" || divides_inputs(words)) return true;
  return words.size() > 1 && words[0] == "bench" && words[1] == "links";
}

void require_consistent(const LaunchOptions& o) {
  if (o.words.empty() || !is_for_ranks(o.words)) {
    throw WrongUsage(
        "expected -- train ..., the command that every rank runs (or -- eval, -- transcribe, -- "
        "predict, -- bench links)");
  }
  if (o.node_rank >= o.nodes) {
    throw WrongUsage(str("--node-rank is ", o.node_rank, " of --nodes ", o.nodes));
  }
  if (o.elastic && o.nodes > 1) {
    throw WrongUsage(
        "--elastic is for the ranks of one machine; with --nodes, --max-restarts starts "
        "all again from the last checkpoint when one is lost");
  }
  if (o.elastic && o.ranks < 2) {
    throw WrongUsage("--elastic takes at least two ranks (-n): of one, nobody is left to go on");
  }
  if (o.elastic && o.words.front() != "train") throw WrongUsage("--elastic goes with -- train ...");
  if (o.max_restarts > 0 && divides_inputs(o.words)) {
    throw WrongUsage("--max-restarts goes with -- train ...: " + o.words.front() +
                     " keeps nothing to go on from");
  }
  if (o.nodes > 1 && o.master.empty()) throw WrongUsage("--nodes needs --master");
}

CommClock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<CommClock::duration>(std::chrono::duration<double>(seconds));
}

LaunchersOptions launchers_options(const LaunchOptions& o) {
  LaunchersOptions l;
  l.nodes = o.nodes;
  l.node_rank = o.node_rank;
  l.ranks = o.ranks;
  l.max_restarts = o.max_restarts;
  l.grace = duration_of(o.grace);
  l.join_timeout = duration_of(o.join_timeout);
  const char* token = std::getenv("RONDO_TOKEN");
  l.token = token ? token : "";
  if (o.nodes > 1) require_job_token(l.token, o.master, true);
  if (l.token.empty()) l.token = random_token();
  l.address = l.bind_address;
  if (!o.master.empty()) {
    std::tie(l.address, l.port) = split_address("--master", o.master);
    if (o.node_rank == 0) l.bind_address = listening_address(l.address, l.port, o.nodes > 1);
  }
  return l;
}

// What the ranks are told of where they find the launcher.
std::vector<std::string> settings_of(const LaunchersOptions& l, uint16_t port) {
  return {"MASTER_ADDR=" + l.address, str("MASTER_PORT=", port), "RONDO_TOKEN=" + l.token,
          "RONDO_STORE_IS_SERVED=1"};
}

int run_elastic(const LaunchOptions& o, const LaunchersOptions& l) {
  TcpStoreServerOptions s;
  s.bind_address = l.bind_address;
  s.port = l.port;
  s.token = l.token;
  s.max_connections = std::max(s.max_connections, 4 * o.ranks);
  const TcpStoreServer server(s);
  const auto store =
      make_tcp_store(l.address, server.port(), l.token, within(std::chrono::seconds(30)));
  ElasticRanksOptions e;
  e.ranks = o.ranks;
  e.words = o.words;
  e.settings = settings_of(l, server.port());
  e.max_restarts = o.max_restarts;
  e.grace = l.grace;
  e.store = store.get();
  const Outcome outcome = ElasticRanks(e).run();
  if (outcome.kind == Outcome::succeeded) return 0;
  if (outcome.kind != Outcome::told) tell_error(outcome.cause);
  return outcome.code;
}

// A pipe and a connection with the store for each rank here, and what a process has anyway. On node
// 0 the ranks of all machines come to the store.
void require_descriptors(const LaunchOptions& o) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t ranks = static_cast<rlim_t>(o.ranks),
               served = o.node_rank == 0 ? ranks * static_cast<rlim_t>(o.nodes) : 0;
  const rlim_t needed = ranks + served + 32;
  if (limit.rlim_cur >= needed) return;
  fail_input("-n ", o.ranks, ": the launcher needs ", needed, " file descriptors, and the system ",
             "allows ", limit.rlim_cur, " (ulimit -Hn)");
}

int run_launch(const LaunchOptions& o) {
  require_consistent(o);
  require_descriptors(o);
  const LaunchersOptions l = launchers_options(o);
  heed_stops();
  if (o.elastic) return run_elastic(o, l);
  const auto launchers = make_launchers(l);
  LocalRanksOptions r;
  r.ranks = o.ranks;
  r.node_rank = o.node_rank;
  r.nodes = o.nodes;
  r.words = o.words;
  r.grace = l.grace;
  r.settings = settings_of(l, launchers->port());
  while (const auto attempt = launchers->begin()) {
    r.attempt = attempt->name;
    r.goes_on = attempt->goes_on;
    LocalRanks ranks(r);
    ranks.wait([&] { return launchers->elsewhere(); }, [&] { launchers->tell_trouble(); });
    const Outcome outcome = ranks.outcome();
    const Verdict verdict = launchers->end(outcome);
    if (verdict.what == Verdict::done) return 0;
    if (stop_requested() && outcome.kind != Outcome::own_reason) break;
    tell_error(verdict.cause);
    if (verdict.what == Verdict::stop) return verdict.code;
  }
  return 128 + stop_signal();
}

}  // namespace

int launch_ranks(int ranks, const std::vector<std::string>& words) {
  LaunchOptions o;
  o.ranks = ranks;
  o.words = words;
  return run_launch(o);
}

void add_launch(Command& program) {
  Command& command =
      program.add_command("launch", "Train, or read a corpus, on several ranks, each a process");
  auto o = std::make_shared<LaunchOptions>();
  command.add_option("-n,--ranks", o->ranks, "so many ranks on this machine")
      .range(1, 4096)
      .show_default();
  command
      .add_option(
          "--max-restarts", o->max_restarts,
          "when a rank or a machine is lost, start all again from the last checkpoint, so often; "
          "with --elastic, so many ranks in place of lost ones")
      .range(0, 1000000)
      .show_default();
  command.add_flag("--elastic", o->elastic,
                   "when a rank is lost, the others go on without it, from memory (with "
                   "parallel.deterministic=world_invariant)");
  command.add_option("--grace", o->grace, "seconds until ranks are killed after one has failed")
      .range(0.0, 1e6)
      .show_default();
  command
      .add_option(
          "--join-timeout", o->join_timeout,
          "seconds for which machines wait for each other, at the start and after each loss")
      .range(0.1, 1e6)
      .show_default();
  command.add_option("--nodes", o->nodes, "machines that run as many ranks each")
      .range(1, 65536)
      .show_default();
  command.add_option("--node-rank", o->node_rank, "which of them this is, from 0")
      .range(0, 65535)
      .show_default();
  command.add_option("--master", o->master,
                     "HOST:PORT of machine 0, where the ranks meet (with --nodes)");
  command
      .add_option("command", o->words,
                  "-- train and its arguments; or eval, transcribe or predict, whose inputs the "
                  "ranks divide")
      .required();
  command.footer(
      "\nExample:  rondo launch -n 4 --max-restarts 3 -- train recipe.toml data=digits\n"
      "          rondo launch -n 4 -- eval run digits/test.jsonl\n");
  command.action([o] { return run_launch(*o); });
}

}  // namespace rondo
