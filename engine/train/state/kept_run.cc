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

const std::vector<float>& KeptRun::slot(const std::string& name) const {
  const auto found = std::ranges::find(slots, name, [](const auto& s) { return s.first; });
  RONDO_CHECK(found != slots.end() && found->second.size() == weights.size(),
              "nothing of this size was kept of '", name, "'");
  return found->second;
}

void KeptRun::drop_arrays() {
  weights = {};
  slots = {};
  holds_state = false;
}

}  // namespace rondo
