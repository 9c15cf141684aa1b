#include "kernels/devices.h"

#include <charconv>

#include "kernels/base/error.h"
#include "kernels/base/gpu/cuda_device.h"
#include "kernels/base/gpu/gpu_identity.h"
#include "kernels/base/op.h"
#include "kernels/gemm/gemm.h"
#ifdef RONDO_WITH_SIM
#include "kernels/simt/sim/sim_device.h"
#endif

namespace rondo {

std::optional<DeviceId> device_named(std::string_view text) {
  for (DeviceKind kind : {DeviceKind::cpu, DeviceKind::sim, DeviceKind::cuda}) {
    if (text == name_of(kind)) return DeviceId(kind);
  }
  constexpr std::string_view with_index = "cuda:";
  if (!text.starts_with(with_index)) return std::nullopt;
  text.remove_prefix(with_index.size());
  int index = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  const bool whole = error == std::errc() && end == text.data() + text.size() && index >= 0;
  return whole ? std::optional(DeviceId(DeviceKind::cuda, index)) : std::nullopt;
}

bool built_with_cuda() {
#ifdef RONDO_WITH_CUDA
  return true;
#else
  return false;
#endif
}

Device* find_device(DeviceKind kind, [[maybe_unused]] std::string* why,
                    [[maybe_unused]] int index) {
  switch (kind) {
    case DeviceKind::cpu:
      return &cpu_device();
    case DeviceKind::sim:
#ifdef RONDO_WITH_SIM
      return &sim_device();
#else
      *why = "this program was built without the simulator (meson setup -Dsim=true)";
      return nullptr;
#endif
    case DeviceKind::cuda:
#ifdef RONDO_WITH_CUDA
      return cuda_device(index, why);
#else
      *why = "this program was built without CUDA";
      return nullptr;
#endif
  }
  return nullptr;
}

int gpu_count(std::string* why) {
  std::string unused;
  std::string& reason = why ? *why : unused;
#ifdef RONDO_WITH_CUDA
  return cuda_device_count(&reason);
#else
  reason = "this program was built without CUDA";
  return 0;
#endif
}

Device& require_device(DeviceKind kind, int index) {
  std::string why;
  Device* const device = find_device(kind, &why, index);
  if (device == nullptr) fail_input("device ", name_of(kind), " is not available: ", why);
  return *device;
}

std::string identity_of(const Device& device) {
#ifdef RONDO_WITH_CUDA
  if (device.kind() == DeviceKind::cuda) {
    return str(gpu_identity(device), ", ", gemm_library(), ", kernels ", detail::device_code);
  }
#endif
  return device.describe();
}

Backend backend_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return Backend::cpu;
    case DeviceKind::sim:
      return Backend::sim;
    case DeviceKind::cuda:
      return Backend::cuda;
  }
  return Backend::cpu;
}

}  // namespace rondo
