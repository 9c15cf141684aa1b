#include "tools/ranks/corpus_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "engine/config/config.h"
#include "engine/reduce/long_work.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "tools/ranks/device_ranks.h"

namespace rondo {

CommClock::duration CorpusRanks::patience() {
  const std::chrono::duration<double> seconds(ParallelConfig{}.timeout_seconds);
  return std::chrono::duration_cast<CommClock::duration>(seconds);
}

CorpusRanks::CorpusRanks(std::string command)
    : command_(std::move(command)),
      place_(find_place([](const char* name) { return std::getenv(name); })) {
  if (place_ && place_->world_size == 1) place_.reset();
  if (!place_) return;
  world_ = join_ranks(*place_, RankTransport::automatic, patience());
  GroupOptions g;
  g.timeout = patience();
  group_ = make_ring_group(world_->transport(), g);
  ranks_ = Ranks(*group_, patience());
  if (!ranks_.first()) leave_warnings_to_others();
}

DeviceId CorpusRanks::device(const DeviceChoice& choice) const {
  const DeviceId device = resolve(choice);
  if (!place_) return device;
  return device_of_rank(choice, device, place_->local_rank, place_->local_size);
}

int CorpusRanks::threads(int asked) const {
  if (asked > 0 || !place_) return asked;
  return std::max(1, usable_cpus() / place_->local_size);
}

void CorpusRanks::require_same(const std::function<std::string()>& given) const {
  if (ranks_.size() == 1) return;
  std::string own;
  ranks_.together([&] { own = given(); });
  const std::string first = ranks_.broadcast(own);
  ranks_.together([&] {
    if (own != first) {
      fail_input("'", command_,
                 "' was given another model, other inputs or another search than on ",
                 "rank 0; expected the same on all ranks, which divide the inputs");
    }
  });
}

void CorpusRanks::together(const std::function<void()>& action) const {
  together_at_length(ranks_, patience(), action);
}

void CorpusRanks::run(const std::function<void()>& action) const {
  if (!place_) return action();
  try {
    action();
  } catch (...) {
    rethrow_as_rank(*place_, world_->transport());
  }
}

}  // namespace rondo
