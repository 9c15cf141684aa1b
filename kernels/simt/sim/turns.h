// The turns of a gang's threads: who runs next, on which stack, and where they are when none can.
// For the simulator's own files.
//
// A thread that has to wait hands over to the next one of its warp itself; only at a warp's end,
// and when a thread exits, does the host thread come back to GangRunner. Half the switches between
// stacks are saved so, and they are a large part of what barriers and shuffles cost here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/simt/sim/fiber.h"
#include "kernels/simt/sim/gang.h"

namespace rondo::simt {

// SplitMix64 (Steele, Lea, Flood 2014): a number costs a few instructions, and every turn of every
// thread in shuffled order draws one.
struct Random {
  using result_type = uint64_t;
  uint64_t state;

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
};

// Not a power of two apart, or the tops of all stacks would compete for the same cache lines.
#if defined(RONDO_ASAN_FIBERS)
inline constexpr size_t stack_bytes = 256 * 1024 + 320;
#else
inline constexpr size_t stack_bytes = 64 * 1024 + 320;
#endif

// Runs a gang to its end; gang.failure then says what went wrong first.
class GangRunner {
 public:
  GangRunner(Gang& gang, SimOrder order, uint64_t seed, StackPool& stacks);

  void run();

  // From inside `self`, which has to wait: whose turn it is now, if somebody's of the same warp in
  // this round. Its fiber is ready to be switched to.
  Thread* next_of_warp();

 private:
  struct Warp {
    Thread* first;
    unsigned threads;
  };
  // What a thread's turn came to. `paused`: it asked for other threads' turns.
  enum class Turn : uint8_t { polled_in_vain, paused, moved };

  bool run_warp(const Warp& warp);
  Turn run_lanes(const Warp& warp);
  void shuffle_lanes();
  Thread* next_lane();
  void begin_turn(Thread& t);
  void end_turn(const Thread& t);
  void resume(Thread& t);
  void finish(Thread& t);
  void unwind();

  Gang& gang_;
  SimOrder order_;
  Random random_;
  StackPool& stacks_;
  FiberHost host_;
  std::vector<Warp> warps_;             // in the order of their turns
  std::array<uint8_t, 32> lanes_ = {};  // of each
  size_t live_ = 0;                     // threads that have not exited
  bool leave_some_behind_ = false;

  // The state of the present warp: the lanes that are passed over, the place in lanes_ of who is
  // next, and the most that a turn came to.
  Warp warp_ = {};
  uint64_t behind_ = 0;
  size_t next_ = 0;
  Turn most_ = Turn::polled_in_vain;
  // The state of the present thread as its turn began.
  bool was_polling_ = false;
  uint32_t polls_ = 0, naps_ = 0;
};

// Waits for this thread's next turn. Throws what unwinds its stack when another thread has failed.
void suspend();

// A thread exits, and is not expected any more.
void leave(Barrier& barrier);

std::string name_thread(const Thread& t);
std::string place(Where where);

}  // namespace rondo::simt
