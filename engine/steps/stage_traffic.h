// What carries messages between the stages of a pipeline: by way of host memory over a process
// group, or from device to device over groups of devices.
//
// A message is what one stage produces and a neighbour reads of one micro-batch: one activation up
// or one gradient down, for a chain of layers. All calls are made in the order of the schedule's
// actions, but for expect(), which may come earlier by look_ahead() messages. None waits for the
// device, but what goes by way of the host waits for what it reads. One thread at a time. Throws
// CommError when a rank is gone or late.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/group/process_group.h"
#include "engine/graph/bound_graph.h"
#include "engine/steps/run_timeline.h"
#include "engine/steps/stage_links.h"

namespace rondo {

struct StageMessage {
  Action action;  // the send or recv, or the computation that reads it
  const Graph* graph = nullptr;
  std::span<const ValueId> values;
  const PackedHost* layout = nullptr;  // of the micro-batch
  uint32_t tag = 0;                    // no other message of the run has it
};

class StageTraffic {
 public:
  virtual ~StageTraffic() = default;

  // So many messages may have been expected and not been taken.
  virtual int look_ahead() const = 0;
  // Memory for `arrivals` messages at a time that have been expected and not yet taken; called when
  // nothing is on its way.
  struct Most {
    size_t arrivals = 0;
    size_t bytes = 0;  // of a message
  };
  virtual void reserve(const Most& most) = 0;
  // Bytes of the longest message of these values.
  virtual size_t most_bytes(const Graph& graph, const BatchCapacity& capacity,
                            std::span<const ValueId> values) const = 0;
  // The bytes that this takes of the device's memory.
  virtual size_t memory_bytes() const = 0;

  virtual void begin_run() = 0;
  virtual void expect(const StageMessage& message) = 0;
  // What was expected, into the graph's values. Returns when, or queued after, it has arrived.
  virtual void take(const StageMessage& message, BoundGraph& bound) = 0;
  virtual bool expects(const StageMessage& message) const = 0;
  virtual void send(const StageMessage& message, const BoundGraph& bound) = 0;
  // A message may have left by now.
  virtual void advance() = 0;
  // Waits until everything has left, and arrived.
  virtual void end_run() = 0;
  // In place of end_run(): the ranks that wait for this one shall stop. Waits for the device.
  virtual void abort(const std::string& reason) noexcept = 0;
};

struct TrafficOptions {
  Wire wire = Wire::exact;
  CommClock::duration timeout{};  // of each message
  int look_ahead = 0;
};

// All arguments are borrowed.
std::unique_ptr<StageTraffic> make_host_traffic(ProcessGroup& group, const TrafficOptions& options,
                                                RunTimeline& timeline);
// `group` is of the same ranks, and tells of those that are lost. `links`: nullptr for a single
// rank.
std::unique_ptr<StageTraffic> make_device_traffic(const Context& context, ProcessGroup& group,
                                                  StageLinks* links, const TrafficOptions& options,
                                                  RunTimeline& timeline);

}  // namespace rondo
