// The ranks of this machine where those that are left go on when others are lost: `rondo launch
// --elastic`.
//
// The launcher has as many places as there are to be ranks, each with a process. Processes that are
// ready arrive; when all have, they become the ranks of a first generation. When one is lost, those
// that are left break off what they were doing, arrive anew with what they hold of the run in
// memory, and become the ranks of the next generation, the one that has come furthest as rank 0.
// Meanwhile another process is started in the place of the one lost, as often as is allowed. When
// it has arrived, the ranks are told, arrive themselves after an update, and the next generation is
// of all. Only when nobody is left who holds anything of the run does it go on from the last
// checkpoint: then all arrive first, as at the start.
//
// A process that is waited for and does not arrive is killed: after `grace` if it is stopped,
// otherwise after the time for which ranks wait for each other.
//
// One thread at a time. Errors: InputError where processes cannot be started.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/store/store.h"
#include "engine/parallel/elastic_protocol.h"
#include "tools/ranks/local_ranks.h"

namespace rondo {

struct ElasticRanksOptions {
  int ranks = 1;
  std::vector<std::string> words;     // the command, "train" first
  std::vector<std::string> settings;  // "NAME=value", for all ranks
  int max_restarts = 0;               // so many processes are started in place of lost ones
  CommClock::duration grace;
  Store* store = nullptr;  // where the ranks find the launcher; borrowed
};

class ElasticRanks {
 public:
  // Starts them.
  explicit ElasticRanks(ElasticRanksOptions options);
  // Until all have ended.
  Outcome run();

 private:
  struct Place {
    std::unique_ptr<RankProcess> process;  // nullptr, once it is lost for good
    std::string name;                      // unlike that of any other process
    int processes = 0;                     // so far
    elastic::Arrival arrival;
    int64_t rounds_answered = 0;
    int64_t generation = 0;  // the last that it was of; 0: none yet
    int rank = 0;            // there

    bool lives() const { return process && !process->seen.ended(); }
    bool succeeded() const { return process && process->seen.succeeded(); }
    bool waits() const { return lives() && arrival.round > rounds_answered; }
  };

  void start(size_t place);
  void listen();
  // Who has ended, and how.
  void look();
  bool is_lost(Place& p);
  void lose(size_t place);
  void tell_loss(const std::string& cause, bool restarts) const;
  void give_up_place(Place& p);
  // Who has arrived.
  void hear();
  void regroup();
  // Whether the ranks of the generation have broken up, or are to.
  bool broken_up();
  void form();
  void end_all(const Outcome& outcome);
  void pass_on_signal();
  void kill_the_late();

  bool is_of_generation(const Place& p) const {
    return generation_ > 0 && p.generation == generation_;
  }
  // Processes that hold the run in memory, or may.
  int64_t holders() const;
  bool somebody_holds_the_run() const { return holders() > 0; }
  // Those of the generation that are left have all ended well.
  bool run_is_done() const;
  bool is_waited_for(const Place& p) const;
  std::chrono::duration<double> patience_with(const Place& p) const;
  std::string name_of(const Place& p) const;
  void break_generation(const std::string& why);

  const ElasticRanksOptions options_;
  std::vector<Place> places_;
  int64_t generation_ = 0;
  bool together_ = false;            // the generation is at work
  bool knows_of_newcomers_ = false;  // it was told that others wait
  bool has_lost_ = false;            // one of its ranks
  std::string arrivals_;             // how many, as last read
  int restarts_ = 0;
  std::optional<Deadline> late_from_;  // since when somebody is waited for
  std::optional<Outcome> ending_;
  Outcome last_loss_;
  std::optional<Deadline> kill_at_;
  bool passed_on_ = false;
};

}  // namespace rondo
