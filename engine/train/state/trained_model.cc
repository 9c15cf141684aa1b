#include "engine/train/state/trained_model.h"

#include <algorithm>
#include <cmath>

#include "engine/data/features/random.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

std::string place_of(const Context& c) {
  const int threads = c.pool->size();
  return str("on ", c.device->describe(), " with ", threads, threads == 1 ? " thread" : " threads");
}

}  // namespace

int64_t TrainedModel::frozen() const {
  int64_t n = 0;
  for (const auto& e : entries()) n += e.frozen ? e.numel() : 0;
  return n;
}

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
}

void SessionModelInTraining::share_weights(const Ranks& ranks) {
  ranks.broadcast(session_.parameters().weights(), session_.parameters().device());
  session_.optimizer().take_weights();
}

void SessionModelInTraining::write_weights(const Ranks& ranks,
                                           const PipelineTrainer::WriteTensors& write) {
  ranks.at_first([&] { write(weights_to_write(session_.parameters())); });
}

std::vector<Update::Slot> SessionModelInTraining::gather_state(const Ranks& ranks) {
  return optimizer().gather(ranks.first());
}

void SessionModelInTraining::restore(const Ranks& ranks, const ReadSlot& read) {
  if (!read.resumes()) return;
  Update& update = optimizer();
  for (const auto& slot : update.state()) {
    std::vector<float> whole = update.gather(slot.name, true);
    const TensorView view(whole.data(), DType::f32, {static_cast<int64_t>(whole.size())});
    ranks.at_first([&] { read({slot.name, view}); });
    ranks.broadcast(view);
    update.set(slot.name, whole);
  }
}

std::string PipelineModelInTraining::describe(int ranks) const {
  const int stages = stages_.size();
  const int shards = trainer_.shards() ? trainer_.shards()->ranks() : 1;
  if (stages == 1 && shards > 1) {
    return str(place_of(context()), ", on each of ", ranks, " ranks, of which ", shards,
               " share each sequence");
  }
  const int pipelines = ranks / stages / shards, each = stages * shards;
  return str(place_of(context()), ", ", pipelines, pipelines == 1 ? " pipeline" : " pipelines",
             " of ", each, each == 1 ? " rank" : " ranks",
             shards == 1 ? ""
                         : str(": ", stages, stages == 1 ? " stage" : " stages", " of ", shards,
                               " shards"));
}

void PipelineModelInTraining::set_steps(int64_t, int64_t optimizer_steps) {
  optimizer().set_steps(optimizer_steps);
}

void PipelineModelInTraining::set_weights(const Ranks&, const ReadEntry& read) {
  trainer_.set("", read);
}

void PipelineModelInTraining::write_weights(const Ranks& ranks,
                                            const PipelineTrainer::WriteTensors& write) {
  ranks.together([&] { trainer_.stream_weights(write); });
}

std::vector<Update::Slot> PipelineModelInTraining::gather_state(const Ranks& ranks) {
  std::vector<Update::Slot> slots;
  whole_.clear();
  for (const auto& own : optimizer().state()) {
    std::vector<float>& whole = whole_.emplace_back(trainer_.gather(own.name));
    if (!ranks.first()) continue;
    slots.push_back({own.name, TensorView(whole.data(), DType::f32, {flat_size()})});
  }
  return slots;
}

void PipelineModelInTraining::restore(const Ranks& ranks, const ReadSlot& read) {
  if (!read.resumes()) return;
  for (const auto& own : optimizer().state()) {
    ranks.at_first([&] { read.require(own.name); });
    trainer_.set(own.name, [&](const Parameters::Entry& entry, std::span<float> into) {
      read.entry(own.name, entry, into);
    });
  }
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

OutputRows same_symbols(const std::vector<std::string>& others,
                        const std::vector<std::string>& symbols, int64_t blanks) {
  OutputRows rows{{}, static_cast<int64_t>(others.size()) + blanks, blanks};
  for (int64_t i = 0; i < blanks; ++i) rows.from.push_back(i);
  for (const std::string& symbol : symbols) {
    const auto at = std::find(others.begin(), others.end(), symbol);
    rows.from.push_back(at == others.end() ? -1 : at - others.begin() + blanks);
  }
  return rows;
}

namespace {

constexpr const char* output_weight = "output.weight";  // [classes, inputs]
constexpr const char* output_bias = "output.bias";      // [1, classes]

bool is_output(const Parameters::Entry& e) {
  return e.name == output_weight || e.name == output_bias;
}

// The mean of all rows but the blank's. A softmax does not see what is added to all of its inputs,
// so those of another program's model may all be far below 0, where a new class around 0 would
// drown them; with the mean a new class is as far from being written as classes usually are.
std::vector<double> mean_of_symbols(std::span<const float> rows, size_t columns, size_t blanks) {
  std::vector<double> mean(columns, 0.0);
  const size_t symbols = rows.size() / columns - blanks;
  for (size_t r = blanks; r < blanks + symbols; ++r) {
    for (size_t i = 0; i < columns; ++i)
      mean[i] += rows[r * columns + i] / static_cast<double>(symbols);
  }
  return mean;
}

}  // namespace

void require_weights(const SafetensorsFile& file, const std::vector<Parameters::Entry>& entries,
                     const OutputRows& rows) {
  for (const auto& e : entries) {
    std::vector<int64_t> shape = e.shape();
    if (!rows.from.empty() && is_output(e)) shape[e.name == output_weight ? 0 : 1] = rows.others;
    file.at(e.name, DType::f32, shape);
  }
  for (const auto& t : file.tensors()) {
    const bool known = std::any_of(entries.begin(), entries.end(),
                                   [&](const auto& e) { return e.name == t.name; });
    if (!known) {
      fail_input(file.name(), ": tensor '", t.name, "' belongs to no parameter of this model");
    }
  }
}

ReadEntry weights_of(const SafetensorsFile& file, OutputRows rows, uint64_t seed) {
  return [&file, rows = std::move(rows), seed](const Parameters::Entry& e, std::span<float> into) {
    const std::span<const float> stored = file.at(e.name).as<float>();
    if (rows.from.empty() || !is_output(e)) {
      std::ranges::copy(stored, into.begin());
      return;
    }
    const auto columns = static_cast<size_t>(e.name == output_weight ? e.cols : 1);
    const double bound = e.name == output_weight ? 1 / std::sqrt(static_cast<double>(columns)) : 0;
    const std::vector<double> usual =
        mean_of_symbols(stored, columns, static_cast<size_t>(rows.blanks));
    for (size_t c = 0; c < rows.from.size(); ++c) {
      const std::span<float> row = into.subspan(c * columns, columns);
      if (rows.from[c] >= 0) {
        std::ranges::copy(stored.subspan(static_cast<size_t>(rows.from[c]) * columns, columns),
                          row.begin());
        continue;
      }
      data::Random random(seed, 0, c, data::Purpose::new_class);
      for (size_t i = 0; i < columns; ++i)
        row[i] = static_cast<float>(usual[i] + random.uniform(-bound, bound));
    }
  };
}

}  // namespace rondo
