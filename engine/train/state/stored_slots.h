// Where a run that goes on finds its weights and its optimiser's state: in a checkpoint, or in the
// memory of rank 0. Borrow what they read from and for.
#pragma once

#include <string>

#include "engine/train/model/stored_state.h"
#include "engine/train/state/kept_run.h"
#include "engine/train/state/trained_model.h"

namespace rondo {

// The optimiser's state, and what a strategy keeps besides, of the run so far.
class StoredSlots final : public ReadSlot {
 public:
  // `stored`: rank 0's; null on the others, and where there is nothing to read.
  StoredSlots(const StoredState* stored, bool resumes, const TrainedModel& model)
      : stored_(stored), resumes_(resumes), model_(model) {}

  bool resumes() const override { return resumes_; }
  void operator()(const Update::Slot& slot) const override;
  void require(const std::string& slot) const override;
  void entry(const std::string& slot, const Parameters::Entry& entry,
             std::span<float> into) const override;

 private:
  const StoredState* const stored_;
  const bool resumes_;
  const TrainedModel& model_;
};

// The same of a run that this rank, the first, kept; of a session in host memory. Throws Error
// where parameters are read one by one.
class KeptSlots final : public ReadSlot {
 public:
  explicit KeptSlots(const KeptRun& kept) : kept_(kept) {}

  bool resumes() const override { return true; }
  void operator()(const Update::Slot& slot) const override { kept_.copy_slot(slot); }
  void require(const std::string& slot) const override;
  void entry(const std::string& slot, const Parameters::Entry& entry,
             std::span<float> into) const override;

 private:
  const KeptRun& kept_;
};

ReadEntry weights_of(const KeptRun& kept);

}  // namespace rondo
