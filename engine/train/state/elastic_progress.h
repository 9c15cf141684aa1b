// Where a run whose ranks may be lost stands between two updates: what is left to do before the
// next one, so that whoever goes on does it, once.
//
// An update changes weights and position together, or not at all when ranks are lost in it. A
// validation and a checkpoint are done when all ranks know that they are; until then they are next.
#pragma once

#include <optional>

#include "engine/reduce/ranks.h"
#include "engine/train/state/kept_run.h"

namespace rondo {

// With nullptr for a KeptRun nothing of it happens. One thread at a time.
class ElasticProgress {
 public:
  explicit ElasticProgress(KeptRun* kept) : kept_(kept) {}

  // Called by all ranks when the run has been restored: what rank 0 kept, if it kept anything.
  // `pending`: a validation that an earlier run was asked to leave to this one.
  void agree(const Ranks& ranks, const TrainingState& state, bool pending);
  bool from_memory() const { return from_memory_; }
  NextAct next() const { return next_; }
  // With which a checkpoint is to be saved that is next.
  std::optional<Score> score() const { return score_; }

  void validation_is_next(const TrainingState& before);
  void checkpoint_is_next(std::optional<Score> score);
  void update_is_next() { next_ = NextAct::update; }

  bool keeps() const { return kept_ != nullptr; }
  // Fills the KeptRun; only the first call counts, after which the model may be used for something
  // else. The arrays are in host memory.
  void keep(const TrainingState& state, const ModelDescription& description,
            const TensorView& weights, const std::vector<Update::Slot>& slots, int ranks);
  bool has_kept() const { return has_kept_; }

 private:
  KeptRun* const kept_;
  NextAct next_ = NextAct::update;
  TrainingState before_validation_;  // where that is next: it is made from there again
  std::optional<Score> score_;
  bool from_memory_ = false, has_kept_ = false;
};

}  // namespace rondo
