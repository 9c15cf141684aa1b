#include "engine/train/trained_model.h"

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

std::string place_of(const Context& c) {
  return str("on ", c.device->describe(), " with ", c.pool->size(), " threads");
}

}  // namespace

int64_t TrainedModel::trainable() const {
  int64_t n = 0;
  for (const auto& e : entries()) n += e.numel();
  return n;
}

const std::vector<Parameters::Entry>& SessionModelInTraining::entries() const {
  return session_.parameters().entries();
}

std::string SessionModelInTraining::describe(int ranks) const {
  return place_of(context()) + (ranks > 1 ? str(", on each of ", ranks, " ranks") : "");
}

void SessionModelInTraining::set_steps(int64_t steps, int64_t optimizer_steps) {
  session_.optimizer().set_steps(optimizer_steps);
  session_.set_step(steps);
}

void SessionModelInTraining::set_weights(const Ranks& ranks, const std::vector<float>& flat) {
  if (ranks.first()) {
    for (const auto& e : entries()) session_.parameters().write(e.name, flat.data() + e.offset);
  }
  share_weights(ranks);
  if (averages()) session_.optimizer().reset_average(context());
}

void SessionModelInTraining::share_weights(const Ranks& ranks) {
  ranks.broadcast(session_.parameters().weights(), session_.parameters().device());
}

std::vector<TensorToWrite> SessionModelInTraining::gather_weights() {
  return weights_to_write(session_.parameters());
}

std::string PipelineModelInTraining::describe(int ranks) const {
  const int stages = stages_.size();
  return str(place_of(context()), ", ", ranks / stages,
             ranks == stages ? " pipeline" : " pipelines", " of ", stages,
             stages == 1 ? " rank" : " ranks");
}

void PipelineModelInTraining::set_steps(int64_t, int64_t optimizer_steps) {
  trainer_.set_optimizer_steps(optimizer_steps);
}

void PipelineModelInTraining::set_weights(const Ranks&, const std::vector<float>& flat) {
  trainer_.scatter("", flat);
  trainer_.reset_average();
}

std::vector<TensorToWrite> PipelineModelInTraining::gather_weights() {
  gathered_ = trainer_.gather("");
  std::vector<TensorToWrite> tensors;
  if (gathered_.empty()) return tensors;
  for (const auto& e : entries()) {
    tensors.push_back(tensor(e.name, {e.rows, e.cols}, gathered_.data() + e.offset));
  }
  return tensors;
}

bool PipelineModelInTraining::any(bool stop) const {
  double wanted = stop ? 1 : 0;
  stages_.sum({&wanted, 1});
  return wanted > 0;
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
