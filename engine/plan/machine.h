// What devices and links cost: the rates of the planner's predictions.
//
// A node of a graph (NodeWork in engine/graph/work.h) takes a time for each launch, for each of the
// steps that wait for each other, for each operation, for each byte of its operands, and for each
// byte that its steps read again; the sum of the five. A message of S bytes takes latency + S /
// bandwidth, and keeps its link from the next one for at least a gap.
//
// Rates are measured (engine/plan/measure.h), or those of a data sheet; nothing that is predicted
// from these was measured.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/work.h"
#include "kernels/base/device.h"
#include "kernels/base/dtype.h"

namespace rondo::plan {

// Seconds per unit of each part of a node's work.
struct Rates {
  double launch = 0, step = 0, operation = 0, byte = 0, step_byte = 0;
  double seconds(const NodeWork& w) const {
    return launch * w.launches + step * w.steps + operation * w.operations + byte * w.bytes +
           step_byte * w.step_bytes;
  }
};

// What work is like, for ops that nobody measured: "loop", whose steps read the same again;
// "product", with operations but no steps; "other".
const char* class_of(const NodeWork& work);

struct DeviceModel {
  std::string name;
  bool measured = false;
  DeviceKind kind = DeviceKind::cpu;  // whose kernels' workspaces count
  double memory_bytes = 0;
  // CPU ranks share the cores of their machine with each other and with the threads that prepare
  // batches; 0: devices share nothing.
  int cores = 0;
  int threads = 1;  // of each rank
  // By the name of an op or of a class, with the dtype behind it: "linear/bf16", "other/f32".
  // Beside ops of graphs there are "load" (a batch, to where its graph reads it) and "optimizer".
  std::map<std::string, Rates> rates;

  // At the op's rates, else at those of its class, else at those of "other". Throws InputError when
  // there are none.
  double seconds(std::string_view op, DType dtype, const NodeWork& work) const;
  // To read or write so many arrays of so many weights.
  double pass_seconds(int64_t weights, int arrays) const;
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

// "h200". Throws InputError for other names.
DeviceModel device_preset(std::string_view name);
// "pcie", "nvlink", "infiniband", "infiniband8". Throws InputError naming those there are.
LinkModel link_preset(std::string_view name);

// A measured device and the link between its ranks, as JSON; a link alone is the same without the
// device. The parsers want every field and no other, and throw InputError with the name of the
// file, the line where it is no JSON or else the field, and what was expected. What is of rings and
// the gap may be left out.
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
