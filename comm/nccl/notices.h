// What the ranks of an NCCL group tell each other beside NCCL, over the Store: why one gave up, who
// has left, and, when a deadline has passed, where each of them stands.
//
// Keys begin with the group's name, which no other group or attempt may have used. Reading costs
// one request as long as there is no news.
//
// Thread safety: any thread. Errors: CommError, as the Store's.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/store/store.h"

namespace rondo {

class Notices {
 public:
  Notices(Store& store, std::string name, int rank, int size);

  struct Left {
    int rank;
    int64_t collectives;  // that it took part in
  };
  struct Standing {
    int64_t issued = 0;   // collectives so far
    int64_t number = -1;  // of the oldest that is not done; -1: all are
    std::string what;
  };

  // The first reason stays.
  void abort(const std::string& reason);
  void leave(int64_t collectives);
  // Asks every rank to publish where it stands.
  void ask_standing();
  void publish_standing(const Standing& standing);

  // Whether anything was told since the last call, except by this rank.
  bool news();
  // "rank 2 aborted: ...", with the rank as peer().
  std::optional<CommError> aborted();
  std::vector<Left> left();
  bool standing_asked();
  std::optional<Standing> standing_of(int rank);

 private:
  std::string key(const char* what) const { return name_ + "/" + what; }
  std::string key(const char* what, int rank) const {
    return key(what) + "/" + std::to_string(rank);
  }
  void announce();

  Store& store_;
  const std::string name_;
  const int rank_, size_;
  std::mutex mutex_;
  std::string seen_;  // the counter of news
};

}  // namespace rondo
