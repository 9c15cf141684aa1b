#include "kernels/simt/instrument/clocks.h"

#include <algorithm>
#include <functional>

#include "kernels/base/error.h"
#include "kernels/simt/sim/gang.h"

namespace rondo::simt {

// ---- Knowledge ----

void Knowledge::raise(Bounds& bounds, uint64_t key, Clock below) {
  auto at = std::lower_bound(bounds.begin(), bounds.end(), key,
                             [](const auto& entry, uint64_t k) { return entry.first < k; });
  if (at != bounds.end() && at->first == key) {
    at->second = std::max(at->second, below);
  } else {
    bounds.insert(at, {key, below});
  }
}

Clock Knowledge::bound(const Bounds& bounds, uint64_t key) {
  const auto at = std::lower_bound(bounds.begin(), bounds.end(), key,
                                   [](const auto& entry, uint64_t k) { return entry.first < k; });
  return at != bounds.end() && at->first == key ? at->second : 0;
}

// One pass over both: raise() for each would search, and move what lies behind. Mostly all keys are
// there already, and nothing moves at all.
void Knowledge::merge(Bounds& into, const Bounds& other) {
  auto a = into.begin();
  auto b = other.begin();
  for (; b != other.end(); ++a, ++b) {
    while (a != into.end() && a->first < b->first) ++a;
    if (a == into.end() || a->first != b->first) break;
    a->second = std::max(a->second, b->second);
  }
  if (b == other.end()) return;
  static thread_local Bounds rest;  // of `into`, from the first key that it has not
  rest.assign(a, into.end());
  into.erase(a, into.end());
  auto c = rest.cbegin();
  for (; b != other.end(); ++b) {
    for (; c != rest.cend() && c->first < b->first; ++c) into.push_back(*c);
    into.push_back(*b);
    if (c != rest.cend() && c->first == b->first) {
      into.back().second = std::max(c->second, b->second);
      ++c;
    }
  }
  into.insert(into.end(), c, rest.cend());
}

void Knowledge::learn(const Knowledge& other) {
  all_ = std::max(all_, other.all_);
  merge(blocks_, other.blocks_);
  merge(threads_, other.threads_);
}

// ---- HappensBefore ----

Clock HappensBefore::next() {
  RONDO_CHECK(counter_ < ~Clock{0} / 2, "instrumented simulator: 2^31 events");
  viewed_ = nullptr;
  return ++counter_;
}

void HappensBefore::begin_grid(const LaunchConfig& config) {
  threads_ = config.block.count();
  cluster_ = config.cluster;
  grid_start_ = next();
  published_.clear();
}

void HappensBefore::begin_gang(const Gang& gang) {
  gang_start_ = next();
  grid_clock_ = grid_start_;
  first_block_ = gang.blocks.data();
  forget_shared(gang);
  blocks_.clear();
  blocks_.resize(gang.blocks.size());
  phases_.assign(blocks_.size() / cluster_, nullptr);
  const Dim3 grid = gang.config.grid;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Dim3 at = gang.blocks[i].index;
    BlockState& b = blocks_[i];
    b.number = at.x + uint64_t{grid.x} * (at.y + uint64_t{grid.y} * at.z);
    b.clock = b.cluster_clock = gang_start_;
    b.lanes.resize(threads_);
    b.warps.resize((threads_ + 31) / 32);
  }
}

// Shared memory of an earlier gang may have been where this one's is.
void HappensBefore::forget_shared(const Gang& gang) {
  std::erase_if(published_, [&](const auto& entry) {
    const auto* at = static_cast<const std::byte*>(entry.first);
    return std::any_of(gang.blocks.begin(), gang.blocks.end(), [&](const Block& b) {
      const std::byte* begin = b.shared.get();
      return std::less_equal<>()(begin, at) && std::less<>()(at, begin + gang.config.shared_bytes);
    });
  });
}

size_t HappensBefore::index_in_gang(const Thread& t) const {
  return static_cast<size_t>(t.block - first_block_);
}

void HappensBefore::look(const Thread& t) {
  const BlockState& b = state(t);
  const Lane& lane = b.lanes[t.linear];
  const Warp& warp = b.warps[t.linear / 32];
  view_.block = static_cast<uint32_t>(b.number);
  view_.thread = static_cast<uint16_t>(t.linear);
  view_.clock = std::max({lane.clock, warp.clock, b.clock});
  view_.all = grid_clock_;
  view_.block_clock = b.clock;
  view_.warp_clock = warp.clock;
  view_.cluster_clock_ = b.cluster_clock;
  view_.first_in_cluster_ = view_.block / cluster_ * cluster_;
  view_.cluster_ = cluster_;
  view_.block_threads_ = threads_;
  view_.lanes_ = warp.lanes ? &(*warp.lanes)[t.linear % 32] : nullptr;
  view_.shared_ = &b.shared;
  view_.learned_ = lane.learned.get();
  view_.passed_ = later(lane.passed, b.passed).get();
  view_.knows_more = cluster_ > 1 || view_.lanes_ || !b.shared.empty() || view_.learned_;
  viewed_ = &t;
}

bool HappensBefore::View::knows_by_flags(uint32_t other_block, uint16_t other, Clock when) const {
  const uint64_t number = other_block * block_threads_ + other;
  return shared_->covers(other_block, number, when) ||
         (learned_ && learned_->covers(other_block, number, when));
}

void HappensBefore::learn(BlockState& b, unsigned lane, const Knowledge& what) {
  if (what.empty()) return;
  auto& learned = b.lanes[lane].learned;
  if (!learned) {
    learned = std::make_unique<Knowledge>();
    b.learners.push_back(lane);
  }
  learned->learn(what);
  viewed_ = nullptr;
}

// What t knows, without the phases of its cluster that it has waited for.
Knowledge HappensBefore::known_of_others(const Thread& t) {
  const BlockState& b = state(t);
  const Lane& lane = b.lanes[t.linear];
  Knowledge k = b.shared;
  if (lane.learned) k.learn(*lane.learned);
  k.learn_all(grid_clock_);
  const size_t first = index_in_gang(t) / cluster_ * cluster_;
  for (size_t i = first; i < first + cluster_; ++i) {
    k.learn_block(blocks_[i].number, b.cluster_clock);
  }
  k.learn_block(b.number, b.clock);
  const unsigned warp = t.linear / 32;
  for (unsigned l = 0; l < 32 && warp * 32 + l < threads_; ++l) {
    const auto& partial = b.warps[warp].lanes;
    const Clock known = std::max(b.warps[warp].clock, partial ? (*partial)[t.linear % 32][l] : 0);
    if (known > b.clock) k.learn_thread(b.number * threads_ + warp * 32 + l, known);
  }
  return k;
}

// Everything t knows, and what it has done itself.
Knowledge HappensBefore::snapshot(const Thread& t) {
  const BlockState& b = state(t);
  Knowledge k = known_of_others(t);
  if (const ClusterPhase* passed = later(b.lanes[t.linear].passed, b.passed).get()) {
    const uint64_t first = b.number / cluster_ * cluster_ * threads_;
    for (size_t i = 0; i < passed->below.size(); ++i) k.learn_thread(first + i, passed->below[i]);
  }
  k.learn_thread(b.number * threads_ + t.linear, view(t).clock + 1);
  return k;
}

const std::shared_ptr<const ClusterPhase>& HappensBefore::later(
    const std::shared_ptr<const ClusterPhase>& a, const std::shared_ptr<const ClusterPhase>& b) {
  return !a || (b && b->number > a->number) ? b : a;
}

// What t does from here on has a later clock than what the phase says of it.
void HappensBefore::arrived_at_cluster(const Thread& t) {
  const size_t index = index_in_gang(t);
  std::shared_ptr<ClusterPhase>& phase = phases_[index / cluster_];
  if (!phase) {
    phase = std::make_shared<ClusterPhase>();
    phase->number = next();
    phase->below.resize(cluster_ * threads_);
  }
  phase->learnt.learn(known_of_others(t));
  phase->below[index % cluster_ * threads_ + t.linear] = view(t).clock + 1;
  Lane& lane = blocks_[index].lanes[t.linear];
  lane.phase = phase;
  lane.clock = next();
}

void HappensBefore::waited_for_cluster(const Thread& t) {
  BlockState& b = state(t);
  Lane& lane = b.lanes[t.linear];
  learn(b, t.linear, lane.phase->learnt);
  lane.passed = std::move(lane.phase);
  b.newest = later(b.newest, lane.passed);
  viewed_ = nullptr;
}

// A thread that has exited counts as one that arrived when it did.
void HappensBefore::end_phase(const Block& block) {
  std::shared_ptr<ClusterPhase>& phase =
      phases_[static_cast<size_t>(&block - first_block_) / cluster_];
  const Clock now = next();
  for (Clock& below : phase->below) {
    if (below == 0) below = now;
  }
  phase.reset();
}

// Gives `count` blocks from `first` what all their threads know together.
void HappensBefore::merge_blocks(size_t first, size_t count, bool cluster) {
  const Clock now = next();
  Knowledge all;
  for (size_t i = first; i < first + count; ++i) {
    BlockState& b = blocks_[i];
    for (const unsigned lane : b.learners) {
      b.shared.learn(*b.lanes[lane].learned);
      b.lanes[lane].learned.reset();
    }
    b.learners.clear();
    b.passed = b.newest;
    b.clock = now;
    if (cluster) b.cluster_clock = now;
    if (count > 1) all.learn(b.shared);
  }
  if (count == 1) return;
  for (size_t i = first; i < first + count; ++i) blocks_[i].shared = all;
}

void HappensBefore::barrier_completed(const Thread& by, const Barrier& barrier) {
  const Block& block = *by.block;
  if (barrier.split) {
    end_phase(block);
  } else if (&barrier == &block.barrier) {
    merge_blocks(index_in_gang(by), 1, cluster_ == 1);
  } else if (&barrier == block.cluster_barrier) {
    merge_blocks(index_in_gang(by) / cluster_ * cluster_, cluster_, true);
  } else {
    merge_blocks(0, blocks_.size(), true);
    grid_clock_ = counter_;
  }
}

unsigned HappensBefore::existing_lanes(const BlockState& b, unsigned warp) {
  const size_t left = b.lanes.size() - size_t{warp} * 32;
  return left >= 32 ? ~0u : (1u << left) - 1;
}

void HappensBefore::warp_synchronised(const Thread& by, unsigned mask) {
  BlockState& b = state(by);
  const unsigned warp = by.linear / 32;
  const Clock now = next();
  if (mask == existing_lanes(b, warp)) {
    b.warps[warp].clock = now;
  } else {
    synchronise_some(b, warp, mask, now);
  }
  std::shared_ptr<const ClusterPhase> passed;
  for (unsigned l = 0; b.newest && l < 32; ++l) {
    if (mask >> l & 1) passed = later(passed, b.lanes[warp * 32 + l].passed);
  }
  for (unsigned l = 0; passed && l < 32; ++l) {
    if (mask >> l & 1) b.lanes[warp * 32 + l].passed = passed;
  }
  Knowledge together;
  for (const unsigned lane : b.learners) {
    if (lane / 32 == warp && mask >> lane % 32 & 1) together.learn(*b.lanes[lane].learned);
  }
  if (together.empty()) return;
  for (unsigned l = 0; l < 32; ++l) {
    if (mask >> l & 1) learn(b, warp * 32 + l, together);
  }
}

void HappensBefore::synchronise_some(BlockState& b, unsigned warp, unsigned mask, Clock now) {
  auto& known = b.warps[warp].lanes;
  if (!known) known = std::make_unique<std::array<std::array<Clock, 32>, 32>>();
  std::array<Clock, 32> together = {};
  for (unsigned l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    for (unsigned m = 0; m < 32; ++m) together[m] = std::max(together[m], (*known)[l][m]);
    b.lanes[warp * 32 + l].clock = now;
  }
  for (unsigned l = 0; l < 32; ++l) {
    if (mask >> l & 1) together[l] = now;
  }
  for (unsigned l = 0; l < 32; ++l) {
    if (mask >> l & 1) (*known)[l] = together;
  }
}

void HappensBefore::fence(const Thread& t) {
  BlockState& b = state(t);
  Lane& lane = b.lanes[t.linear];
  if (lane.pending) {
    learn(b, t.linear, *lane.pending);
    lane.pending.reset();
  }
  lane.at_fence = std::make_unique<Knowledge>(snapshot(t));
  lane.clock = next();
}

void HappensBefore::updated(const Thread& t, const void* p) {
  Lane& lane = state(t).lanes[t.linear];
  const auto found = published_.find(p);
  if (found != published_.end()) {
    if (!lane.pending) lane.pending = std::make_unique<Knowledge>();
    lane.pending->learn(found->second);
  }
  if (lane.at_fence) published_[p].learn(*lane.at_fence);
}

void HappensBefore::released(const Thread& t, const void* p) {
  published_[p].learn(snapshot(t));
  state(t).lanes[t.linear].clock = next();
}

void HappensBefore::acquired(const Thread& t, const void* p) {
  const auto found = published_.find(p);
  if (found != published_.end()) learn(state(t), t.linear, found->second);
}

}  // namespace rondo::simt
