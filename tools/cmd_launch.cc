// rondo launch: the ranks of a training run, or of bench links, as processes, watched and started
// again.
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "comm/base/sha256.h"
#include "comm/store/tcp_store.h"
#include "engine/io/signals.h"
#include "engine/parallel/launch_environment.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/ranks/addresses.h"
#include "tools/ranks/child_process.h"

extern char** environ;

namespace rondo {
namespace {

struct LaunchOptions {
  int ranks = 1, nodes = 1, node_rank = 0;
  int max_restarts = 0;
  double grace = 10;
  std::string master;
  std::vector<std::string> words;  // the command, "train" first
};

// One attempt: all local ranks, until they have ended.
class Attempt {
 public:
  Attempt(const LaunchOptions& options, const std::vector<std::string>& settings, int number)
      : options_(options) {
    std::vector<std::string> arguments{"rondo"};
    arguments.insert(arguments.end(), options.words.begin(), options.words.end());
    // The first attempt may have saved nothing.
    if (number > 1) go_on(arguments);
    for (int i = 0; i < options.ranks; ++i) {
      std::vector<std::string> environment = inherited();
      environment.insert(environment.end(), settings.begin(), settings.end());
      environment.push_back(str("RANK=", rank_of(i)));
      environment.push_back(str("WORLD_SIZE=", options.nodes * options.ranks));
      environment.push_back(str("LOCAL_RANK=", i));
      environment.push_back(str("LOCAL_WORLD_SIZE=", options.ranks));
      environment.push_back(str("RONDO_ATTEMPT=", number));
      children_.emplace_back(ChildProcess(arguments, environment));
    }
  }

  void wait() {
    bool told_to_stop = false;
    while (std::any_of(children_.begin(), children_.end(),
                       [](const Child& c) { return !c.seen.ended(); })) {
      listen();
      look();
      if (stop_requested() && !told_to_stop) {
        told_to_stop = true;
        for (const Child& c : children_) c.process.signal(stop_signal() ? stop_signal() : SIGTERM);
      }
      if (give_up_at_ && CommClock::now() >= *give_up_at_) {
        for (Child& c : children_) {
          c.given_up = c.given_up || !c.seen.ended();
          c.process.signal(SIGKILL);
        }
      }
    }
    listen();
  }

  // 0, or the code of the rank that the cause below is about, so far as it has one: the others may
  // be noticed first.
  int exit_code() const {
    if (!first_failed_) return 0;
    if (const auto i = that_says_why()) return code_of(*i);
    for (size_t i = 0; i < children_.size(); ++i) {
      if (!children_[i].given_up && children_[i].seen.kind == ChildStatus::killed)
        return code_of(i);
    }
    return code_of(*first_failed_);
  }

  // What was wrong, in one line, with what another rank saw of it.
  std::string cause() const {
    if (const auto i = that_says_why()) return children_[*i].report;
    for (size_t i = 0; i < children_.size(); ++i) {  // a rank that something was done to
      const Child& c = children_[i];
      const bool stopped = c.given_up && c.before_kill.kind == ChildStatus::stopped;
      if (!stopped && (c.given_up || c.seen.kind != ChildStatus::killed)) continue;
      const std::string victim = str("rank ", rank_of(static_cast<int>(i)));
      const std::string seen = witness_of(victim + " is lost");
      return str(victim, " ", describe(stopped ? c.before_kill : c.seen), seen.empty() ? "" : "; ",
                 seen);
    }
    const std::string witness = witness_of("");
    if (!witness.empty()) return witness;
    return str("rank ", rank_of(static_cast<int>(*first_failed_)), " ",
               describe(children_[*first_failed_].seen));
  }

  // What a rank reported; rather one that says `what` than one that only lost those who followed.
  std::string witness_of(const std::string& what) const {
    std::string first;
    for (size_t i : order_) {
      const std::string& report = children_[i].report;
      if (report.find(what) != std::string::npos && !report.empty()) return report;
      if (first.empty()) first = report;
    }
    return first;
  }

  // Whether another attempt may do better: no rank ended by itself for another reason than that
  // it lost the others.
  bool may_go_better() const {
    return std::all_of(children_.begin(), children_.end(), [](const Child& c) {
      return c.seen.kind != ChildStatus::exited || c.seen.number == 0 ||
             c.seen.number == comm_failure || (c.seen.number == 1 && c.report.empty());
    });
  }

 private:
  struct Child {
    explicit Child(ChildProcess p) : process(std::move(p)) {}
    ChildProcess process;
    ChildStatus seen, before_kill;
    std::string report;  // its "rondo: ..." line, without the name
    bool given_up = false;
  };

  static void go_on(std::vector<std::string>& arguments) {
    const auto resumes = [](const std::string& a) {
      return a == "--resume" || a == "--resume-or-start";
    };
    if (std::none_of(arguments.begin(), arguments.end(), resumes)) {
      arguments.push_back("--resume-or-start");
    }
  }

  int rank_of(int local) const { return options_.node_rank * options_.ranks + local; }

  // A rank that ended by itself and says what it failed at.
  std::optional<size_t> that_says_why() const {
    for (size_t i : order_) {
      const Child& c = children_[i];
      const bool own = c.seen.kind == ChildStatus::exited && c.seen.number != comm_failure;
      if (own && !c.report.empty()) return i;
    }
    return std::nullopt;
  }

  int code_of(size_t i) const {
    const ChildStatus& s = children_[i].seen;
    return s.kind == ChildStatus::exited ? s.number : 128 + s.number;
  }

  // This process's variables, without those that say which rank of something else it is.
  static std::vector<std::string> inherited() {
    static constexpr const char* dropped[] = {"RANK=",
                                              "WORLD_SIZE=",
                                              "LOCAL_RANK=",
                                              "LOCAL_WORLD_SIZE=",
                                              "MASTER_ADDR=",
                                              "MASTER_PORT=",
                                              "OMPI_COMM_WORLD_",
                                              "PMIX_",
                                              "RONDO_TOKEN=",
                                              "RONDO_ATTEMPT=",
                                              "RONDO_STORE_IS_SERVED=",
                                              "TORCHELASTIC_"};
    std::vector<std::string> kept;
    for (char** v = environ; *v; ++v) {
      if (std::none_of(std::begin(dropped), std::end(dropped),
                       [&](const char* d) { return std::strncmp(*v, d, std::strlen(d)) == 0; })) {
        kept.emplace_back(*v);
      }
    }
    return kept;
  }

  void listen() {
    std::vector<pollfd> pipes;
    for (const Child& c : children_) pipes.push_back({c.process.error_pipe(), POLLIN, 0});
    ::poll(pipes.data(), pipes.size(), 20);
    for (size_t i = 0; i < children_.size(); ++i) {
      for (std::string& line : children_[i].process.read_lines()) {
        if (line.rfind("rondo: ", 0) == 0) {
          children_[i].report = line.substr(7);
        } else {
          std::fprintf(stderr, "rank %d: %s\n", rank_of(static_cast<int>(i)), line.c_str());
        }
      }
    }
  }

  void look() {
    for (size_t i = 0; i < children_.size(); ++i) {
      Child& c = children_[i];
      if (c.seen.ended()) continue;
      if (!c.given_up) c.before_kill = c.seen;
      c.seen = c.process.status();
      if (!c.seen.ended() || c.seen.succeeded()) continue;
      order_.push_back(i);
      if (first_failed_) continue;
      first_failed_ = i;
      // The others notice by themselves, and say what they saw; not one that is stopped.
      give_up_at_ = within(std::chrono::duration_cast<CommClock::duration>(
          std::chrono::duration<double>(options_.grace)));
    }
  }

  static constexpr int comm_failure = exit_comm_failure;
  const LaunchOptions& options_;
  std::vector<Child> children_;
  std::vector<size_t> order_;  // in which they failed
  std::optional<size_t> first_failed_;
  std::optional<Deadline> give_up_at_;
};

bool is_for_ranks(const std::vector<std::string>& words) {
  if (words.front() == "train") return true;
  return words.size() > 1 && words[0] == "bench" && words[1] == "links";
}

int run_launch(const LaunchOptions& o) {
  if (o.words.empty() || !is_for_ranks(o.words)) {
    throw WrongUsage("expected -- train ..., the command that every rank runs (or -- bench links)");
  }
  if (o.node_rank >= o.nodes) {
    throw WrongUsage(str("--node-rank is ", o.node_rank, " of --nodes ", o.nodes));
  }
  if (o.nodes > 1 && o.master.empty()) throw WrongUsage("--nodes needs --master");
  TcpStoreServerOptions s;
  const char* token = std::getenv("RONDO_TOKEN");
  s.token = token ? token : "";
  if (o.nodes > 1) require_job_token(s.token, o.master, true);
  if (s.token.empty()) s.token = random_token();
  std::string address = s.bind_address;
  if (!o.master.empty()) {
    std::tie(address, s.port) = split_address("--master", o.master);
    s.bind_address = listening_address(address, o.nodes > 1);
  }
  std::unique_ptr<TcpStoreServer> server;
  uint16_t port = s.port;
  if (o.node_rank == 0) {
    server = std::make_unique<TcpStoreServer>(s);
    port = server->port();
  }
  const std::vector<std::string> settings{"MASTER_ADDR=" + address, str("MASTER_PORT=", port),
                                          "RONDO_TOKEN=" + s.token, "RONDO_STORE_IS_SERVED=1"};
  SignalGuard signals;
  for (int number = 1;; ++number) {
    Attempt attempt(o, settings, number);
    attempt.wait();
    const int code = attempt.exit_code();
    if (code == 0) return 0;
    if (stop_requested()) return 128 + stop_signal();
    const bool again = number <= o.max_restarts && attempt.may_go_better();
    std::fprintf(stderr, "rondo: %s%s\n", attempt.cause().c_str(),
                 again ? str("; starting again from the last checkpoint (restart ", number, " of ",
                             o.max_restarts, ")")
                             .c_str()
                       : "");
    if (!again) return code;
  }
}

}  // namespace

int launch_ranks(int ranks, const std::vector<std::string>& words) {
  LaunchOptions o;
  o.ranks = ranks;
  o.words = words;
  return run_launch(o);
}

void add_launch(Command& program) {
  Command& command = program.add_command("launch", "Train on several ranks, each a process");
  auto o = std::make_shared<LaunchOptions>();
  command.add_option("-n,--ranks", o->ranks, "so many ranks on this machine")
      .range(1, 4096)
      .show_default();
  command
      .add_option("--max-restarts", o->max_restarts,
                  "when a rank dies, start all again from the last checkpoint, so often")
      .range(0, 1000000)
      .show_default();
  command.add_option("--grace", o->grace, "seconds until ranks are killed after one has failed")
      .range(0.0, 1e6)
      .show_default();
  command.add_option("--nodes", o->nodes, "machines that run as many ranks each")
      .range(1, 65536)
      .show_default();
  command.add_option("--node-rank", o->node_rank, "which of them this is, from 0")
      .range(0, 65535)
      .show_default();
  command.add_option("--master", o->master,
                     "HOST:PORT of machine 0, where the ranks meet (with --nodes)");
  command.add_option("command", o->words, "-- train and its arguments").required();
  command.footer(
      "\nExample:  rondo launch -n 4 --max-restarts 3 -- train recipe.toml data=digits\n");
  command.action([o] { return run_launch(*o); });
}

}  // namespace rondo
