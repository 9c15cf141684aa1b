#include "engine/parallel/launch_environment.h"

#include <cctype>
#include <charconv>
#include <cstring>
#include <string_view>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// A value and where it comes from, for messages.
struct Given {
  std::optional<int64_t> value;
  std::string name;
};

int64_t parse_number(const std::string& name, const char* text, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    fail_input(name, " is '", text, "', expected a number from ", low, " to ", high);
  }
  return value;
}

constexpr int64_t most_ranks = 1 << 20;

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::optional<RankPlace> place() {
    read_ranks();
    if (!rank_.value) {
      if (size_.value && *size_.value > 1) {
        fail_input(size_.name, " is ", *size_.value, ", but nothing says which rank this is");
      }
      return std::nullopt;
    }
    if (!size_.value) {
      fail_input(rank_.name, " is ", *rank_.value, ", but nothing says how many ranks there are");
    }
    if (*rank_.value >= *size_.value) {
      fail_input(rank_.name, " is ", *rank_.value, ", but ", size_.name, " is ", *size_.value);
    }
    RankPlace p;
    p.rank = static_cast<int>(*rank_.value);
    p.world_size = static_cast<int>(*size_.value);
    p.local_rank = static_cast<int>(local_rank_.value.value_or(0));
    p.local_size = static_cast<int>(local_size_.value.value_or(1));
    if (p.local_rank >= p.local_size && local_size_.value) {
      fail_input(local_rank_.name, " is ", p.local_rank, ", but ", local_size_.name, " is ",
                 p.local_size);
    }
    if (p.world_size == 1) return std::nullopt;
    read_meeting(p);
    return p;
  }

 private:
  const char* get(const char* name) const {
    const char* value = environment_(name);
    return value && *value ? value : nullptr;
  }

  Given number(const char* name, int64_t low, int64_t high) const {
    Given g{std::nullopt, name};
    if (const char* text = get(name)) g.value = parse_number(name, text, low, high);
    return g;
  }

  // The first that says something counts; a later one must not contradict it.
  static void settle(Given& so_far, const Given& next) {
    if (!next.value) return;
    if (!so_far.value) {
      so_far = next;
    } else if (*so_far.value != *next.value) {
      fail_input(so_far.name, " is ", *so_far.value, ", but ", next.name, " is ", *next.value,
                 ": this process was started as two different ranks");
    }
  }

  void read_ranks() {
    const int64_t last = most_ranks - 1;
    settle(rank_, number("RANK", 0, last));
    settle(size_, number("WORLD_SIZE", 1, most_ranks));
    settle(local_rank_, number("LOCAL_RANK", 0, last));
    settle(local_size_, number("LOCAL_WORLD_SIZE", 1, most_ranks));
    settle(rank_, number("OMPI_COMM_WORLD_RANK", 0, last));
    settle(size_, number("OMPI_COMM_WORLD_SIZE", 1, most_ranks));
    settle(local_rank_, number("OMPI_COMM_WORLD_LOCAL_RANK", 0, last));
    settle(local_size_, number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, most_ranks));
    settle(rank_, number("PMIX_RANK", 0, last));
    if (!get("SLURM_STEP_ID")) return;
    if (!rank_.value) read_slurm_rank(last);
    // In a heterogeneous job, what is said of the step may be about one component; SLURM_PROCID and
    // SLURM_NTASKS are about all.
    for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}) {
      if (heterogeneous() && std::string_view(name) == "SLURM_STEP_NUM_TASKS") continue;
      if (!size_.value) settle(size_, number(name, 1, most_ranks));
    }
  }

  void read_slurm_rank(int64_t last) {
    settle(rank_, number("SLURM_PROCID", 0, last));
    slurm_ = rank_.value.has_value();
    settle(local_rank_, number("SLURM_LOCALID", 0, last));
    if (heterogeneous() || local_size_.value) return;
    const char* tasks = get("SLURM_STEP_TASKS_PER_NODE");
    const Given node = number("SLURM_NODEID", 0, last);
    if (!tasks || !node.value) return;
    local_size_ = {tasks_of_node(tasks, *node.value), "SLURM_STEP_TASKS_PER_NODE"};
  }

  bool heterogeneous() const {
    return number("SLURM_HET_SIZE", 1, most_ranks).value.value_or(1) > 1;
  }

  // A name out of what a launcher calls the job.
  static std::string directory_name(std::string_view job) {
    std::string name;
    for (const char c : job) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    return name;
  }

  // torchrun's agent starts its ranks anew when one has failed, and also when machines come or go;
  // the number of restarts counts the former alone.
  void read_torchrun(const char* run, RankPlace& p) const {
    const int64_t restarts = number("TORCHELASTIC_RESTART_COUNT", 0, INT32_MAX).value.value_or(0);
    p.attempt = str(restarts, "of", p.world_size);
    if (p.local_size == p.world_size) {
      const char* port = get("MASTER_PORT");
      p.meeting_directory = directory_name(str("torchrun-", run, "-", port ? port : ""));
      return;
    }
    read_master(p);
    // The agent of the first machine serves a store of its own there.
    const char* served = get("TORCHELASTIC_USE_AGENT_STORE");
    if (served && std::string_view(served) == "True") {
      p.master_port = static_cast<uint16_t>(p.master_port == 65535 ? 65534 : p.master_port + 1);
    }
    require_token(p);
  }

  static void require_token(const RankPlace& p) {
    require_job_token(p.token, str(p.master_address, ":", p.master_port),
                      p.local_size < p.world_size);
  }

  void read_meeting(RankPlace& p) const {
    if (const char* token = get("RONDO_TOKEN")) p.token = token;
    if (const char* attempt = get("RONDO_ATTEMPT")) p.attempt = attempt;
    p.master_serves = get("RONDO_STORE_IS_SERVED") == nullptr;
    const char* elastic = get("RONDO_ELASTIC");
    p.elastic = elastic != nullptr;
    p.joins = elastic && std::string_view(elastic) == "joins";
    const char* torchrun = get("TORCHELASTIC_RUN_ID");
    if (torchrun) return read_torchrun(torchrun, p);
    read_master(p);
    if (!p.master_address.empty()) return require_token(p);
    // Open MPI names the job in one of these, depending on its version.
    for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
      const char* job = get(name);
      if (!job || p.local_size != p.world_size) continue;
      p.meeting_directory = directory_name(job);
      return;
    }
    fail_input("nothing says where the ", p.world_size,
               " ranks meet: set MASTER_ADDR and MASTER_PORT, and RONDO_TOKEN to a common secret");
  }

  void read_master(RankPlace& p) const {
    const char* address = get("MASTER_ADDR");
    const Given port = number("MASTER_PORT", 1, 65535);
    if (address) p.master_address = address;
    if (port.value) p.master_port = static_cast<uint16_t>(*port.value);
    if (slurm_ && !address) {
      const char* nodes = heterogeneous() ? nullptr : get("SLURM_STEP_NODELIST");
      if (!nodes) nodes = get("SLURM_JOB_NODELIST");
      if (!nodes) nodes = get("SLURM_NODELIST");
      if (!nodes) fail_input("SLURM_JOB_NODELIST is not set: set MASTER_ADDR to the first node");
      p.master_address = first_host(nodes);
    }
    if (slurm_ && !port.value) {
      // Among the ports that are neither reserved nor handed out to clients by default.
      const int64_t job = number("SLURM_JOB_ID", 0, INT64_MAX).value.value_or(0);
      p.master_port = static_cast<uint16_t>(20000 + job % 10000);
    }
    if (p.master_address.empty() != (p.master_port == 0)) {
      fail_input(p.master_port == 0 ? "MASTER_ADDR is set, but MASTER_PORT is not"
                                    : "MASTER_PORT is set, but MASTER_ADDR is not");
    }
  }

  const Environment& environment_;
  Given rank_, size_, local_rank_, local_size_;
  bool slurm_ = false;
};

}  // namespace

std::optional<RankPlace> find_place(const Environment& environment) {
  return Reader(environment).place();
}

int gpu_of_rank(int local_rank, int local_size, int visible, const Environment& environment) {
  if (local_size <= visible) return local_rank;
  const auto has = [&](const char* name) {
    const char* value = environment(name);
    return value != nullptr && *value != 0;
  };
  const bool shown_alike = has("RONDO_STORE_IS_SERVED") || has("TORCHELASTIC_RUN_ID");
  const char* shown = environment("CUDA_VISIBLE_DEVICES");
  const bool one_is_shown = shown && *shown && std::strchr(shown, ',') == nullptr;
  const bool of_the_task = one_is_shown || has("SLURM_GPUS_PER_TASK");
  if (visible == 1 && of_the_task && !shown_alike) return 0;
  fail_input(local_size, " ranks on this machine, each with a GPU of its own: ",
             visible == 1 ? "there is 1" : str("there are ", visible), " that they see",
             shown && *shown ? str(" (CUDA_VISIBLE_DEVICES is ", shown, ")") : "");
}

void require_job_token(const std::string& token, const std::string& meeting, bool other_machines) {
  constexpr size_t least = 16;
  if (token.empty()) {
    fail_input("the ranks that meet at ", meeting,
               " need a job token: set RONDO_TOKEN to the same secret for all of them");
  }
  const bool inside = meeting.starts_with("127.") || meeting.starts_with("localhost:") ||
                      meeting.starts_with("::1:");
  if (!other_machines || inside || token.size() >= least) return;
  fail_input("RONDO_TOKEN has ", token.size(),
             " characters: where ranks of several machines meet (", meeting, ") it takes at least ",
             least, ", as of openssl rand -hex 16");
}

std::pair<std::string, uint16_t> split_address(const std::string& what, const std::string& text) {
  const size_t colon = text.rfind(':');
  const bool bracketed = text.starts_with('[') && colon > 1 && text[colon - 1] == ']';
  const std::string host = bracketed ? text.substr(1, colon - 2) : text.substr(0, colon);
  // Without brackets nobody knows where the address ends.
  if (colon == std::string::npos || host.empty() ||
      (!bracketed && host.find_first_of("[]:") != std::string::npos)) {
    fail_input(what, " is '", text, "', expected HOST:PORT, of an IPv6 address [HOST]:PORT");
  }
  const int64_t port = parse_number(what + "'s port", text.c_str() + colon + 1, 1, 65535);
  return {host, static_cast<uint16_t>(port)};
}

std::string first_host(const std::string& nodelist) {
  const auto refuse = [&] { fail_input("'", nodelist, "' is not a list of nodes"); };
  std::string host;
  for (size_t i = 0; i < nodelist.size() && nodelist[i] != ','; ++i) {
    if (nodelist[i] != '[') {
      if (nodelist[i] == ']' || nodelist[i] == ' ') refuse();
      host += nodelist[i];
      continue;
    }
    const size_t stop = nodelist.find(']', i);
    if (stop == std::string::npos) refuse();
    const std::string numbers = nodelist.substr(i + 1, stop - i - 1);
    const std::string first = numbers.substr(0, numbers.find_first_not_of("0123456789"));
    if (first.empty() || numbers.find_first_not_of("0123456789,-") != std::string::npos) refuse();
    host += first;
    i = stop;
  }
  if (host.empty()) refuse();
  return host;
}

int tasks_of_node(const std::string& tasks_per_node, int64_t node) {
  const auto refuse = [&] {
    fail_input("'", tasks_per_node, "' is not Slurm's number of tasks per node");
  };
  const auto number = [&](const char*& at, const char* end) {
    int64_t n = 0;
    const auto [stop, error] = std::from_chars(at, end, n);
    if (error != std::errc() || n < 1 || n > most_ranks) refuse();
    at = stop;
    return n;
  };
  const char* at = tasks_per_node.data();
  const char* const end = at + tasks_per_node.size();
  for (int64_t before = 0;;) {
    const int64_t tasks = number(at, end);
    int64_t nodes = 1;
    if (end - at >= 2 && at[0] == '(' && at[1] == 'x') {
      at += 2;
      nodes = number(at, end);
      if (at == end || *at++ != ')') refuse();
    }
    before += nodes;
    if (node < before) return static_cast<int>(tasks);
    if (at == end) {
      fail_input("SLURM_NODEID is ", node, ", but '", tasks_per_node, "' is about ", before,
                 " nodes");
    }
    if (*at++ != ',') refuse();
  }
}

}  // namespace rondo
