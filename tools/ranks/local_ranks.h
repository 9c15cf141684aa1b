// The ranks of this machine in one attempt of `rondo launch`: started, watched, their end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/work.h"
#include "tools/ranks/rank_process.h"

namespace rondo {

// What became of the ranks of a machine.
struct Outcome {
  // Where several machines tell what went wrong, the last in this list counts.
  enum Kind : int {
    succeeded,
    lost_others,   // by themselves, since others were gone or late
    stopped,       // as after a signal, which nobody here knows of
    machine_lost,  // no launcher says what became of them
    harmed,        // one was killed, or stands still
    told,          // their launcher was told to stop, and has passed it on
    own_reason,    // one cannot go on: bad data, say
  } kind = succeeded;
  int code = 0;       // the exit code
  std::string cause;  // what was wrong, in one line, with what another rank saw of it

  // Whether another attempt may do better.
  bool may_go_better() const {
    return kind == lost_others || kind == machine_lost || kind == harmed;
  }
};

// What is heard of the ranks of other machines.
enum class Elsewhere : unsigned char { fine, failing, told_to_stop };

struct LocalRanksOptions {
  int ranks = 1, node_rank = 0, nodes = 1;
  std::vector<std::string> words;     // the command, "train" first
  std::vector<std::string> settings;  // "NAME=value", for all ranks
  std::string attempt;                // its name
  bool goes_on = false;               // from the last checkpoint, if there is one
  CommClock::duration grace;          // until those are killed that do not end by themselves
};

// One thread at a time. Errors: InputError where processes cannot be started.
class LocalRanks {
 public:
  // Starts them.
  explicit LocalRanks(LocalRanksOptions options);

  // Until all have ended. Asks `elsewhere` several times a second whether ranks elsewhere have
  // failed; calls `tell` when one here has.
  void wait(const std::function<Elsewhere()>& elsewhere, const std::function<void()>& tell);
  Outcome outcome() const;

 private:
  int rank_of(int local) const { return options_.node_rank * options_.ranks + local; }
  std::optional<size_t> that_says_why() const;
  int code_of(size_t i) const;
  std::string witness_of(const std::string& what) const;
  std::string cause() const;
  int exit_code() const;
  Outcome::Kind kind() const;
  void listen();
  void look();
  void give_up_later();
  void kill_the_rest();

  const LocalRanksOptions options_;
  std::vector<RankProcess> children_;
  std::vector<size_t> order_;  // in which they failed
  std::optional<size_t> first_failed_;
  std::optional<Deadline> give_up_at_;
};

}  // namespace rondo
