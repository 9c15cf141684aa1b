// Weights and the optimiser's state of a model, wherever its ranks have them: set, gathered,
// streamed, and as parts of checkpoints.
#include <algorithm>

#include "engine/rank_model.h"
#include "engine/reduce/host_array.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Not beside messages of stages: these are exchanged with nothing in flight.
constexpr uint32_t gather_tag = 0x60000000;
constexpr uint32_t wanted_tag = 0x5fffffff;
constexpr int64_t no_more = -1;

}  // namespace

TensorToWrite tensor_to_write(std::string name, const TensorView& view, Device& device) {
  TensorToWrite t;
  t.name = std::move(name);
  t.dtype = view.dtype;
  for (int i = 0; i < view.rank; ++i) t.shape.push_back(view.dim(i));
  t.fill = [view, device = &device](uint64_t offset, std::span<std::byte> into) {
    Stream stream = device->make_stream();
    device->copy(stream, into.data(), static_cast<const std::byte*>(view.data) + offset,
                 into.size());
    stream.synchronize();
  };
  return t;
}

std::vector<TensorToWrite> weights_to_write(const Parameters& parameters) {
  std::vector<TensorToWrite> tensors;
  for (const auto& e : parameters.entries()) {
    tensors.push_back(tensor_to_write(e.name, parameters.weight(e.name), parameters.device()));
    tensors.back().shape = e.shape();
  }
  return tensors;
}

void load_weights(const SafetensorsFile& file, Parameters& parameters) {
  for (const auto& e : parameters.entries()) {
    parameters.write(e.name, file.at(e.name, parameters.dtype(), e.shape()).bytes.data());
  }
  for (const auto& t : file.tensors()) {
    if (!parameters.has(t.name)) {
      fail_input(file.name(), ": tensor '", t.name, "' belongs to no parameter of this model");
    }
  }
}

std::vector<float> RankModel::gather(const std::string& slot) {
  const bool needed = first_of_stage();
  std::vector<float> state;
  HostArray weights;
  if (slot.empty()) {
    weights = HostArray(parameters_->weights(), *device_, "weights by way of the host");
    weights.fetch(stream_);
  } else {
    state = update_->gather(slot, needed);
  }
  const float* const mine = slot.empty() ? weights.values().data() : state.data();
  if (!needed) return {};
  const bool first = grid_.stage_rank() == 0;
  std::vector<float> all(first ? static_cast<size_t>(flat_size_) : 0);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Parameters::Entry& e = entries_[i];
    const auto n = static_cast<size_t>(e.numel());
    const int from = e.stage;
    const uint32_t tag = gather_tag + static_cast<uint32_t>(i);
    if (from == grid_.stage_rank()) {
      const std::span part(mine + parameters_->entry(e.name).offset, n);
      if (first) {
        std::copy(part.begin(), part.end(), all.begin() + e.offset);
      } else {
        grid_.pipeline()->send(0, tag, std::as_bytes(part)).wait();
      }
    } else if (first) {
      const std::span part(all.data() + e.offset, n);
      grid_.pipeline()->recv(from, tag, std::as_writable_bytes(part)).wait();
    }
  }
  return all;
}

std::vector<Update::Slot> RankModel::gather_state() {
  if (stages() == 1) return optimizer().gather(world_.first());
  std::vector<Update::Slot> slots;
  gathered_.clear();
  for (const auto& own : update_->state()) {
    std::vector<float>& all = gathered_.emplace_back(gather(own.name));
    if (!world_.first()) continue;
    slots.push_back({own.name, TensorView(all.data(), DType::f32, {flat_size_})});
  }
  return slots;
}

void RankModel::share_weights() {
  if (!whole()) return;
  world_.broadcast(parameters().weights(), *device_);
  update_->take_weights();
}

void RankModel::set(const std::string& slot, const ReadEntry& read) {
  std::vector<float> part, state(slot.empty() ? 0 : static_cast<size_t>(parameters_->flat_size()));
  HostArray weights;
  if (slot.empty()) {
    weights = HostArray(parameters_->weights(), *device_, "weights by way of the host");
    weights.fetch(stream_);
  }
  float* const mine = slot.empty() ? weights.values().data() : state.data();
  for (const Parameters::Entry& e : entries_) {
    part.resize(static_cast<size_t>(e.numel()));
    if (world_.first()) read(e, part);
    world_.broadcast(TensorView(part.data(), DType::f32, {e.numel()}));
    if (e.stage != grid_.stage_rank()) continue;
    std::copy(part.begin(), part.end(), mine + parameters_->entry(e.name).offset);
  }
  if (!slot.empty()) return update_->set(slot, state);
  weights.store(stream_);
  update_->take_weights();
}

StagePart RankModel::part() const {
  const bool writer = first_of_stage();
  StagePart p;
  p.stage = grid_.stage_rank();
  p.stages = grid_.split().pipeline;
  if (update_->divided()) {
    p.part = grid_.same_stage()->rank();
    p.parts = grid_.same_stage()->size();
  }
  p.layout = parameters_->entries();
  p.flat_size = parameters_->flat_size();
  if (writer) p.weights = weights_to_write(*parameters_);
  if (!writer && !update_->divided()) return p;
  for (const auto& slot : update_->state()) {
    p.slots.push_back(tensor_to_write(slot.name, slot.view, *device_));
  }
  return p;
}

void RankModel::stream_weights(const WriteTensors& write) {
  if (!first_of_stage()) return;
  if (grid_.stage_rank() != 0) return serve_weights();
  std::vector<float> in_hand;
  size_t held = entries_.size();
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < entries_.size(); ++i) {
    TensorToWrite t;
    t.name = entries_[i].name;
    t.shape = entries_[i].shape();
    t.fill = [&, i](uint64_t offset, std::span<std::byte> into) {
      if (held != i) {
        held = entries_.size();
        fetch(i, in_hand);
        held = i;
      }
      copy_bytes(into.data(), reinterpret_cast<const std::byte*>(in_hand.data()) + offset,
                 into.size());
    };
    tensors.push_back(std::move(t));
  }
  const auto dismiss = [&] {
    for (int rank = 1; rank < stages(); ++rank) {
      grid_.pipeline()->send(rank, wanted_tag, std::as_bytes(std::span(&no_more, 1))).wait();
    }
  };
  try {
    write(tensors);
  } catch (const CommError&) {
    throw;
  } catch (...) {
    dismiss();
    throw;
  }
  dismiss();
}

void RankModel::fetch(size_t index, std::vector<float>& into) {
  const Parameters::Entry& e = entries_[index];
  into.resize(static_cast<size_t>(e.numel()));
  const int from = e.stage;
  if (from == grid_.stage_rank()) {
    parameters_->read(e.name, into.data());
    return;
  }
  const auto wanted = static_cast<int64_t>(index);
  grid_.pipeline()->send(from, wanted_tag, std::as_bytes(std::span(&wanted, 1))).wait();
  const uint32_t tag = gather_tag + static_cast<uint32_t>(index);
  grid_.pipeline()->recv(from, tag, std::as_writable_bytes(std::span(into))).wait();
}

void RankModel::serve_weights() {
  std::vector<float> part;
  for (;;) {
    int64_t wanted = no_more;
    grid_.pipeline()->recv(0, wanted_tag, std::as_writable_bytes(std::span(&wanted, 1))).wait();
    if (wanted == no_more) return;
    const auto index = static_cast<size_t>(wanted);
    const Parameters::Entry& e = entries_.at(index);
    part.resize(static_cast<size_t>(e.numel()));
    parameters_->read(e.name, part.data());
    const uint32_t tag = gather_tag + static_cast<uint32_t>(index);
    grid_.pipeline()->send(0, tag, std::as_bytes(std::span(part))).wait();
  }
}

}  // namespace rondo
