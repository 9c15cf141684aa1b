#include "kernels/simt/sim/turns.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"
#include "kernels/simt/sim/observer.h"

namespace rondo::simt {
namespace {

// Thrown at the place where a thread waits when another one has failed.
struct Cancelled {};

void thread_main(void* argument) {
  Thread& t = *static_cast<Thread*>(argument);
  Gang& gang = *t.block->gang;
  const auto record = [&](const std::string& what) {
    if (gang.failure.empty()) gang.failure = what;
  };
  try {
    gang.entry(gang.arguments);
    if (!t.open.empty()) t.committed.push_back(std::move(t.open));
    for (const auto& group : t.committed) {
      if (!group.empty()) {
        fail("exits with a cp.async copy it never waited for", group.front().where);
      }
    }
    if (t.between) fail("exits between cluster_arrive and cluster_wait", t.where);
    if (t.block->live == 1) check_exit(*t.block);
    --t.block->live;
    leave(t.block->barrier);
    leave(*t.block->cluster_barrier);
    leave(gang.grid_barrier);
  } catch (const Cancelled&) {  // the failure of another thread is already recorded
  } catch (const Error& e) {
    record(e.what());
  } catch (const std::exception& e) {
    record(str("kernel ", gang.config.kernel, ", ", name_thread(t), ": ", e.what()));
  }
}

std::string list_lanes(unsigned mask) {
  std::string out;
  for (unsigned i = 0; i < 32; ++i) {
    if (mask >> i & 1) out += str(out.empty() ? "" : " ", i);
  }
  return out;
}

// Why nothing moves any more, told by the first thread that waits.
std::string explain_deadlock(const Gang& gang) {
  size_t waiting = 0;
  const Thread* first = nullptr;
  for (const Block& b : gang.blocks) {
    for (const Thread& t : b.threads) {
      if (t.fiber.finished()) continue;
      ++waiting;
      if (!first || (t.exchange && !first->exchange)) first = &t;
    }
  }
  std::string why;
  if (first->exchange) {
    const Exchange& e = *first->exchange;
    const unsigned missing = e.mask & ~e.present;
    why = str("waits in ", e.operation, " for lanes missing from its mask: ", list_lanes(missing));
    const unsigned warp = first->linear / 32 * 32;
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(missing));
    const auto& threads = first->block->threads;
    if (warp + lane >= threads.size()) {
      why += str(" (lane ", lane, " does not exist)");
    } else if (threads[warp + lane].fiber.finished()) {
      why += str(" (lane ", lane, " has exited)");
    } else {
      why += str(" (lane ", lane, " waits at ", place(threads[warp + lane].where), ")");
    }
  } else if (first->barrier) {
    why = str("waits in ", first->barrier->name, " with ", first->barrier->arrived, " of ",
              first->barrier->expected, " threads");
  } else {
    why = "polls for something that no thread will do";
  }
  return str("kernel ", gang.config.kernel, ", ", name_thread(*first), ": deadlock of ", waiting,
             " threads: ", why, ", at ", place(first->where));
}

}  // namespace

GangRunner::GangRunner(Gang& gang, SimOrder order, uint64_t seed, StackPool& stacks)
    : gang_(gang), order_(order), random_{seed}, stacks_(stacks) {
  for (Block& b : gang.blocks) {
    const size_t threads = b.threads.size();
    for (size_t i = 0; i < threads; i += 32) {
      warps_.push_back({&b.threads[i], static_cast<unsigned>(std::min<size_t>(32, threads - i))});
    }
    live_ += threads;
  }
  std::iota(lanes_.begin(), lanes_.end(), uint8_t{0});
  if (order == SimOrder::reverse) {
    std::reverse(warps_.begin(), warps_.end());
    std::reverse(lanes_.begin(), lanes_.end());
  }
  gang.runner = this;
}

void GangRunner::run() {
  int idle_rounds = 0;
  while (live_ > 0 && gang_.failure.empty()) {
    leave_some_behind_ = order_ == SimOrder::shuffled && idle_rounds == 0;
    if (order_ == SimOrder::shuffled) std::shuffle(warps_.begin(), warps_.end(), random_);
    bool progress = false;
    for (size_t i = 0; i < warps_.size() && gang_.failure.empty(); ++i) {
      progress |= run_warp(warps_[i]);
    }
    idle_rounds = progress ? 0 : idle_rounds + 1;
    if (idle_rounds == 3) gang_.failure = explain_deadlock(gang_);
  }
  unwind();
}

// The turns of a warp in this round. As many as there are to take: a warp far ahead of the others
// shows what lacks a barrier, and its 32 stacks stay in the cache. In shuffled order often fewer.
bool GangRunner::run_warp(const Warp& warp) {
  const unsigned most = order_ == SimOrder::shuffled ? 1u << random_() % 6 : ~0u;
  bool progress = false;
  for (unsigned turns = 0; turns < most; ++turns) {
    const Turn turn = run_lanes(warp);
    progress |= turn != Turn::polled_in_vain;
    if (turn != Turn::moved || !gang_.failure.empty()) break;
  }
  return progress;
}

// Null when no lane is left in this pass, or the gang has failed.
[[gnu::always_inline]] inline Thread* GangRunner::next_lane() {
  if (!gang_.failure.empty()) return nullptr;
  while (next_ < lanes_.size()) {
    const unsigned lane = lanes_[next_++];
    if (lane >= warp_.threads || (behind_ >> lane & 1)) continue;
    Thread& t = warp_.first[lane];
    if (!t.fiber.finished() && !t.waiting()) return &t;
  }
  return nullptr;
}

[[gnu::always_inline]] inline void GangRunner::begin_turn(Thread& t) {
  if (!t.fiber.started()) t.fiber.prepare(host_, stacks_.take(), stack_bytes, thread_main, &t);
  was_polling_ = t.polling;
  polls_ = t.polls;
  naps_ = t.naps;
  self = &t;
}

[[gnu::always_inline]] inline void GangRunner::end_turn(const Thread& t) {
  const bool in_vain = was_polling_ && t.polling && t.polls == polls_;
  most_ = std::max(most_, in_vain           ? Turn::polled_in_vain
                          : t.naps == naps_ ? Turn::moved
                                            : Turn::paused);
}

Thread* GangRunner::next_of_warp() {
  end_turn(*self);
  Thread* t = next_lane();
  if (t) begin_turn(*t);
  return t;
}

// Fisher and Yates, with two swaps for each number drawn: std::shuffle is slower, and every pass
// over a warp shuffles.
void GangRunner::shuffle_lanes() {
  const auto swap_in = [&](unsigned left, uint64_t bits) {
    std::swap(lanes_[left - 1], lanes_[(bits & 0xffffffffu) * left >> 32]);
  };
  for (auto left = static_cast<unsigned>(lanes_.size()); left > 1; left -= 2) {
    const uint64_t bits = random_();
    swap_in(left, bits);
    swap_in(left - 1, bits >> 32);
  }
}

// A turn for each lane that need not wait; the most that one of them came to.
GangRunner::Turn GangRunner::run_lanes(const Warp& warp) {
  behind_ = 0;  // or a quarter of the lanes
  if (order_ == SimOrder::shuffled) shuffle_lanes();
  if (leave_some_behind_) behind_ = random_() & random_();
  warp_ = warp;
  next_ = 0;
  most_ = Turn::polled_in_vain;
  while (Thread* t = next_lane()) {
    begin_turn(*t);
    resume(*t);
  }
  return most_;
}

// Runs this thread, and whom it hands over to, until one exits or none of the warp is left.
void GangRunner::resume(Thread& t) {
  t.fiber.resume();
  if (self->fiber.finished()) finish(*self);
  self = nullptr;
}

void GangRunner::finish(Thread& t) {
  end_turn(t);
  --live_;
  if (t.fiber.overflowed() && gang_.failure.empty()) {
    gang_.failure = str("kernel ", gang_.config.kernel, ", ", name_thread(t), ": needs more than ",
                        stack_bytes, " bytes of stack on the host");
  }
  stacks_.give_back(t.fiber.stack());
}

void GangRunner::unwind() {
  gang_.cancelled = true;
  for (const Warp& warp : warps_) {
    for (unsigned lane = 0; lane < warp.threads; ++lane) {
      Thread& t = warp.first[lane];
      while (t.fiber.started() && !t.fiber.finished()) {
        self = &t;
        resume(t);
      }
    }
  }
}

void suspend() {
  Thread& me = *self;
  const Gang& gang = *me.block->gang;
  if (gang.cancelled) throw Cancelled();
  if (Thread* next = gang.runner->next_of_warp()) {
    me.fiber.switch_to(next->fiber);
  } else {
    me.fiber.suspend();
  }
  if (gang.cancelled) throw Cancelled();
}

std::string name_thread(const Thread& t) {
  return str("block (", t.block->index.x, ",", t.block->index.y, ",", t.block->index.z,
             "), thread (", t.index.x, ",", t.index.y, ",", t.index.z, ")");
}

std::string place(Where where) { return str(where.file_name(), ":", where.line()); }

}  // namespace rondo::simt
