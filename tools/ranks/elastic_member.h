// A process among ranks that come and go: it waits for a place among them, and connects with the
// others. See tools/ranks/elastic_ranks.h for the launcher's side.
//
// One thread at a time. Errors: CommError when the launcher is gone, or says that the run is over.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/store/tcp_store.h"
#include "comm/transport.h"
#include "engine/config/config.h"
#include "engine/parallel/elastic_protocol.h"
#include "engine/parallel/launch_environment.h"

namespace rondo {

class ElasticMember {
 public:
  // `patience`: for which ranks of this run wait for each other.
  ElasticMember(const RankPlace& place, RankTransport transport, CommClock::duration patience);

  // Waits, however long, until the launcher has a place for a process that has come so far. `why`:
  // an error by which it left the ranks it was with. Nothing: this process was asked to stop, and
  // holds nothing of the run.
  std::optional<elastic::Seat> take_seat(const elastic::Progress& progress, const std::string& why);

  // CommError where another of its ranks is lost on the way.
  std::unique_ptr<Transport> connect(const elastic::Seat& seat);

  // Whether others wait to become ranks besides those of this seat. Asks the launcher at most a few
  // dozen times a second. Does not throw.
  bool newcomers_wait(const elastic::Seat& seat);

  Store& store() { return *store_; }

 private:
  const RankPlace place_;
  const RankTransport transport_;
  const CommClock::duration patience_;
  const std::unique_ptr<TcpStore> store_;
  int64_t round_ = 0;
  Deadline next_question_{};
};

}  // namespace rondo
