#include "engine/train/model/stored_state.h"

#include <algorithm>

#include "engine/part_layout.h"
#include "kernels/base/error.h"

namespace rondo {

StoredState::StoredState(const Checkpoint& checkpoint) : weights_(open_weights(checkpoint)) {
  if (!checkpoint.has(stage_index_file)) {
    holders_.emplace_back().files.push_back(checkpoint.tensors("optimizer.safetensors"));
    return;
  }
  const std::string where = (checkpoint.directory() / stage_index_file).string();
  StageIndex index = StageIndex::from_json(checkpoint.text(stage_index_file), where);
  for (StageIndex::Stage& stage : index.optimizer) {
    Holder& h = holders_.emplace_back();
    for (const std::string& file : stage.files) h.files.push_back(checkpoint.tensors(file));
    h.stage = std::move(stage);
  }
}

void StoredState::require(const std::string& slot, const std::vector<Parameters::Entry>& entries,
                          int64_t flat_size) const {
  for (const Holder& h : holders_) {
    const int64_t flat = h.stage ? h.stage->elements : flat_size;
    const auto parts = static_cast<int>(h.files.size());
    const int64_t shape[] = {parts > 1 ? PartLayout(flat, parts).part() : flat};
    for (const SafetensorsFile& file : h.files) file.at(slot, DType::f32, shape);
  }
  for (const Parameters::Entry& e : entries) {
    const Holder& h = holder(e);
    if (!h.stage) continue;
    const int64_t offset = h.stage->offsets.at(e.name);
    if (e.numel() > h.stage->elements - offset) {
      fail_input("'", h.files.front().name(), "': '", slot, "' of '", e.name, "' ends beyond its ",
                 h.stage->elements, " elements");
    }
  }
}

void StoredState::read(const std::string& slot, const Parameters::Entry& entry,
                       std::span<float> into) const {
  RONDO_CHECK(into.size() == static_cast<size_t>(entry.numel()), into.size(), " values of ",
              entry.name);
  const Holder& h = holder(entry);
  const int64_t begin = h.stage ? h.stage->offsets.at(entry.name) : entry.offset;
  const auto parts = static_cast<int>(h.files.size());
  if (parts == 1) {
    const auto whole = h.files.front().at(slot).as<float>();
    std::ranges::copy(whole.subspan(static_cast<size_t>(begin), into.size()), into.begin());
    return;
  }
  const PartLayout layout(h.stage->elements, parts);
  const int64_t end = begin + entry.numel();
  for (int part = 0; part < parts; ++part) {
    const auto values = h.files[static_cast<size_t>(part)].at(slot).as<float>();
    layout.for_blocks(part, [&](int64_t at, int64_t place, int64_t n) {
      const int64_t from = std::max(at, begin), to = std::min(at + n, end);
      if (from >= to) return;
      std::copy_n(values.begin() + (place + from - at), to - from, into.begin() + (from - begin));
    });
  }
}

const StoredState::Holder& StoredState::holder(const Parameters::Entry& entry) const {
  for (const Holder& h : holders_) {
    if (!h.stage || h.stage->offsets.contains(entry.name)) return h;
  }
  fail_input("'", weights_.name(), "' has no state of the optimizer for '", entry.name, "'");
}

}  // namespace rondo
