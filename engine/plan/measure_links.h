// Measures what messages between ranks cost, for the planner.
#pragma once

#include <span>
#include <vector>

#include "comm/group/device_group.h"
#include "engine/plan/machine.h"

namespace rondo::plan {

// So many bytes, from one rank to the next and back (`seconds` is one way), in each of many
// messages at once (seconds for each further one), or summed over all ranks in one ring. Medians of
// several.
struct LinkTime {
  enum Kind : uint8_t { message, burst, ring } kind = message;
  size_t bytes = 0;
  double seconds = 0;
};

// What a link of these constants would take (LinkModel::gap for a message of a burst). A ring of N
// ranks is 2(N - 1) steps of bytes / N, one after the other.
double seconds_of(const LinkModel& link, LinkTime::Kind kind, int ranks, double bytes);

// The constants, non-negative, that fit the times best (engine/plan/fit.h): those of
// messages, and those of rings; without messages both are the rings'.
LinkModel fit_link(std::span<const LinkTime> times, int ranks);

// Collective; the figures are rank 0's, the same on all ranks. Takes about a second. Throws
// CommError when a rank is gone or late.
std::vector<LinkTime> measure_links(ProcessGroup& group);
// Rings alone, of the memory of a device. `control` is of the same ranks.
std::vector<LinkTime> measure_links(DeviceGroup& sums, ProcessGroup& control);

// Between two ranks as threads of this process.
LinkModel measure_thread_link();

}  // namespace rondo::plan
