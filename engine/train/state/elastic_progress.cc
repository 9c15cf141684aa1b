#include "engine/train/state/elastic_progress.h"

#include <iterator>

namespace rondo {

void ElasticProgress::agree(const Ranks& ranks, const TrainingState& state, bool pending) {
  if (!kept_) return;
  double told[] = {static_cast<double>(kept_->holds_state), static_cast<double>(kept_->next),
                   static_cast<double>(kept_->score.has_value()), kept_->score.value_or(0).metric,
                   kept_->score.value_or(0).loss};
  ranks.broadcast(TensorView(told, DType::f64, {std::size(told)}));
  from_memory_ = told[0] != 0;
  if (from_memory_) {
    next_ = static_cast<NextAct>(static_cast<int>(told[1]));
    if (told[2] != 0) score_ = Score(told[3], told[4]);
  } else if (pending) {
    next_ = NextAct::validation;
  }
  before_validation_ = state;
}

void ElasticProgress::validation_is_next(const TrainingState& before) {
  if (!kept_) return;
  next_ = NextAct::validation;
  before_validation_ = before;
}

void ElasticProgress::checkpoint_is_next(std::optional<Score> score) {
  next_ = NextAct::checkpoint;
  score_ = score;
}

void ElasticProgress::keep(const TrainingState& state, const ModelDescription& description,
                           const TensorView& weights, const std::vector<Update::Slot>& slots,
                           int ranks) {
  if (has_kept_) return;
  has_kept_ = true;
  KeptRun& k = *kept_;
  k.keep_arrays(weights, slots);
  k.state = next_ == NextAct::validation ? before_validation_ : state;
  k.next = next_;
  k.score = next_ == NextAct::checkpoint ? score_ : std::nullopt;
  k.description = description;
  k.ranks = ranks;
  k.since = std::chrono::steady_clock::now();
  k.holds_state = true;
}

}  // namespace rondo
