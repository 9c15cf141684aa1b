// DeviceGroup: a ProcessGroup for memory of a device.
//
// Operations are enqueued on stream() in the order of the calls, which return when they are; the
// host does not wait for the transfers. Events order them with other streams:
//
//   ready.record(compute);  ready.wait(group.stream());   // what is sent has been written
//   Work work = group.all_reduce(gradients, Reduction::sum);
//   done.record(group.stream());  done.wait(compute);     // before anybody reads the sums
//
// The Work tells the host how it went, soon after the stream has passed. When an operation fails,
// the stream goes on with garbage in its memory: look at the Work before a result leaves the
// device.
//
// Memory is the device's, spans of send and recv included. send and recv are ordered with the
// collectives. Otherwise as ProcessGroup says.
#pragma once

#include <functional>

#include "comm/group/process_group.h"
#include "kernels/base/device.h"

namespace rondo {

class DeviceGroup : public ProcessGroup {
 public:
  virtual Device& device() = 0;
  virtual Stream& stream() = 0;
  // Whether an operation that waits for another rank occupies a part of the device meanwhile, so
  // that a kernel that needs all of it at once waits as well. Such operations are to be enqueued in
  // an order in which nothing that comes before an operation waits for what comes after it.
  virtual bool holds_device() const { return true; }
};

// Makes a group of devices of these ranks of the world, in this order; called by all of them, which
// wait for one another. `id` tells apart groups that have a rank in common.
using DeviceGroupMaker =
    std::function<std::unique_ptr<DeviceGroup>(const std::vector<int>& members, uint16_t id)>;

// The kernels a ring of a device needs; this layer has none of its own. Both enqueue and return.
// Views have equal shapes and are f32 or bf16 each.
struct DeviceArithmetic {
  // y = y + x, added in f32, rounded once.
  std::function<void(Stream&, const TensorView& x, const TensorView& y)> accumulate;
  // y = x, rounded to nearest, ties to even.
  std::function<void(Stream&, const TensorView& x, const TensorView& y)> cast;
};

}  // namespace rondo
