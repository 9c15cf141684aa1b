#include "engine/graph/parameters.h"

#include <algorithm>

#include "kernels/base/cpu/packed_weights.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr int64_t entry_alignment = 64;

uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t h = mix(seed);
  for (char c : name) h = mix(h ^ static_cast<unsigned char>(c));
  return h;
}

double uniform01(uint64_t key, uint64_t i) {
  return static_cast<double>(mix(key + i * 0xd1342543de82ef95ull) >> 11) * 0x1p-53;
}

std::vector<double> initial_values(const Parameters::Entry& e, uint64_t seed) {
  std::vector<double> m(static_cast<size_t>(e.numel()), 0.0);
  const uint64_t key = key_of(seed, e.name);
  switch (e.init.kind) {
    case Init::constant:
      std::fill(m.begin(), m.end(), e.init.value);
      break;
    case Init::uniform:
      for (size_t i = 0; i < m.size(); ++i) m[i] = e.init.value * (2 * uniform01(key, i) - 1);
      break;
    case Init::lstm_bias: {
      // Gate order i, f, g, o: the second quarter.
      const auto hidden = static_cast<int64_t>(m.size()) / 4;
      std::fill(m.begin() + hidden, m.begin() + 2 * hidden, e.init.value);
      break;
    }
  }
  return m;
}

}  // namespace

Parameters::Parameters(const Graph& graph, Device& device, int stage, Gradients gradients)
    : device_(&device) {
  allocate(
      graph, [stage](int s) { return stage < 0 || s == stage; }, gradients);
}

namespace {

std::vector<Parameters::Entry> place_entries(const Graph& graph,
                                             const std::function<bool(int)>& wanted,
                                             int64_t* flat_size) {
  std::vector<Parameters::Entry> entries;
  *flat_size = 0;
  for (const Value& v : graph.values) {
    if (v.role != ValueRole::parameter || !wanted(v.stage)) continue;
    RONDO_CHECK(v.needs_gradient || entries.empty() || entries.back().frozen, "parameter '", v.name,
                "' is frozen, and one before it is not");
    entries.push_back({v.name, v.shape.rows, v.shape.cols, *flat_size, v.init, v.stage, v.taps,
                       v.tap_rows, !v.needs_gradient});
    *flat_size +=
        (entries.back().numel() + entry_alignment - 1) / entry_alignment * entry_alignment;
  }
  return entries;
}

}  // namespace

std::vector<Parameters::Entry> Parameters::entries_of(const Graph& graph, int64_t* flat_size) {
  return place_entries(
      graph, [](int) { return true; }, flat_size);
}

Parameters::~Parameters() = default;

void Parameters::allocate(const Graph& graph, const std::function<bool(int)>& wanted,
                          Gradients gradients) {
  dtype_ = graph.compute == DType::f64 ? DType::f64 : DType::f32;
  entries_ = place_entries(graph, wanted, &flat_size_);
  Device& device = *device_;
  const size_t bytes = static_cast<size_t>(flat_size_) * size_of(dtype_);
  weights_ = Buffer(device, bytes, "weights");
  if (gradients == Gradients::allocated) gradients_ = Buffer(device, bytes, "gradients");
  if (gradients == Gradients::absent && device.kind() == DeviceKind::cpu) {
    for (size_t i = 0; i < entries_.size(); ++i)
      packed_.push_back(std::make_unique<PackedWeights>());
  }
  Stream stream = device.make_stream();
  device.fill_bytes(stream, weights_.data(), 0, bytes);
  device.fill_bytes(stream, gradients_.data(), 0, gradients_.bytes());
  stream.synchronize();
}

void Parameters::initialize(uint64_t seed) {
  for (const Entry& e : entries_) {
    const std::vector<double> values = initial_values(e, seed);
    if (dtype_ == DType::f64) {
      write(e.name, values.data());
    } else {
      const std::vector<float> narrow(values.begin(), values.end());
      write(e.name, narrow.data());
    }
  }
}

std::vector<int64_t> Parameters::Entry::shape() const {
  if (taps == 0) return {rows, cols};
  if (tap_rows == 0) return {rows, cols / taps, taps};
  return {rows, cols / taps, tap_rows, taps / tap_rows};
}

int64_t Parameters::frozen_size() const {
  for (const Entry& e : entries_) {
    if (!e.frozen) return e.offset;
  }
  return flat_size_;
}

bool Parameters::has(std::string_view name) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& e) { return e.name == name; });
}

const Parameters::Entry& Parameters::entry(std::string_view name) const {
  for (const Entry& e : entries_) {
    if (e.name == name) return e;
  }
  RONDO_CHECK(false, "no parameter named '", name, "'");
}

int64_t Parameters::trainable() const {
  int64_t n = 0;
  for (const Entry& e : entries_) n += e.numel();
  return n;
}

namespace {
TensorView part(const Buffer& buffer, const Parameters::Entry& e, DType dtype) {
  if (buffer.data() == nullptr) return {};
  auto* base = static_cast<uint8_t*>(buffer.data());
  return {base + static_cast<size_t>(e.offset) * size_of(dtype), dtype, {e.rows, e.cols}};
}
}  // namespace

TensorView Parameters::weight(std::string_view name) const {
  return part(weights_, entry(name), dtype_);
}
TensorView Parameters::gradient(std::string_view name) const {
  return part(gradients_, entry(name), dtype_);
}
TensorView Parameters::weights() const { return {weights_.data(), dtype_, {flat_size_}}; }
TensorView Parameters::gradients() const { return {gradients_.data(), dtype_, {flat_size_}}; }

void Parameters::read(std::string_view name, void* to) const {
  const TensorView v = weight(name);
  Stream stream = device_->make_stream();
  device_->copy(stream, to, v.data, v.bytes());
  stream.synchronize();
}

void Parameters::write(std::string_view name, const void* from) {
  const TensorView v = weight(name);
  Stream stream = device_->make_stream();
  device_->copy(stream, v.data, from, v.bytes());
  stream.synchronize();
  if (PackedWeights* kept = packed(name)) kept->clear();
}

PackedWeights* Parameters::packed(std::string_view name) const {
  if (packed_.empty()) return nullptr;
  return packed_[static_cast<size_t>(&entry(name) - entries_.data())].get();
}

size_t Parameters::packed_bytes() const {
  size_t sum = 0;
  for (const auto& kept : packed_) sum += kept->bytes();
  return sum;
}

}  // namespace rondo
