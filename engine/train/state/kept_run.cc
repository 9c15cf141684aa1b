#include "engine/train/state/kept_run.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {
namespace {

std::vector<float> copy_of(const TensorView& array) {
  RONDO_CHECK(array.dtype == DType::f32, "an array of ", name_of(array.dtype), ", expected f32");
  const auto* const values = array.as<float>();
  return {values, values + array.numel()};
}

}  // namespace

void KeptRun::keep_arrays(const TensorView& weights_now,
                          const std::vector<Update::Slot>& slots_now) {
  weights = copy_of(weights_now);
  slots.clear();
  for (const Update::Slot& slot : slots_now) slots.emplace_back(slot.name, copy_of(slot.view));
}

void KeptRun::copy_slot(const Update::Slot& slot) const {
  const auto found =
      std::find_if(slots.begin(), slots.end(), [&](const auto& s) { return s.first == slot.name; });
  RONDO_CHECK(
      found != slots.end() && found->second.size() == static_cast<size_t>(slot.view.numel()),
      "nothing of this size was kept of '", slot.name, "'");
  std::copy(found->second.begin(), found->second.end(), slot.view.as<float>());
}

void KeptRun::drop_arrays() {
  weights = {};
  slots = {};
  holds_state = false;
}

}  // namespace rondo
