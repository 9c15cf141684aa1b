#include "kernels/devices.h"

#include "kernels/base/cuda_device.h"
#include "kernels/simt/sim_device.h"

namespace rondo {

bool built_with_cuda() {
#ifdef RONDO_WITH_CUDA
  return true;
#else
  return false;
#endif
}

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
      reason = "this program was built without CUDA";
      return nullptr;
#endif
  }
  return nullptr;
}

}  // namespace rondo
