// Ranks on devices: which device is a rank's, and how they sum gradients.
#pragma once

#include <memory>
#include <string>

#include "comm/group/device_group.h"
#include "comm/store/store.h"
#include "engine/config/config.h"
#include "tools/command_line/device_option.h"

namespace rondo {

// The device of rank `local_rank` of the `local_size` ranks on this machine: among GPUs what
// gpu_of_rank() says (engine/parallel/launch_environment.h), otherwise `device`. Throws InputError
// when there are not enough GPUs, or one was chosen for all.
DeviceId device_of_rank(const DeviceChoice& choice, DeviceId device, int local_rank,
                        int local_size);

// How NCCL sums: see parallel.deterministic and parallel.nccl_blocks.
struct NcclChoice {
  bool fixed_order = false;
  int most_blocks = 0;
};
NcclChoice nccl_choice(const ParallelConfig& parallel);

// For GPUs NCCL; for simulated ones by way of the host; nullptr on a cpu. Waits for all ranks of
// the transport. `name` is of this job or attempt; what is borrowed must outlive the group. Throws
// InputError when NCCL is missing, CommError when a rank is.
std::unique_ptr<DeviceGroup> make_device_group(DeviceId device, Transport& transport, Store& store,
                                               const std::string& name, CommClock::duration timeout,
                                               const NcclChoice& nccl = {});

// The same for some of the ranks at a time. Empty on a cpu, and on GPUs without NCCL: then
// everything goes by way of the host.
DeviceGroupMaker make_device_groups(DeviceId device, Transport& transport, Store& store,
                                    const std::string& name, CommClock::duration timeout,
                                    const NcclChoice& nccl = {});

}  // namespace rondo
