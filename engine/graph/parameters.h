// The trainable numbers of a graph: weights and gradients, each one flat array on the device.
//
// Flat because optimisers, gradient buckets, averaging and norms are loops over arrays, not over
// layers. Entries are in order of their creation and start at multiples of 64 elements; the padding
// is zero in both arrays and stays zero.
// dtype: f32, or f64 for f64 graphs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"
#include "kernels/base/device.h"
#include "kernels/base/tensor.h"

namespace rondo {

class PackedWeights;  // kernels/base/cpu/packed_weights.h

class Parameters {
 public:
  struct Entry {
    std::string name;
    int64_t rows = 0, cols = 0;
    int64_t offset = 0;  // elements from the start of the flat arrays
    Init init;
    int stage = 0;
    int64_t taps = 0, tap_rows = 0;  // of a convolution's weights
    bool frozen = false;             // it keeps its values: there is no gradient
    int64_t numel() const { return rows * cols; }
    // The shape as files have it: that of Value::taps.
    std::vector<int64_t> shape() const;
  };

  // Room for the parameters of `graph` (of one stage, or all); the contents are zero. Without
  // gradients the views of them are absent, and training graphs cannot be bound.
  enum class Gradients : uint8_t { allocated, absent };
  Parameters(const Graph& graph, Device& device, int stage = -1,
             Gradients gradients = Gradients::allocated);
  ~Parameters();

  // Fills the weights from counter-based random numbers keyed by (seed, name): independent of the
  // order and number of the other parameters.
  void initialize(uint64_t seed);

  const std::vector<Entry>& entries() const { return entries_; }
  bool has(std::string_view name) const;
  const Entry& entry(std::string_view name) const;  // throws Error
  int64_t trainable() const;                        // number of weights, without padding

  TensorView weight(std::string_view name) const;    // [rows, cols]
  TensorView gradient(std::string_view name) const;  // [rows, cols]
  TensorView weights() const;                        // [flat_size()]
  TensorView gradients() const;
  int64_t flat_size() const { return flat_size_; }
  // Elements at the start of the flat arrays that are of frozen entries, which come first.
  int64_t frozen_size() const;
  DType dtype() const { return dtype_; }
  Device& device() const { return *device_; }

  // The entries that the parameters of `graph`, of all stages, have in one flat array: what a
  // checkpoint holds, whoever has which part of it in memory.
  static std::vector<Entry> entries_of(const Graph& graph, int64_t* flat_size);

  // Copies between an entry's weights and host memory of its size and dtype; synchronous.
  void read(std::string_view name, void* to) const;
  void write(std::string_view name, const void* from);

  // Where CPU kernels keep an entry's weights packed, until write() changes them. Null where the
  // weights may change otherwise (there are gradients), and on other devices.
  PackedWeights* packed(std::string_view name) const;
  size_t packed_bytes() const;  // of all entries, at present

 private:
  void allocate(const Graph& graph, const std::function<bool(int stage)>& wanted,
                Gradients gradients);
  Device* device_;
  DType dtype_ = DType::f32;
  std::vector<Entry> entries_;
  int64_t flat_size_ = 0;
  Buffer weights_, gradients_;
  std::vector<std::unique_ptr<PackedWeights>> packed_;  // by entry; none: see packed()
};

}  // namespace rondo
