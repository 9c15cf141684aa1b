#include "tools/ranks/rank_process.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "engine/io/signals.h"
#include "kernels/base/error.h"

extern char** environ;

namespace rondo {

void RankProcess::listen(const std::string& name) {
  for (std::string& line : process.read_lines()) {
    if (reports_ && line.starts_with("  ")) {
      report += "\n" + line;
      continue;
    }
    reports_ = line.starts_with("rondo: ");
    if (reports_) {
      if (name.empty() && !report.empty()) std::fprintf(stderr, "rondo: %s\n", report.c_str());
      report = line.substr(7);
    } else if (name.empty()) {
      std::fprintf(stderr, "%s\n", line.c_str());
    } else {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), line.c_str());
    }
  }
}

void RankProcess::look() {
  if (seen.ended()) return;
  if (!given_up) before_kill = seen;
  seen = process.status();
}

bool RankProcess::ended_with_own_reason() const {
  if (seen.kind != ChildStatus::exited || seen.number == 0) return false;
  if (seen.number == exit_comm_failure) return false;
  return !is_after_a_signal(seen.number) && (!report.empty() || seen.number != 1);
}

bool RankProcess::was_harmed() const {
  return given_up ? before_kill.kind == ChildStatus::stopped : seen.kind == ChildStatus::killed;
}

bool divides_inputs(const std::vector<std::string>& words) {
  return words.front() == "eval" || words.front() == "transcribe" || words.front() == "predict";
}

std::vector<std::string> rank_arguments(const std::vector<std::string>& words, bool goes_on) {
  std::vector<std::string> arguments{"rondo"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  const auto resumes = [](const std::string& a) {
    return a == "--resume" || a == "--resume-or-start";
  };
  // The first attempt may have saved nothing.
  if (goes_on && arguments[1] == "train" &&
      std::none_of(arguments.begin(), arguments.end(), resumes)) {
    arguments.push_back("--resume-or-start");
  }
  return arguments;
}

std::vector<std::string> rank_environment(const std::vector<std::string>& settings) {
  static constexpr const char* dropped[] = {
      "RANK=",           "WORLD_SIZE=",    "LOCAL_RANK=",      "LOCAL_WORLD_SIZE=",
      "MASTER_ADDR=",    "MASTER_PORT=",   "OMPI_COMM_WORLD_", "PMIX_",
      "RONDO_TOKEN=",    "RONDO_ATTEMPT=", "RONDO_ELASTIC=",   "RONDO_STORE_IS_SERVED=",
      "RONDO_LAUNCHER=", "TORCHELASTIC_"};
  std::vector<std::string> kept;
  for (char** v = environ; *v; ++v) {
    if (std::none_of(std::begin(dropped), std::end(dropped),
                     [&](const char* d) { return std::strncmp(*v, d, std::strlen(d)) == 0; })) {
      kept.emplace_back(*v);
    }
  }
  kept.insert(kept.end(), settings.begin(), settings.end());
  kept.push_back(str(launcher_variable, "=", ::getpid()));
  return kept;
}

void wait_for_words(const std::vector<const RankProcess*>& processes, int milliseconds) {
  std::vector<pollfd> pipes;
  for (const RankProcess* p : processes) pipes.push_back({p->process.error_pipe(), POLLIN, 0});
  ::poll(pipes.data(), pipes.size(), milliseconds);
}

bool is_after_a_signal(int exit_code) { return asks_to_stop(exit_code - 128); }

}  // namespace rondo
