#include "engine/train/state/stored_slots.h"

#include <algorithm>

namespace rondo {

void restore_state(RankModel& model, const Ranks& ranks, const StoredState* stored) {
  for (const Update::Slot& slot : model.optimizer().state()) {
    ranks.read_at_first([&] { stored->require(slot.name, model.entries(), model.flat_size()); });
    model.set(slot.name, [&](const Parameters::Entry& entry, std::span<float> into) {
      stored->read(slot.name, entry, into);
    });
  }
}

void restore_state(RankModel& model, const Ranks& ranks, const KeptRun& kept) {
  for (const Update::Slot& slot : model.optimizer().state()) {
    ranks.read_at_first([&] { static_cast<void>(kept.slot(slot.name)); });
    model.set(slot.name, [&](const Parameters::Entry& entry, std::span<float> into) {
      std::copy_n(kept.slot(slot.name).begin() + entry.offset, into.size(), into.begin());
    });
  }
}

ReadEntry weights_of(const KeptRun& kept) {
  return [&kept](const Parameters::Entry& entry, std::span<float> into) {
    std::copy_n(kept.weights.begin() + entry.offset, into.size(), into.begin());
  };
}

}  // namespace rondo
