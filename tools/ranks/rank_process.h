// A rank as a process that `rondo launch` has started: its environment, its report, its end.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/parallel/child_process.h"

namespace rondo {

// The exit code of a rank that lost others.
inline constexpr int exit_comm_failure = 75;
// Says to a rank that `rondo launch` has started it: the launcher's process.
inline constexpr const char* launcher_variable = "RONDO_LAUNCHER";

struct RankProcess {
  explicit RankProcess(ChildProcess p) : process(std::move(p)) {}

  ChildProcess process;
  ChildStatus seen, before_kill;
  std::string report;     // its "rondo: ..." line, without the name, and indented lines below it
  bool given_up = false;  // its launcher has killed it

  // Reads what it has said: its report, and other lines, which are shown with `name` before them.
  // Empty: it speaks for all. Then lines are shown as they are, reports but for the last too.
  void listen(const std::string& name);
  // Looks what has become of it.
  void look();
  // Bad data, say; no signal, and nobody lost.
  bool ended_with_own_reason() const;
  bool was_harmed() const;

 private:
  bool reports_ = false;  // its last line was of its report
};

// Whether it is a command whose inputs ranks divide, of which rank 0 says everything.
bool divides_inputs(const std::vector<std::string>& words);
// What a rank is started with: the command, "train" first; with `goes_on` from the last checkpoint,
// if there is one.
std::vector<std::string> rank_arguments(const std::vector<std::string>& words, bool goes_on);
// This process's variables, without those that say which rank of something else it is, and
// `settings`, "NAME=value".
std::vector<std::string> rank_environment(const std::vector<std::string>& settings);

// Waits so long for any of them to say something.
void wait_for_words(const std::vector<const RankProcess*>& processes, int milliseconds);

bool is_after_a_signal(int exit_code);

}  // namespace rondo
