// A group of devices by way of the host: data are copied to the host (page-locked memory), go
// through the collective of a host group, and are copied back, all in stream order. For devices
// without a network of their own, such as simulated ones.
//
// Not for GPUs, whose streams cannot wait for the host: functions that they call there may share
// one thread, and what one of them waits for may be behind it.
#pragma once

#include <memory>

#include "comm/group/device_group.h"

namespace rondo {

// `host` is for this group alone: another one's collectives, issued beside, would meet its own in
// another order. It decides dtypes, deadlines, verification and what is an error.
std::unique_ptr<DeviceGroup> make_staged_group(Device& device, std::unique_ptr<ProcessGroup> host,
                                               CommClock::duration timeout);

}  // namespace rondo
