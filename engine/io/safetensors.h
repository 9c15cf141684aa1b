// safetensors: named tensors and string metadata in one file.
//
// Format: 8 bytes little-endian header length, a JSON header {"name": {"dtype", "shape",
// "data_offsets": [begin, end)}, "__metadata__": {string: string}}, then the bytes, row-major and
// little-endian, without holes. Written files are deterministic: tensors in order of falling
// element size, then by name, so that each is aligned to its elements; the header is padded with
// spaces so that the data begin at a multiple of 64.
//
// Tensors of F16 are read as f32, and so are those of I8 whose rows have scales: of "x" a tensor
// "x.scale" of F32 with a number for each of x's first dimension, which is then no tensor of its
// own. Every element is the product of both.
//
// Errors: a file that is not a valid safetensors file is an InputError naming the file and what is
// wrong; it is checked whole on opening, so later access cannot fail. Thread safety: an opened file
// is immutable and may be shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/file.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor.h"

namespace rondo {

using StringMap = std::map<std::string, std::string>;

// Of IEEE 754's binary16.
float half_to_float(uint16_t half);

// A tensor to write. The bytes come from `data` (borrowed until the write returns), or, if that is
// null, from `fill`, which is called with consecutive pieces: the way for memory of another device.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  std::function<void(uint64_t offset, std::span<std::byte> into)> fill = {};
  bool is_signed = false;  // of u8: written as I8
};

// Names must be unique, non-empty and not "__metadata__"; shapes non-negative (RONDO_CHECK).
void write_safetensors(FileWriter& file, std::span<const TensorToWrite> tensors,
                       const StringMap& metadata = {});

// The same into a file of its own, replaced atomically.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const StringMap& metadata = {});

// A tensor of an opened file; its bytes live as long as the file object.
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // empty: a scalar
  std::span<const std::byte> bytes;

  int64_t numel() const { return static_cast<int64_t>(bytes.size() / size_of(dtype)); }
  // "f32[3, 4]", for messages
  std::string describe() const;
  // The elements, aligned; RONDO_CHECK that T is the dtype.
  template <class T>
  std::span<const T> as() const {
    RONDO_CHECK(dtype == DTypeOf<T>::value, "tensor '", name, "' is ", name_of(dtype), ", read as ",
                name_of(DTypeOf<T>::value));
    return {reinterpret_cast<const T*>(bytes.data()), static_cast<size_t>(numel())};
  }
};

struct SafetensorsEntry;  // of a header

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path,
                           FileBytes::Mode mode = FileBytes::Mode::map);
  // Reads memory that outlives the object; `name` stands for the file in messages.
  SafetensorsFile(std::span<const std::byte> bytes, std::string name);
  // Several files as one, in their order, with these metadata instead of their own. InputError,
  // which names both files, when a tensor is in two of them.
  static SafetensorsFile join(std::vector<SafetensorsFile> files, std::string name,
                              StringMap metadata);

  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;
  SafetensorsFile(const SafetensorsFile&) = delete;

  // The tensors in the order of the file's bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  // InputError if it is missing.
  const StoredTensor& at(std::string_view name) const;
  // InputError unless dtype and shape are as expected.
  const StoredTensor& at(std::string_view name, DType dtype, std::span<const int64_t> shape) const;

  const StringMap& metadata() const { return metadata_; }
  const std::string& name() const { return name_; }

 private:
  SafetensorsFile() = default;
  void parse(std::span<const std::byte> bytes);
  void widen(SafetensorsEntry& entry,
             const std::map<std::string_view, const SafetensorsEntry*>& all);
  void align(StoredTensor& tensor);

  std::string name_;
  FileBytes file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  StringMap metadata_;
  std::deque<std::vector<uint64_t>> realigned_;  // copies of tensors: misaligned, F16 or I8
  std::vector<SafetensorsFile> joined_;          // whose bytes these tensors are
};

}  // namespace rondo
