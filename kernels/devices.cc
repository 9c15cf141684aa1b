#include "kernels/devices.h"

#include "kernels/base/cuda_device.h"
#include "kernels/simt/sim_device.h"

namespace rondo {

Device* find_device(DeviceKind kind, std::string* why, [[maybe_unused]] int index) {
  std::string unused;
  std::string& reason = why ? *why : unused;
  switch (kind) {
    case DeviceKind::cpu:
      return &cpu_device();
    case DeviceKind::sim:
      return &sim_device();
    case DeviceKind::cuda:
#ifdef RONDO_WITH_CUDA
      return cuda_device(index, &reason);
#else
      reason = "built without CUDA";
      return nullptr;
#endif
  }
  return nullptr;
}

}  // namespace rondo
