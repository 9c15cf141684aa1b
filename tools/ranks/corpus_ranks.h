// The ranks that divide a corpus: of eval, transcribe and predict, where a launcher has started
// this process as one of several.
//
// One thread at a time. Errors: those of find_place(), join_ranks() and Ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/parallel/launch_environment.h"
#include "engine/reduce/ranks.h"
#include "tools/command_line/device_option.h"
#include "tools/ranks/rank_world.h"

namespace rondo {

class CorpusRanks {
 public:
  // Where others were started too, waits for them. `command`: "rondo eval", say.
  explicit CorpusRanks(std::string command);

  const Ranks& ranks() const { return ranks_; }
  // For which a rank that says nothing is waited for; see together_at_length().
  static CommClock::duration patience();

  // Of this rank among those of its machine.
  DeviceId device(const DeviceChoice& choice) const;
  int threads(int asked) const;  // 0: its share of the CPUs

  // InputError on ranks that were given other things than rank 0; given() has all that the results
  // depend on.
  void require_same(const std::function<std::string()>& given) const;

  // What all ranks do alike, at a length that may differ.
  void together(const std::function<void()>& action) const;
  // Throws what is wrong with action() as this process is to tell it.
  void run(const std::function<void()>& action) const;

 private:
  const std::string command_;
  std::optional<RankPlace> place_;  // nothing: this is one rank alone
  std::unique_ptr<RankWorld> world_;
  std::unique_ptr<ProcessGroup> group_;
  Ranks ranks_;
};

}  // namespace rondo
