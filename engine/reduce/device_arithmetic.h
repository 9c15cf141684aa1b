// The kernels that groups of devices add and round with.
#pragma once

#include "comm/group/device_group.h"

namespace rondo {

// sim and cuda devices.
DeviceArithmetic device_arithmetic(Device& device);

}  // namespace rondo
