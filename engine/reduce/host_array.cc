#include "engine/reduce/host_array.h"

namespace rondo {

HostArray::HostArray(const TensorView& array, Device& device, const char* purpose)
    : array_(array), device_(&device) {
  RONDO_CHECK(array.dtype == DType::f32, "an array of ", name_of(array.dtype), ", expected f32");
  if (device.kind() != DeviceKind::cpu && array.bytes() > 0) {
    copy_ = StagingBuffer(device, array.bytes(), purpose);
  }
}

std::span<float> HostArray::values() const {
  auto* const at = copy_.data() ? reinterpret_cast<float*>(copy_.data()) : array_.as<float>();
  return {at, size()};
}

void HostArray::fetch(Stream& stream) {
  if (copy_.data()) device_->copy(stream, copy_.data(), array_.data, array_.bytes());
  stream.synchronize();
}

void HostArray::store(Stream& stream) {
  if (!copy_.data()) return;
  device_->copy(stream, array_.data, copy_.data(), array_.bytes());
  stream.synchronize();
}

}  // namespace rondo
