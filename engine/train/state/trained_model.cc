#include "engine/train/state/trained_model.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {
namespace {

std::string place_of(const Context& c) {
  const int threads = c.pool->size();
  return str("on ", c.device->describe(), " with ", threads, threads == 1 ? " thread" : " threads");
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

void SessionModelInTraining::set_weights(const Ranks& ranks, const ReadEntry& read) {
  std::vector<float> values;
  for (const auto& e : entries()) {
    if (!ranks.first()) break;
    values.resize(static_cast<size_t>(e.numel()));
    read(e, values);
    session_.parameters().write(e.name, values.data());
  }
  share_weights(ranks);
  if (averages()) session_.optimizer().reset_average(context());
}

void SessionModelInTraining::share_weights(const Ranks& ranks) {
  ranks.broadcast(session_.parameters().weights(), session_.parameters().device());
}

void SessionModelInTraining::write_weights(const Ranks& ranks,
                                           const PipelineTrainer::WriteTensors& write) {
  ranks.at_first([&] { write(weights_to_write(session_.parameters())); });
}

std::string PipelineModelInTraining::describe(int ranks) const {
  const int stages = stages_.size();
  const int shards = trainer_.shards() ? trainer_.shards()->ranks() : 1;
  const int pipelines = ranks / stages / shards, each = stages * shards;
  return str(place_of(context()), ", ", pipelines, pipelines == 1 ? " pipeline" : " pipelines",
             " of ", each, each == 1 ? " rank" : " ranks",
             shards == 1 ? ""
                         : str(": ", stages, stages == 1 ? " stage" : " stages", " of ", shards,
                               " shards"));
}

void PipelineModelInTraining::set_steps(int64_t, int64_t optimizer_steps) {
  trainer_.set_optimizer_steps(optimizer_steps);
}

void PipelineModelInTraining::set_weights(const Ranks&, const ReadEntry& read) {
  trainer_.set("", read);
  trainer_.reset_average();
}

void PipelineModelInTraining::write_weights(const Ranks& ranks,
                                            const PipelineTrainer::WriteTensors& write) {
  ranks.together([&] { trainer_.stream_weights(write); });
}

std::optional<StagePart> PipelineModelInTraining::part() const {
  if (stages_.size() == 1) return std::nullopt;
  return trainer_.part();
}

bool PipelineModelInTraining::any(bool stop) const {
  double wanted = stop ? 1 : 0;
  stages_.sum({&wanted, 1});
  return wanted > 0;
}

void require_weights(const SafetensorsFile& file, const std::vector<Parameters::Entry>& entries) {
  for (const auto& e : entries) {
    file.at(e.name, DType::f32, e.shape());
  }
  for (const auto& t : file.tensors()) {
    const bool known = std::any_of(entries.begin(), entries.end(),
                                   [&](const auto& e) { return e.name == t.name; });
    if (!known) {
      fail_input(file.name(), ": tensor '", t.name, "' belongs to no parameter of this model");
    }
  }
}

ReadEntry weights_of(const SafetensorsFile& file) {
  return [&file](const Parameters::Entry& e, std::span<float> into) {
    std::ranges::copy(file.at(e.name).as<float>(), into.begin());
  };
}

}  // namespace rondo
