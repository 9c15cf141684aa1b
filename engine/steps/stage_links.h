// Connections between the devices of neighbouring ranks of a pipeline.
//
// Each pair of neighbours has two, one per direction, and each of these is a DeviceGroup of the two
// with a stream of its own. So a rank can send up, send down and receive from both at the same time
// (operations of one NCCL communicator run one after the other, whatever their streams). What goes
// over one connection is matched in the order of the calls: a schedule lists the messages between
// two ranks in the same order on both, because it is cut from one order of the whole world.
//
// All ranks of the pipeline make the object together; it exchanges a message over each connection,
// because NCCL connects two ranks at the first one, waiting for both, which in the middle of a step
// could be for ever. One thread at a time. Throws CommError when a rank is gone or late.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/group/device_group.h"

namespace rondo {

class StageLinks {
 public:
  // `members`: ranks of the world, by stage, of which this one is `rank`. Groups have the ids from
  // `first_id` on. The maker is called here only.
  StageLinks(const DeviceGroupMaker& make, const std::vector<int>& members, int rank,
             uint16_t first_id);
  // Both ends of a connection end it together, so all ranks call this together too.
  ~StageLinks();
  StageLinks(const StageLinks&) = delete;
  StageLinks& operator=(const StageLinks&) = delete;

  // From this rank to a neighbour, and from a neighbour to this one. The sender is rank 0.
  DeviceGroup& to(int peer) const { return *to_.at(peer); }
  DeviceGroup& from(int peer) const { return *from_.at(peer); }
  std::vector<int> neighbours() const;
  bool hold_device() const;
  void abort(const std::string& reason) noexcept;

 private:
  std::vector<std::unique_ptr<DeviceGroup>> links_;  // in the order in which all make and end them
  std::map<int, DeviceGroup*> to_, from_;            // by neighbour
};

}  // namespace rondo
