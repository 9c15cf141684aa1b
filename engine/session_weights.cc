// Weights of sessions in files.
#include <filesystem>

#include "engine/io/safetensors.h"
#include "engine/session_state.h"

namespace rondo {

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

void Session::save(const std::string& path, const StringMap& metadata) const {
  const std::vector<TensorToWrite> tensors = weights_to_write(parameters());
  write_safetensors(std::filesystem::path(path), tensors, metadata);
}

void Session::load(const std::string& path) { load(SafetensorsFile(path)); }

void Session::load(const SafetensorsFile& file) {
  State& s = *state_;
  s.require_idle("load()");
  for (const auto& e : s.parameters->entries()) {
    s.parameters->write(e.name, file.at(e.name, s.parameters->dtype(), e.shape()).bytes.data());
  }
  for (const auto& t : file.tensors()) {
    if (!s.parameters->has(t.name)) {
      fail_input(file.name(), ": tensor '", t.name, "' belongs to no parameter of this model");
    }
  }
  if (s.optimizer) s.optimizer->take_weights();
}

}  // namespace rondo
