#include "comm/nccl/nccl_comm.h"

#include <thread>

#include "kernels/base/gpu/cuda_check.h"

namespace rondo {
namespace {

// A call is mostly on its stream within tens of microseconds, less than a thread that sleeps takes
// to wake up; what takes longer waits for other ranks.
constexpr auto awake = std::chrono::microseconds(200);
constexpr auto between_polls = std::chrono::microseconds(20);
constexpr auto between_looks = std::chrono::milliseconds(20);

CommErrorKind kind_of(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
    case ncclSystemError:  // most of all, what the network says
      return CommErrorKind::peer_lost;
    default:
      return CommErrorKind::aborted;
  }
}

std::string message_of(const Nccl& nccl, ncclResult_t result, const char* what) {
  const char* last = nccl.get_last_error(nullptr);
  return str(what, ": ", nccl.get_error_string(result),
             last && *last ? str(" (", last, ")") : std::string());
}

}  // namespace

void check_nccl(const Nccl& nccl, ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw CommError(kind_of(result), -1, message_of(nccl, result, what));
}

CommError NcclComm::error(const char* what, ncclResult_t result) const {
  return {kind_of(result), -1, message_of(nccl_, result, what)};
}

NcclComm::NcclComm(const Nccl& nccl, Device& device, int rank, int size, const ncclUniqueId& id,
                   int most_blocks)
    : nccl_(nccl) {
  // The communicator belongs to the thread's current GPU.
  if (device.kind() == DeviceKind::cuda) CUDA_CHECK(cudaSetDevice(device.index()));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (most_blocks > 0) config.maxCTAs = most_blocks;
  check_nccl(nccl_, nccl_.comm_init_rank_config(&comm_, size, id, rank, &config),
             "ncclCommInitRankConfig");
}

void NcclComm::connect(Deadline deadline, const Look& look) {
  settle("NCCL's connection of the ranks", deadline, look);
}

NcclComm::~NcclComm() { abort(); }

ncclResult_t NcclComm::state() {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw CommError(CommErrorKind::aborted, -1, "NCCL's communicator was aborted");
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = nccl_.comm_get_async_error(comm_, &result);
  return asked == ncclSuccess ? result : asked;
}

void NcclComm::settle(const char* what, Deadline deadline, const Look& look) {
  const auto begin = CommClock::now();
  auto next_look = begin + between_looks;
  for (;;) {
    const ncclResult_t now = state();
    if (now == ncclSuccess) return;
    if (now != ncclInProgress) throw error(what, now);
    if (CommClock::now() >= deadline) {
      throw CommError(CommErrorKind::timeout, -1, str(what, ": timed out"));
    }
    if (look && CommClock::now() >= next_look) {
      look();
      next_look = CommClock::now() + between_looks;
    }
    if (CommClock::now() < begin + awake) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(between_polls);
    }
  }
}

void NcclComm::group(const std::function<void(const Nccl&, ncclComm_t)>& calls, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw CommError(CommErrorKind::aborted, -1, "NCCL's communicator was aborted");
    check_nccl(nccl_, nccl_.group_start(), "ncclGroupStart");
    try {
      calls(nccl_, comm_);
    } catch (...) {
      (void)
          nccl_.group_end();  // the thread must leave the group; the first error is the one to tell
      throw;
    }
    check_nccl(nccl_, nccl_.group_end(), "ncclGroupEnd");
  }
  settle("ncclGroupEnd", deadline, {});
}

void NcclComm::check() {
  const ncclResult_t now = state();
  if (now != ncclSuccess && now != ncclInProgress) throw error("NCCL", now);
}

void NcclComm::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_ || comm_ == nullptr) return;
    aborted_ = true;
  }
  (void)nccl_.comm_abort(comm_);  // there is nobody to tell that ending has failed
}

void NcclComm::close(Deadline deadline, const Look& look) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) return;
      check_nccl(nccl_, nccl_.comm_finalize(comm_), "ncclCommFinalize");
    }
    settle("ncclCommFinalize", deadline, look);
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    (void)nccl_.comm_destroy(comm_);
  } catch (const std::exception&) {
    abort();
  }
}

}  // namespace rondo
