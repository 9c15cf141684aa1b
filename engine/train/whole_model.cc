#include "engine/train/whole_model.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.h"

namespace rondo {
namespace {

TensorToWrite tensor(const std::string& name, std::vector<int64_t> shape, const float* values) {
  TensorToWrite t;
  t.name = name;
  t.dtype = DType::f32;
  t.shape = std::move(shape);
  t.fill = [values](uint64_t offset, std::span<std::byte> into) {
    std::memcpy(into.data(), reinterpret_cast<const std::byte*>(values) + offset, into.size());
  };
  return t;
}

}  // namespace

WholeModel::WholeModel(PipelineTrainer& trainer, Parts parts) : entries_(trainer.entries()) {
  arrays_[""] = trainer.gather("");
  if (parts == Parts::weights) return;
  for (const auto& s : trainer.optimizer().state()) arrays_[s.name] = trainer.gather(s.name);
}

std::vector<TensorToWrite> WholeModel::weights() const {
  std::vector<TensorToWrite> tensors;
  for (const auto& e : entries_) {
    tensors.push_back(tensor(e.name, {e.rows, e.cols}, arrays_.at("").data() + e.offset));
  }
  return tensors;
}

std::vector<TensorToWrite> WholeModel::slots() const {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, values] : arrays_) {
    if (name.empty()) continue;
    tensors.push_back(tensor(name, {static_cast<int64_t>(values.size())}, values.data()));
  }
  return tensors;
}

std::vector<float> flat_weights(const SafetensorsFile& file,
                                const std::vector<Parameters::Entry>& entries, int64_t flat_size) {
  std::vector<float> flat(static_cast<size_t>(flat_size), 0.0f);
  for (const auto& e : entries) {
    const int64_t shape[] = {e.rows, e.cols};
    const auto values = file.at(e.name, DType::f32, shape).as<float>();
    std::copy(values.begin(), values.end(), flat.begin() + e.offset);
  }
  for (const auto& t : file.tensors()) {
    const bool known = std::any_of(entries.begin(), entries.end(),
                                   [&](const auto& e) { return e.name == t.name; });
    if (!known) {
      fail_input(file.name(), ": tensor '", t.name, "' belongs to no parameter of this model");
    }
  }
  return flat;
}

}  // namespace rondo
