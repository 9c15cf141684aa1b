// How the launchers of a job's machines work together, attempt by attempt.
//
// Node 0's launcher owns the attempts. It serves the store in which launchers and ranks meet, and
// empties it before each attempt; so nobody finds an address of a dead rank. It waits until the
// launchers of all other machines have come, names the attempt, and at its end gathers what became
// of the ranks everywhere and says what comes next. Each of the others keeps a connection with the
// store while it lives, by which it is missed when it is gone, and counts there as a sign of life.
// A launcher that is started anew on any machine ends the attempt, for the ranks of its machine are
// gone; then all meet in the next one. A new launcher of node 0 serves a new store, to which the
// others come back.
//
// One thread at a time. Errors: InputError for what cannot work (another token, other options on
// another machine, a machine that does not come in time).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tools/ranks/local_ranks.h"

namespace rondo {

struct LaunchersOptions {
  int nodes = 1, node_rank = 0;
  int ranks = 1;                           // of each machine
  std::string address;                     // of node 0
  std::string bind_address = "127.0.0.1";  // where node 0's store listens
  uint16_t port = 0;                       // 0: any, of one machine alone
  std::string token;
  int max_restarts = 0;
  CommClock::duration grace, join_timeout;
};

struct Attempt {
  std::string name;      // unlike that of any other attempt
  bool goes_on = false;  // from the last checkpoint: an attempt has been made before
};

struct Verdict {
  enum What { done, again, stop } what = done;
  int code = 0;
  std::string cause;
};

class Launchers {
 public:
  virtual ~Launchers() = default;
  // Where the ranks find the store.
  virtual uint16_t port() const = 0;
  // Waits for the launchers of all machines. Nothing: this process was told to stop.
  virtual std::optional<Attempt> begin() = 0;
  // Whether ranks elsewhere have failed, or were told to stop, or their launcher is gone: those
  // here are to end as well.
  virtual Elsewhere elsewhere() = 0;
  // Ranks here have failed, or ended since this process was told to stop.
  virtual void tell_trouble() = 0;
  // The ranks here have ended. Waits for all others.
  virtual Verdict end(const Outcome& own) = 0;
};

// On node 0 the store listens on return.
std::unique_ptr<Launchers> make_launchers(const LaunchersOptions& options);

}  // namespace rondo
