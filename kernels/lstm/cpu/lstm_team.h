// How many threads a time loop takes and what each does; for the CPU variants (lstm_cpu.cc).
#pragma once

#include <array>
#include <optional>

#include "kernels/lstm/lstm_loop.h"

namespace rondo {

// What the choice depends on. Results do not depend on the choice.
struct LstmTeamProblem {
  int directions = 1;
  int64_t hidden = 0, output = 0;  // H, P
  int64_t rows = 0, frames = 0, sequences = 0;
  int64_t panels = 0;          // of the recurrent product with the fewest
  int64_t operand_bytes = 4;   // per element of the packed matrix
  int64_t rows_at_once = 1;    // a product of fewer rows takes as long as one of these
  double products_per_ns = 0;  // of one thread, when the matrix is in cache
  double l2_bytes = 1 << 20;   // of a core's second-level cache
};

// Nanoseconds that one step takes `team` by a simple model: the slowest thread's arithmetic, or the
// reading of its part of R from L2 or L3 when that takes longer, and the meeting of its group.
double lstm_step_cost(const LstmTeamProblem& problem, const LstmTeam& team);

// The team of at most `threads` threads with the lowest cost; of equals, that with the fewest
// threads.
LstmTeam lstm_best_team(const LstmTeamProblem& problem, int threads);

inline constexpr int lstm_max_groups = 64;

// A team with the barriers it needs, without allocation.
class LstmCrew {
 public:
  // `lengths` of problem.sequences sequences, in descending order.
  LstmCrew(const LstmTeamProblem& problem, const int32_t* lengths, int threads);
  LstmCrew(const LstmCrew&) = delete;
  LstmCrew& operator=(const LstmCrew&) = delete;

  const LstmTeam& team() const { return team_; }
  int threads() const { return threads_; }

 private:
  LstmTeam team_;
  int threads_ = 1;
  std::array<std::optional<SpinBarrier>, lstm_max_groups> barriers_;
  std::array<SpinBarrier*, lstm_max_groups> pointers_{};
  std::array<int64_t, lstm_max_groups + 1> first_sequences_{};
};

}  // namespace rondo
