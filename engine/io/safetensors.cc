#include "engine/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/io/json.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "safetensors bytes are little-endian");

constexpr uint64_t max_header_bytes = 100'000'000;  // the format's own limit
constexpr size_t data_alignment = 64;

struct DTypeName {
  DType dtype;
  const char* name;
};
constexpr DTypeName dtype_names[] = {{DType::f32, "F32"}, {DType::bf16, "BF16"},
                                     {DType::f64, "F64"}, {DType::i32, "I32"},
                                     {DType::i64, "I64"}, {DType::u8, "U8"}};

// What is read as f32, and stored in fewer bytes.
constexpr std::string_view half_name = "F16", int8_name = "I8", scale_ending = ".scale";
size_t stored_bytes(std::string_view dtype) {
  return dtype == half_name ? sizeof(uint16_t) : dtype == int8_name ? sizeof(int8_t) : 0;
}

std::string_view stored_name(DType dtype) {
  for (const DTypeName& d : dtype_names) {
    if (d.dtype == dtype) return d.name;
  }
  return "?";
}

std::optional<DType> dtype_from(std::string_view name) {
  for (const DTypeName& d : dtype_names) {
    if (name == d.name) return d.dtype;
  }
  return std::nullopt;
}

// Elements times element size, unless it overflows.
std::optional<uint64_t> byte_count(std::span<const int64_t> shape, DType dtype) {
  uint64_t n = size_of(dtype);
  for (int64_t d : shape) {
    if (d < 0 || __builtin_mul_overflow(n, static_cast<uint64_t>(d), &n)) return std::nullopt;
  }
  if (n > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return n;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

std::vector<const TensorToWrite*> file_order(std::span<const TensorToWrite> tensors) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    const size_t size_a = size_of(a->dtype), size_b = size_of(b->dtype);
    return size_a != size_b ? size_a > size_b : a->name < b->name;
  });
  return order;
}

std::string make_header(const std::vector<const TensorToWrite*>& order, const StringMap& metadata) {
  Json header = Json::object();
  std::set<std::string_view> names;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorToWrite* t : order) {
    RONDO_CHECK(!t->name.empty() && t->name != "__metadata__", "tensor name '", t->name, "'");
    RONDO_CHECK(names.insert(t->name).second, "two tensors are named '", t->name, "'");
    const std::optional<uint64_t> bytes = byte_count(t->shape, t->dtype);
    RONDO_CHECK(bytes, "tensor '", t->name, "' has the shape ", shape_text(t->shape));
    RONDO_CHECK(*bytes == 0 || t->data || t->fill, "tensor '", t->name, "' has no data");
    const bool is_int8 = t->is_signed && t->dtype == DType::u8;
    header[t->name] = Json::object({{"dtype", is_int8 ? int8_name : stored_name(t->dtype)},
                                    {"shape", t->shape},
                                    {"data_offsets", Json::array({offset, offset + *bytes})}});
    offset += *bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const JsonError&) {
    RONDO_CHECK(false, "a tensor name or metadata is not UTF-8");
  }
  const size_t misaligned = (8 + text.size()) % data_alignment;
  if (misaligned) text.append(data_alignment - misaligned, ' ');
  return text;
}

void write_tensor(FileWriter& file, const TensorToWrite& tensor) {
  const uint64_t bytes = *byte_count(tensor.shape, tensor.dtype);
  if (tensor.data) {
    file.write({static_cast<const std::byte*>(tensor.data), static_cast<size_t>(bytes)});
    return;
  }
  std::vector<std::byte> piece(static_cast<size_t>(std::min<uint64_t>(bytes, 1 << 20)));
  for (uint64_t done = 0; done < bytes; done += piece.size()) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(piece.size(), bytes - done)));
    tensor.fill(done, piece);
    file.write(piece);
  }
}

}  // namespace

struct SafetensorsEntry {
  StoredTensor tensor;
  std::string stored_as;
  uint64_t begin = 0;
  uint64_t end = 0;
};

namespace {
using Entry = SafetensorsEntry;

uint64_t unsigned_field(const Json& value, const std::string& where) {
  if (!value.is_unsigned()) {
    fail_input(where, " holds ", value.dump_replacing().substr(0, 40),
               ", expected a non-negative integer");
  }
  return value.get<uint64_t>();
}

Entry parse_entry(const std::string& file, const std::string& name, const Json& value,
                  std::span<const std::byte> data) {
  const std::string where = str(file, ": tensor '", name, "'");
  if (!value.is_object()) fail_input(where, " is not described by a JSON object");
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!value.contains(key)) fail_input(where, " has no '", key, "'");
  }
  for (const auto& [key, ignored] : value.members()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      fail_input(where, " has the unknown field '", key, "'");
    }
  }
  Entry entry;
  entry.tensor.name = name;
  const Json& dtype = value.at("dtype");
  if (dtype.is_string()) entry.stored_as = dtype.get<std::string>();
  const size_t narrow = stored_bytes(entry.stored_as);
  const auto known = narrow ? DType::f32 : dtype_from(entry.stored_as);
  if (!known) {
    fail_input(where, " has the dtype ", dtype.dump_replacing(),
               ", expected F32, BF16, F16, F64, I8, I32, I64 or U8");
  }
  entry.tensor.dtype = *known;
  if (!value.at("shape").is_array()) fail_input(where, ": its shape is not a list");
  for (const Json& d : value.at("shape").elements()) {
    const uint64_t dim = unsigned_field(d, where + ": its shape");
    if (dim > static_cast<uint64_t>(INT64_MAX))
      fail_input(where, ": dimension ", dim, " is too large");
    entry.tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  const Json& offsets = value.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    fail_input(where, ": data_offsets is not a list of two integers");
  }
  entry.begin = unsigned_field(offsets.at(0), where + ": data_offsets");
  entry.end = unsigned_field(offsets.at(1), where + ": data_offsets");
  if (entry.begin > entry.end || entry.end > data.size()) {
    fail_input(where, " lies at bytes ", entry.begin, " to ", entry.end,
               " of the data, but the file has ", data.size(), " (is it truncated?)");
  }
  auto bytes = byte_count(entry.tensor.shape, *known);
  if (bytes && narrow) *bytes = *bytes / sizeof(float) * narrow;
  if (!bytes || *bytes != entry.end - entry.begin) {
    fail_input(where, " has the shape ", shape_text(entry.tensor.shape), " of ", entry.stored_as,
               ", but ", entry.end - entry.begin, " bytes");
  }
  entry.tensor.bytes = data.subspan(entry.begin, *bytes);
  return entry;
}

using Entries = std::map<std::string_view, const Entry*>;

bool is_scale(std::string_view name, const Entries& all) {
  if (!name.ends_with(scale_ending)) return false;
  const auto of = all.find(name.substr(0, name.size() - scale_ending.size()));
  return of != all.end() && of->second->stored_as == int8_name;
}

// Of the rows of a tensor of I8, whose first dimension counts them.
std::span<const std::byte> scales_of(const std::string& file, const Entry& entry,
                                     const Entries& all) {
  const std::vector<int64_t>& shape = entry.tensor.shape;
  const std::string name = entry.tensor.name + std::string(scale_ending);
  const std::string what = str(file, ": tensor '", entry.tensor.name, "' is I8", shape_text(shape));
  if (shape.empty()) fail_input(what, ", expected rows, each with a scale");
  const auto found = all.find(name);
  if (found == all.end()) {
    fail_input(what, " without scales, expected '", name, "', F32[", shape.front(), "]");
  }
  const Entry& scales = *found->second;
  if (scales.stored_as != "F32" || scales.tensor.shape != std::vector{shape.front()}) {
    fail_input(what, ", and '", name, "' ", scales.stored_as, shape_text(scales.tensor.shape),
               ", expected F32[", shape.front(), "], a scale for each row");
  }
  return scales.tensor.bytes;
}

Json parse_header(const std::string& file, std::string_view text) {
  if (text.empty() || text.front() != '{') {
    fail_input(file, ": is not a safetensors file: its header does not begin with '{'");
  }
  try {
    // Repeated names would be merged in silence; the format has three levels.
    return Json::parse(text, {.depth = 3, .unique_names = true});
  } catch (const JsonError& e) {
    fail_input(file, ": the header ", e.what());
  }
}

}  // namespace

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31, exponent = half >> 10 & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

void write_safetensors(FileWriter& file, std::span<const TensorToWrite> tensors,
                       const StringMap& metadata) {
  const std::vector<const TensorToWrite*> order = file_order(tensors);
  const std::string header = make_header(order, metadata);
  const uint64_t length = header.size();
  file.write({reinterpret_cast<const std::byte*>(&length), sizeof length});
  file.write(header);
  for (const TensorToWrite* t : order) write_tensor(file, *t);
}

void write_safetensors(const fs::path& path, std::span<const TensorToWrite> tensors,
                       const StringMap& metadata) {
  replace_file(path, [&](FileWriter& file) { write_safetensors(file, tensors, metadata); });
}

std::string StoredTensor::describe() const { return name_of(dtype) + shape_text(shape); }

SafetensorsFile::SafetensorsFile(const fs::path& path, FileBytes::Mode mode)
    : name_(path.string()), file_(path, mode) {
  parse(file_.bytes());
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)) {
  parse(bytes);
}

SafetensorsFile SafetensorsFile::join(std::vector<SafetensorsFile> files, std::string name,
                                      StringMap metadata) {
  SafetensorsFile all;
  all.name_ = std::move(name);
  all.metadata_ = std::move(metadata);
  std::map<std::string_view, const SafetensorsFile*> holders;
  for (const SafetensorsFile& file : files) {
    for (const StoredTensor& tensor : file.tensors_) {
      const auto [holder, first] = holders.emplace(tensor.name, &file);
      if (!first) {
        fail_input("tensor '", tensor.name, "' is both in '", holder->second->name_, "' and in '",
                   file.name_, "'");
      }
      all.index_[tensor.name] = all.tensors_.size();
      all.tensors_.push_back(tensor);
    }
  }
  all.joined_ = std::move(files);
  return all;
}

void SafetensorsFile::parse(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) {
    fail_input(name_, ": is not a safetensors file: it has ", bytes.size(),
               " bytes, fewer than the 8 of its header's length");
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > max_header_bytes || length > bytes.size() - 8) {
    fail_input(name_, ": is not a safetensors file, or is truncated: its header claims ", length,
               " bytes of the ", bytes.size() - 8, " that follow");
  }
  const auto* header_begin = reinterpret_cast<const char*>(bytes.data() + 8);
  const Json header = parse_header(name_, {header_begin, static_cast<size_t>(length)});
  const std::span<const std::byte> data = bytes.subspan(8 + static_cast<size_t>(length));

  std::vector<Entry> entries;
  for (const auto& [name, value] : header.members()) {
    if (name != "__metadata__") {
      entries.push_back(parse_entry(name_, name, value, data));
      continue;
    }
    if (!value.is_object()) fail_input(name_, ": __metadata__ is not a JSON object");
    for (const auto& [key, text] : value.members()) {
      if (!text.is_string()) fail_input(name_, ": metadata '", key, "' is not a string");
      metadata_[key] = text.get<std::string>();
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  uint64_t next = 0;
  for (Entry& entry : entries) {
    if (entry.begin != next) {
      fail_input(name_, ": tensor '", entry.tensor.name, "' begins at byte ", entry.begin,
                 " of the data, expected ", next,
                 entry.begin < next ? " (it overlaps the one before)" : " (a hole)");
    }
    next = entry.end;
  }
  if (next != data.size()) {
    fail_input(name_, ": ", data.size() - next, " bytes at the end belong to no tensor");
  }
  Entries by_name;
  for (const Entry& entry : entries) by_name.emplace(entry.tensor.name, &entry);
  for (Entry& entry : entries) {
    if (is_scale(entry.tensor.name, by_name)) continue;
    stored_bytes(entry.stored_as) ? widen(entry, by_name) : align(entry.tensor);
    index_[entry.tensor.name] = tensors_.size();
    tensors_.push_back(entry.tensor);
  }
}

// Copies narrower elements as f32.
void SafetensorsFile::widen(Entry& entry, const Entries& all) {
  const std::span<const std::byte> stored = entry.tensor.bytes;
  const size_t count = stored.size() / stored_bytes(entry.stored_as);
  std::vector<uint64_t>& wide = realigned_.emplace_back((count + 1) / 2);
  const std::span<std::byte> to =
      std::as_writable_bytes(std::span(wide)).first(count * sizeof(float));
  const auto put = [&](size_t i, float value) {
    std::memcpy(to.data() + i * sizeof value, &value, sizeof value);
  };
  if (entry.stored_as == half_name) {
    for (size_t i = 0; i < count; ++i) {
      uint16_t half;
      std::memcpy(&half, stored.data() + i * sizeof half, sizeof half);
      put(i, half_to_float(half));
    }
  } else {
    const std::span<const std::byte> scales = scales_of(name_, entry, all);
    const size_t rows = scales.size() / sizeof(float);
    for (size_t i = 0; i < count; ++i) {
      float scale;
      std::memcpy(&scale, scales.data() + i / (count / rows) * sizeof scale, sizeof scale);
      put(i, static_cast<float>(static_cast<int8_t>(stored[i])) * scale);
    }
  }
  entry.tensor.bytes = to;
}

void SafetensorsFile::align(StoredTensor& tensor) {
  if (reinterpret_cast<uintptr_t>(tensor.bytes.data()) % size_of(tensor.dtype) == 0) return;
  std::vector<uint64_t>& copy = realigned_.emplace_back((tensor.bytes.size() + 7) / 8);
  copy_bytes(copy.data(), tensor.bytes.data(), tensor.bytes.size());
  tensor.bytes = std::as_bytes(std::span(copy)).first(tensor.bytes.size());
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (!tensor) fail_input(name_, ": has no tensor '", name, "'");
  return *tensor;
}

const StoredTensor& SafetensorsFile::at(std::string_view name, DType dtype,
                                        std::span<const int64_t> shape) const {
  const StoredTensor& tensor = at(name);
  if (tensor.dtype != dtype ||
      !std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) {
    fail_input(name_, ": tensor '", name, "' is ", tensor.describe(), ", expected ", name_of(dtype),
               shape_text(shape));
  }
  return tensor;
}

}  // namespace rondo
