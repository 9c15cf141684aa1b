#include "engine/data/features/feature_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "engine/data/features/endings.h"
#include "engine/data/features/files.h"
#include "engine/data/features/kaldi_matrix.h"
#include "engine/data/features/npy.h"
#include "engine/io/safetensors.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// A batch of one, before or behind the frames, is none.
FeatureShape checked_shape(std::span<const int64_t> given, const std::string& path) {
  std::vector<int64_t> shape(given.begin(), given.end());
  std::string shown = "(";
  for (size_t i = 0; i < shape.size(); ++i) shown += (i ? ", " : "") + std::to_string(shape[i]);
  shown += ")";
  if (shape.size() == 3 && shape[0] == 1) {
    shape.erase(shape.begin());
  } else if (shape.size() == 3 && shape[1] == 1) {
    shape.erase(shape.begin() + 1);
  }
  if (shape.size() != 1 && shape.size() != 2)
    fail_input(path, ": has shape ", shown, ", expected (frames, features)");
  const int64_t dim = shape.size() == 2 ? shape[1] : 1;
  if (shape[0] < 1 || dim < 1)
    fail_input(path, ": has shape ", shown, ", expected at least one frame and one feature");
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (shape[0] > most || dim > most)
    fail_input(path, ": has shape ", shown, ", which is too large");
  return {shape[0], static_cast<int32_t>(dim)};
}

bool is_safetensors(const FilePart& file, const std::string& key) {
  const bool ending = has_ending(file.path, ".safetensors");
  if (ending && file.is_whole()) return true;
  if (ending) fail_input(file.name(), ": is a part of a .safetensors file, expected features_key");
  if (file.is_whole() && has_ending(file.path, ".ark"))
    fail_input(file.path, ": is an archive of matrices, expected \"bytes\" that say where one is");
  if (file.is_whole() && !has_ending(file.path, ".npy"))
    fail_input(file.path, ": is neither .npy nor .safetensors, expected ready features");
  if (!key.empty())
    fail_input(file.name(), ": features_key is given, but only a .safetensors file has keys");
  return false;
}

// A matrix of Kaldi's, known by its first bytes, or a .npy file.
Matrix features_from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  if (!data::is_kaldi_binary(bytes)) return features_from_npy(bytes, name);
  const data::KaldiHeader header = data::parse_kaldi_header(bytes, name);
  const int64_t shape[] = {header.rows, header.columns};
  checked_shape(shape, name);
  Matrix out;
  out.frames = header.rows;
  out.dim = header.columns;
  out.data = data::kaldi_floats(bytes, header, name);
  return out;
}

const StoredTensor& find_tensor(const SafetensorsFile& file, const std::string& key) {
  if (!key.empty()) return file.at(key);
  if (const StoredTensor* found = file.find("features")) return *found;
  if (file.tensors().size() != 1)
    fail_input(file.name(), ": holds ", file.tensors().size(),
               " tensors, none called \"features\": features_key must name one");
  return file.tensors().front();
}

template <class T>
void convert(const StoredTensor& tensor, std::vector<float>& out) {
  const std::span<const T> values = tensor.as<T>();
  out.assign(values.size(), 0.0f);
  for (size_t i = 0; i < values.size(); ++i) out[i] = static_cast<float>(values[i]);
}

}  // namespace

Matrix features_from(const SafetensorsFile& file, const std::string& key) {
  const StoredTensor& tensor = find_tensor(file, key);
  const FeatureShape shape = checked_shape(tensor.shape, file.name());
  Matrix out;
  out.frames = shape.frames;
  out.dim = shape.dim;
  switch (tensor.dtype) {
    case DType::f32:
      convert<float>(tensor, out.data);
      break;
    case DType::f64:
      for (const double v : tensor.as<double>())
        out.data.push_back(
            data::to_float(v, out.data.size(), static_cast<size_t>(out.dim), file.name()));
      break;
    case DType::bf16:
      convert<bf16>(tensor, out.data);
      break;
    default:
      fail_input(file.name(), ": tensor \"", tensor.name, "\" is ", name_of(tensor.dtype),
                 ", expected F32, F64 or BF16");
  }
  return out;
}

FeatureShape feature_file_shape(const FilePart& file, const std::string& key) {
  if (is_safetensors(file, key)) {
    const SafetensorsFile tensors(file.path);
    return checked_shape(find_tensor(tensors, key).shape, file.path);
  }
  const std::string name = file.name();
  const std::string start = data::read_file_start(file, data::needed_npy_header_bytes);
  const uint64_t size = data::regular_file_size(file);
  if (data::is_kaldi_binary(bytes_of(start))) {
    const data::KaldiHeader header = data::parse_kaldi_header(bytes_of(start), name);
    data::check_kaldi_size(size, header, name);
    const int64_t shape[] = {header.rows, header.columns};
    return checked_shape(shape, name);
  }
  const data::NpyHeader header = data::parse_npy_header(bytes_of(start), name);
  const FeatureShape shape = checked_shape(header.shape, name);
  data::check_npy_size(size, header, name);
  return shape;
}

Matrix read_feature_file(const FilePart& file, const std::string& key) {
  // Copied, not mapped: a data set may be rewritten while it is read.
  if (is_safetensors(file, key))
    return features_from(SafetensorsFile(file.path, FileBytes::Mode::copy), key);
  const std::string content = data::read_regular_file(file);
  return features_from_bytes(bytes_of(content), file.name());
}

Matrix features_from_npy(std::span<const std::byte> bytes, const std::string& name) {
  const data::NpyHeader header = data::parse_npy_header(bytes, name);
  const FeatureShape shape = checked_shape(header.shape, name);
  Matrix out;
  out.frames = shape.frames;
  out.dim = shape.dim;
  out.data = data::npy_floats(bytes, header, name);
  return out;
}

void require_finite(const Matrix& features, const std::string& file) {
  const auto& values = features.data;
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return;
  const int64_t at = bad - values.begin();
  fail_input(file, ": frame ", at / features.dim, " column ", at % features.dim,
             " is not a finite number");
}

std::vector<int32_t> read_integer_file(const std::string& path) {
  const std::string content = data::read_regular_file(path);
  const data::NpyHeader header = data::parse_npy_header(bytes_of(content), path);
  if (header.shape.size() != 1)
    fail_input(path, ": has ", header.shape.size(), " dimensions, expected one");
  return data::npy_integers(bytes_of(content), header, path);
}

void write_feature_file(const std::string& path, const Matrix& features) {
  const std::vector<int64_t> shape = {features.frames, features.dim};
  data::write_whole_file(path, data::make_npy(shape, features.data));
}

}  // namespace rondo
