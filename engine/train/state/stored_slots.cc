#include "engine/train/state/stored_slots.h"

namespace rondo {
namespace {

[[noreturn]] void refuse_parts() {
  throw Error("what was kept of a run is for ranks that hold the whole model");
}

}  // namespace

void StoredSlots::operator()(const Update::Slot& slot) const {
  if (!stored_) return;
  require(slot.name);
  const Context& c = model_.context();
  std::vector<float> values;
  for (const auto& e : model_.entries()) {
    values.resize(static_cast<size_t>(e.numel()));
    entry(slot.name, e, values);
    c.device->copy(*c.stream, slot.view.as<float>() + e.offset, values.data(),
                   values.size() * sizeof(float));
    c.stream->synchronize();
  }
}

void StoredSlots::require(const std::string& slot) const {
  stored_->require(slot, model_.entries(), model_.flat_size());
}

void StoredSlots::entry(const std::string& slot, const Parameters::Entry& entry,
                        std::span<float> into) const {
  stored_->read(slot, entry, into);
}

void KeptSlots::require(const std::string&) const { refuse_parts(); }

void KeptSlots::entry(const std::string&, const Parameters::Entry&, std::span<float>) const {
  refuse_parts();
}

ReadEntry weights_of(const KeptRun& kept) {
  return [&kept](const Parameters::Entry& entry, std::span<float> into) {
    std::copy_n(kept.weights.begin() + entry.offset, into.size(), into.begin());
  };
}

}  // namespace rondo
