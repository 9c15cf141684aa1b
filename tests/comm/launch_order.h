// Whether ranks that share communicators launch collectives on them in one order.
//
// Where each rank's kernels ran one after the other, as they may on a GPU without room for two, a
// collective would wait for what its ranks have launched before it. Ranks wait for each other for
// ever exactly where that relation has a cycle.
#pragma once

#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace rondo::test {

// One thread at a time.
class LaunchOrder {
 public:
  // A communicator, and the place among its collectives: the same on all its ranks.
  using Collective = std::pair<int, int>;

  // A rank is a thread.
  void launched(std::thread::id rank, Collective collective) {
    const auto [last, first] = newest_.try_emplace(rank, collective);
    if (first) return;
    later_[last->second].insert(collective);
    last->second = collective;
  }

  bool has_cycle() const {
    std::map<Collective, int> waits;  // for so many others
    for (const auto& [earlier, all] : later_) {
      for (const Collective& c : all) ++waits[c];
    }
    std::vector<Collective> free;
    for (const auto& [earlier, all] : later_) {
      if (!waits.contains(earlier)) free.push_back(earlier);
    }
    while (!free.empty()) {
      const Collective passed = free.back();
      free.pop_back();
      const auto all = later_.find(passed);
      if (all == later_.end()) continue;
      for (const Collective& c : all->second) {
        if (--waits[c] > 0) continue;
        waits.erase(c);
        free.push_back(c);
      }
    }
    return !waits.empty();
  }

 private:
  std::map<std::thread::id, Collective> newest_;
  std::map<Collective, std::set<Collective>> later_;
};

}  // namespace rondo::test
