// Which of a launch's memory accesses happened before which: vector clocks, kept small by the shape
// of a grid.
//
// There is one counter. Every event that orders something (a barrier, a __syncwarp, a release)
// takes its next value; an access carries its thread's clock. When the threads of a barrier go on,
// all have the barrier's value as their clock, so one number per block says what a thread knows of
// a block: every access older than it. What threads learn from flags is a sparse list on top.
// (Vector clocks: Mattern 1989; the idea of comparing one epoch per location instead of whole
// clocks is FastTrack's, Flanagan and Freund 2009.)
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/simt/sim/scheduler.h"

namespace rondo::simt {

using Clock = uint32_t;

// What somebody knows: all accesses of a block or of a thread with a clock below a bound.
class Knowledge {
 public:
  bool empty() const { return all_ == 0 && blocks_.empty() && threads_.empty(); }
  void learn_all(Clock below) { all_ = std::max(all_, below); }
  void learn_block(uint64_t block, Clock below) { raise(blocks_, block, below); }
  void learn_thread(uint64_t thread, Clock below) { raise(threads_, thread, below); }
  void learn(const Knowledge& other);
  bool covers(uint64_t block, uint64_t thread, Clock clock) const {
    return clock < all_ || clock < bound(blocks_, block) || clock < bound(threads_, thread);
  }

 private:
  using Bounds = std::vector<std::pair<uint64_t, Clock>>;  // sorted
  static void raise(Bounds& bounds, uint64_t key, Clock below);
  static void merge(Bounds& into, const Bounds& other);
  static Clock bound(const Bounds& bounds, uint64_t key);

  Clock all_ = 0;
  Bounds blocks_, threads_;
};

// One generation of a cluster's barrier whose threads arrive and wait apart: which accesses each
// thread of the cluster had made when it arrived, and what it had learnt of others.
struct ClusterPhase {
  uint64_t number = 0;       // later ones of a launch have larger numbers
  std::vector<Clock> below;  // [block of the cluster, thread]: its clocks before it arrived
  Knowledge learnt;
};

// Follows one launch at a time. Threads of the grid are numbered block * threads per block + linear
// index.
class HappensBefore {
 public:
  void begin_grid(const LaunchConfig& config);
  void begin_gang(const Gang& gang);

  void barrier_completed(const Thread& by, const Barrier& barrier);
  // A barrier of the cluster in two (Barrier::split).
  void arrived_at_cluster(const Thread& t);
  void waited_for_cluster(const Thread& t);
  void warp_synchronised(const Thread& by, unsigned mask);
  void fence(const Thread& t);
  void updated(const Thread& t, const void* p);  // a relaxed read-modify-write
  void released(const Thread& t, const void* p);
  void acquired(const Thread& t, const void* p);

  // A thread, and what it knows now.
  class View {
   public:
    uint32_t block;
    uint16_t thread;
    Clock clock;  // what an access carries now

    // An access with a smaller clock happened before now, if it was made by any thread, by one of
    // the block, or by one of the warp.
    Clock all, block_clock, warp_clock;
    bool knows_more;  // than that

    // Whether an access of a thread of the grid happened before now.
    bool knows(uint32_t other_block, uint16_t other, Clock when) const {
      if (when < all) return true;
      if (other_block == block) {
        if (other == thread || when < block_clock) return true;
        if (other / 32 == thread / 32) {
          if (when < warp_clock) return true;
          if (lanes_ && when < (*lanes_)[other % 32]) return true;
        }
      } else if (when < cluster_clock_ && other_block - first_in_cluster_ < cluster_) {
        return true;
      }
      if (passed_ && other_block - first_in_cluster_ < cluster_ &&
          when < passed_->below[(other_block - first_in_cluster_) * block_threads_ + other]) {
        return true;
      }
      return knows_by_flags(other_block, other, when);
    }

   private:
    friend class HappensBefore;
    bool knows_by_flags(uint32_t other_block, uint16_t other, Clock when) const;

    Clock cluster_clock_;
    uint32_t first_in_cluster_, cluster_;
    uint64_t block_threads_;
    const std::array<Clock, 32>* lanes_;
    const Knowledge *shared_, *learned_;
    const ClusterPhase* passed_;
  };
  // Holds until the next call of any function here, this one's with another thread among them.
  const View& view(const Thread& t) {
    if (viewed_ != &t) look(t);
    return view_;
  }
  // Clocks of this launch, and of the gang that runs, are not below these.
  Clock grid_start() const { return grid_start_; }
  Clock gang_start() const { return gang_start_; }

 private:
  struct Warp {
    Clock clock = 0;  // of its last __syncwarp of all lanes
    // [l][m]: what lane l knows of lane m. Null until some lanes synchronise without the others.
    std::unique_ptr<std::array<std::array<Clock, 32>, 32>> lanes;
  };
  struct Lane {
    Clock clock = 0;  // of its own last event, if later than those it shares
    // What it knows from flags, what it knew at its last fence, and what a fence to come will give
    // it.
    std::unique_ptr<Knowledge> learned, at_fence, pending;
    std::shared_ptr<ClusterPhase> phase;         // it has arrived in
    std::shared_ptr<const ClusterPhase> passed;  // it has waited for
  };
  struct BlockState {
    uint64_t number = 0;
    Clock clock = 0;          // of its last __syncthreads, or a wider barrier
    Clock cluster_clock = 0;  // of the last cluster_sync, or a wider barrier
    Knowledge shared;         // of all its threads, beyond this block
    // The latest phase that all its threads have waited for, or been told of; that one of them has.
    std::shared_ptr<const ClusterPhase> passed, newest;
    std::vector<Lane> lanes;
    std::vector<Warp> warps;
    std::vector<unsigned> learners;  // lanes with `learned`
  };

  BlockState& state(const Thread& t) { return blocks_[index_in_gang(t)]; }
  size_t index_in_gang(const Thread& t) const;
  void forget_shared(const Gang& gang);
  static unsigned existing_lanes(const BlockState& b, unsigned warp);
  Clock next();
  void look(const Thread& t);
  void learn(BlockState& b, unsigned lane, const Knowledge& what);
  Knowledge known_of_others(const Thread& t);
  Knowledge snapshot(const Thread& t);
  static const std::shared_ptr<const ClusterPhase>& later(
      const std::shared_ptr<const ClusterPhase>& a, const std::shared_ptr<const ClusterPhase>& b);
  void end_phase(const Block& block);
  void merge_blocks(size_t first, size_t count, bool cluster);
  void synchronise_some(BlockState& b, unsigned warp, unsigned mask, Clock now);

  uint64_t threads_ = 0;  // per block
  unsigned cluster_ = 1;
  Clock counter_ = 0, grid_start_ = 0, gang_start_ = 0, grid_clock_ = 0;
  const Block* first_block_ = nullptr;
  std::vector<BlockState> blocks_;
  std::unordered_map<const void*, Knowledge> published_;
  std::vector<std::shared_ptr<ClusterPhase>>
      phases_;                      // the present one of each cluster, once begun
  const Thread* viewed_ = nullptr;  // whose view_ is; null when something has changed since
  View view_;
};

}  // namespace rondo::simt
