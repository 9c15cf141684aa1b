#include "kernels/lstm/cpu/lstm_team.h"
#include "kernels/base/arithmetic.h"

#include <algorithm>
#include <cmath>

namespace rondo {
namespace {

// One core of a current x86 server, measured or rounded from what was (docs/kernels/lstm.md).
constexpr double l2_share = 0.75;  // of L2 for R, beside states and gates
constexpr double l2_bytes_per_ns = 140;
// L3 of a Zen 5; and of Intel's servers, whose L2 is twice as large and whose L3 is far away.
constexpr double l3_bytes_per_ns = 90, far_l3_bytes_per_ns = 25, far_l2_bytes = 2 << 20;
// A barrier and what its threads wait for each other, when each has a core to itself. When they
// share cores with others it is far more, so it is not set too low.
constexpr double meeting_ns = 1200;
// A step's reading counts a little even where the arithmetic hides it.
constexpr double hidden_reading = 0.05;
// A cache line of the state that another thread has made. It counts where threads could take a
// direction each instead, and have no such lines; between ways that all have them the meeting
// stands for it.
constexpr double handed_line_ns = 100, line_bytes = 64;

int groups_of(const LstmTeamProblem& p, const LstmTeam& team) {
  return team.splits * (team.directions_apart ? p.directions : 1);
}

}  // namespace

double lstm_step_cost(const LstmTeamProblem& p, const LstmTeam& team) {
  const int walks = team.directions_apart ? 1 : p.directions;
  const double part = static_cast<double>(ceil_div(p.panels, team.threads)) /
                      static_cast<double>(std::max<int64_t>(p.panels, 1));
  const double elements = static_cast<double>(4 * p.hidden * p.output) * part;
  const double bytes = elements * static_cast<double>(p.operand_bytes);
  const double active =
      static_cast<double>(p.rows) / static_cast<double>(std::max<int64_t>(p.frames, 1));
  const auto at_least = static_cast<double>(p.rows_at_once);
  const double rows_there = std::max(active / team.splits, 1.0);
  const double rows = std::ceil(rows_there / at_least) * at_least;
  const double arithmetic = elements * rows / p.products_per_ns;
  // Every second step goes backwards, so that what fits L2 is found there also where R does not
  // fit.
  const double stays = std::min(l2_share * p.l2_bytes / std::max(bytes, 1.0), 1.0);
  const double l3 = p.l2_bytes < far_l2_bytes ? l3_bytes_per_ns : far_l3_bytes_per_ns;
  const double reading = bytes * (stays / l2_bytes_per_ns + (1 - stays) / l3);
  const double step = std::max(arithmetic, reading) + hidden_reading * reading;
  if (team.threads == 1) return walks * step;
  const double state_bytes = rows_there * static_cast<double>(p.output * p.operand_bytes);
  const double handed = state_bytes * (team.threads - 1) / team.threads / line_bytes;
  return walks * (step + meeting_ns + (walks > 1 ? handed * handed_line_ns : 0));
}

LstmTeam lstm_best_team(const LstmTeamProblem& p, int threads) {
  LstmTeam best;
  double best_cost = lstm_step_cost(p, best);
  for (const bool apart : {true, false}) {
    const int directions = apart ? p.directions : 1;
    if (apart && p.directions == 1) continue;
    const int most_splits = static_cast<int>(std::min<int64_t>(
        {threads / directions, std::max<int64_t>(p.sequences, 1), lstm_max_groups / directions}));
    for (int splits = 1; splits <= most_splits; ++splits) {
      const int most_threads = threads / (directions * splits);
      for (int count = 1; count <= most_threads; ++count) {
        const LstmTeam team{apart, splits, count, nullptr};
        const double cost = lstm_step_cost(p, team);
        if (cost < best_cost) best = team, best_cost = cost;
      }
    }
  }
  return best;
}

LstmCrew::LstmCrew(const LstmTeamProblem& problem, const int32_t* lengths, int threads)
    : team_(lstm_best_team(problem, threads)) {
  const int groups = groups_of(problem, team_);
  for (int g = 0; g < groups && team_.threads > 1; ++g) {
    barriers_[static_cast<size_t>(g)].emplace(team_.threads);
    pointers_[static_cast<size_t>(g)] = &*barriers_[static_cast<size_t>(g)];
  }
  team_.barriers = pointers_.data();
  threads_ = groups * team_.threads;
  // Ranges of about equally many frames: a range ends where it holds its share, or a sequence more
  // or less.
  int64_t frames = 0, split = 1;
  for (int64_t n = 0; n < problem.sequences; ++n) {
    for (;
         split < team_.splits && 2 * frames + lengths[n] > 2 * problem.rows * split / team_.splits;
         ++split) {
      first_sequences_[static_cast<size_t>(split)] = n;
    }
    frames += lengths[n];
  }
  for (; split <= team_.splits; ++split) {
    first_sequences_[static_cast<size_t>(split)] = problem.sequences;
  }
  team_.first_sequences = first_sequences_.data();
}

}  // namespace rondo
