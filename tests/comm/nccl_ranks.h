// Ranks as threads, each with a group of the NCCL adapter on the simulated device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/nccl/nccl_group.h"
#include "tests/comm/nccl_stand_in.h"

namespace rondo::test {

struct NcclRun {
  std::function<void(NcclOptions&)> options = {};
  // Each rank's, in its thread.
  std::function<void(int rank, DeviceGroup& group)> body;
};

// What each rank failed with; "" where it did not. Kinds of CommErrors come first: "timeout: ...".
// Checks that NCCL's contract was kept, and that every communicator has ended.
std::vector<std::string> run_nccl_ranks(int ranks, const NcclRun& run,
                                        const StandInFaults& faults = {});

// What an operation of the body failed with.
std::string failure_of(Work work);

// Device memory of one rank; values are read and written when nothing is enqueued on it.
class Values {
 public:
  Values(DType dtype, int64_t count, const std::function<double(int64_t)>& value);
  TensorView view() const { return {memory_.data(), dtype_, {count_}}; }
  double operator[](int64_t i) const;
  int64_t count() const { return count_; }
  const std::byte* bytes() const { return memory_.as<std::byte>(); }

 private:
  DType dtype_;
  int64_t count_;
  Buffer memory_;
};

}  // namespace rondo::test
