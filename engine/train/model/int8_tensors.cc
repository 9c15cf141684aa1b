#include "engine/train/model/int8_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/gemm/int8.h"

namespace rondo {

Int8Tensors::Int8Tensors(std::span<const TensorToWrite> tensors, const std::string& where) {
  for (const TensorToWrite& t : tensors) {
    RONDO_CHECK(t.dtype == DType::f32, "tensor '", t.name, "' of ", name_of(t.dtype),
                ", expected f32");
    Tensor& own = tensors_.emplace_back();
    own.name = t.name;
    own.shape = t.shape;
    int64_t elements = 1;
    for (int64_t n : t.shape) elements *= n;
    own.values.resize(static_cast<size_t>(elements));
    const auto bytes = std::as_writable_bytes(std::span(own.values));
    t.data ? static_cast<void>(std::memcpy(bytes.data(), t.data, bytes.size())) : t.fill(0, bytes);
    if (t.shape.size() >= 2 && t.shape.front() > 1) round(own, where);
  }
}

void Int8Tensors::round(Tensor& t, const std::string& where) const {
  const auto rows = static_cast<size_t>(t.shape.front()), columns = t.values.size() / rows;
  t.integers.resize(t.values.size());
  for (size_t row = 0; row < rows; ++row) {
    float* const values = t.values.data() + row * columns;
    float most = 0;
    for (size_t i = 0; i < columns; ++i) {
      if (!std::isfinite(values[i])) {
        fail_input(where, ": tensor '", t.name, "' holds ", values[i], " in row ", row,
                   ", expected finite weights");
      }
      most = std::max(most, std::fabs(values[i]));
    }
    const float scale = int8_stored_scale(int8_scale(most).scale);
    t.scales.push_back(scale);
    for (size_t i = 0; i < columns; ++i) {
      const float quotient = scale > 0 ? std::nearbyint(values[i] / scale) : 0.0f;
      const auto integer = static_cast<int8_t>(quotient);
      t.integers[row * columns + i] = integer;
      values[i] = static_cast<float>(integer) * scale;
    }
  }
}

std::vector<TensorToWrite> Int8Tensors::stored() const {
  std::vector<TensorToWrite> all;
  for (const Tensor& t : tensors_) {
    if (t.integers.empty()) {
      all.push_back({t.name, DType::f32, t.shape, t.values.data()});
      continue;
    }
    TensorToWrite& integers = all.emplace_back();
    integers = {t.name, DType::u8, t.shape, t.integers.data()};
    integers.is_signed = true;
    all.push_back({t.name + ".scale", DType::f32, {t.shape.front()}, t.scales.data()});
  }
  return all;
}

std::vector<TensorToWrite> Int8Tensors::meant() const {
  std::vector<TensorToWrite> all;
  for (const Tensor& t : tensors_) {
    all.push_back({t.name, DType::f32, t.shape, t.values.data()});
  }
  return all;
}

}  // namespace rondo
