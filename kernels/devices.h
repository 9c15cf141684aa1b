// The devices of this process, by kind.
#pragma once

#include <string>

#include "kernels/base/device.h"

namespace rondo {

// The device, or nullptr with the reason in *why when it is given: no GPU, no driver, a build
// without CUDA. `index` chooses among GPUs. Devices live as long as the process.
Device* find_device(DeviceKind kind, std::string* why = nullptr, int index = 0);

}  // namespace rondo
