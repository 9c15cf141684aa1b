// What devices and links cost: the constants of the planner's predictions.
//
// A node of a graph takes
//   call + step * steps + exchange * steps * hidden + flop * flops + recurrent_flop * recurrent
//        flops + byte * bytes + cell * cells + weight_byte * weight bytes + far_weight_byte * far
//        weight bytes
// seconds, with constants per op and dtype: a launch, a time step of a recurrence, handing H values
// per step between blocks, arithmetic outside and inside the time loop, memory traffic, pointwise
// work, recurrent weights read for every step, and the same where a core's cache does not hold them
// (NodeWork in engine/graph/work.h). A message of S bytes takes latency + S / bandwidth, and keeps
// its link from the next one for at least a gap.
//
// Constants come from measuring this machine (engine/plan/machine/measure.h) or from presets.
// Presets are derived from data sheets and published measurements; nothing predicted from them was
// measured.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/dtype.h"

namespace rondo::plan {

// Seconds per unit of each feature of a node's work.
struct OpCost {
  double call = 0, step = 0, exchange = 0, flop = 0, recurrent_flop = 0, byte = 0;
  double cell = 0, weight_byte = 0, far_weight_byte = 0;
};

struct DeviceModel {
  std::string name;
  bool measured = false;
  DeviceKind kind = DeviceKind::cpu;  // whose kernels' workspaces count
  double memory_bytes = 0;
  // CPU ranks share the cores of their machine with each other and with the threads that prepare
  // batches; 0: devices share nothing.
  int cores = 0;
  int threads = 1;         // of each rank
  double cache_bytes = 0;  // of a core, for recurrent weights
  // A GPU's multiprocessors are divided among time loops that keep theirs from the first step to
  // the last and the kernels of NCCL's sums: of these by NCCL's own choice so many, and fewer sum
  // at this bandwidth each. 0: sums run beside whatever is computed.
  int multiprocessors = 0, sum_blocks = 0;
  double sum_block_bandwidth = 0;
  // By op of engine/ops, or "other", with the dtype behind it: "lstm/bf16".
  std::map<std::string, OpCost> costs;

  // The entry of an op, or that of "other". Throws InputError when the model has neither.
  const OpCost& cost_of(std::string_view op, DType dtype) const;
};

struct LinkModel {
  std::string name;
  bool measured = false;
  double latency = 0;    // seconds until the first byte is there, of a message by itself
  double bandwidth = 0;  // bytes per second and direction
  // A step of a ring that sums or gathers over all ranks at once takes these where it was measured
  // apart (a bandwidth above 0); otherwise such a step is a message like others.
  double ring_latency = 0, ring_bandwidth = 0;
  // Seconds between the beginnings of two short messages in the same direction at least: what each
  // costs that follows or accompanies another one (the gap of LogP: D. Culler et al., 1993).
  double gap = 0;
  double seconds(double bytes) const { return latency + bytes / bandwidth; }
  // How long a message keeps the next one waiting.
  double busy(double bytes) const { return std::max(gap, bytes / bandwidth); }
  LinkModel in_ring() const {
    if (ring_bandwidth == 0) return *this;
    return {name, measured, ring_latency, ring_bandwidth, 0, 0, gap};
  }
};

// Devices in nodes: `link` between devices of a node, `node_link` shared by all devices of a node
// towards the others.
struct Cluster {
  DeviceModel device;
  LinkModel link, node_link;
  int devices = 1;
  int per_node = 8;
};

// "h200". Throws InputError naming the presets there are.
DeviceModel device_preset(std::string_view name);
std::vector<std::string> device_preset_names();
// "pcie", "nvlink", "infiniband". The same.
LinkModel link_preset(std::string_view name);
std::vector<std::string> link_preset_names();

// A measured device and the link between its ranks, as JSON; a link alone is the same without the
// device. The parsers want every field and no other, and throw InputError with the name of the
// file, the line where it is no JSON or else the field, and what was expected. The constants of
// rings may be left out.
struct MachineFile {
  DeviceModel device;
  LinkModel link;
};
std::string to_json(const MachineFile& machine);
std::string to_json(const LinkModel& link);
MachineFile parse_machine(std::string_view json, const std::string& name);
// A file with a device gives that device's link.
LinkModel parse_link(std::string_view json, const std::string& name);

}  // namespace rondo::plan
