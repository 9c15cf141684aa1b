#include "comm/nccl/nccl_comm.h"

#include <memory>
#include <optional>
#include <utility>

#include "kernels/base/cpu/thread.h"
#include "kernels/base/gpu/cuda_check.h"

namespace rondo {
namespace {

constexpr auto between_looks = std::chrono::milliseconds(20);
// A call that waits for nobody has left NCCL by then.
constexpr auto patience_with_calls = std::chrono::seconds(1);

CommErrorKind kind_of(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
    case ncclSystemError:  // most of all, what the network says
      return CommErrorKind::peer_lost;
    default:
      return CommErrorKind::aborted;
  }
}

CommError error_of(const Nccl& nccl, ncclResult_t result, const char* what) {
  const char* const last = nccl.get_last_error(nullptr);
  return {kind_of(result), -1,
          str(what, ": ", nccl.get_error_string(result),
              last && *last ? str(" (", last, ")") : std::string())};
}

CommError aborted_error() {
  return {CommErrorKind::aborted, -1, "NCCL's communicator was aborted"};
}

// A call of NCCL's that waits for other ranks, in a thread of its own. The thread outlives this
// when the others do not come, so `call` owns what it uses.
class CallBeside {
 public:
  // `call` throws what goes wrong.
  explicit CallBeside(std::function<void()> call) {
    start_thread("a thread that waits in NCCL", [call = std::move(call), s = state_] {
      std::optional<CommError> error;
      try {
        call();
      } catch (const CommError& e) {
        error = e;
      } catch (const std::exception& e) {
        error.emplace(CommErrorKind::aborted, -1, e.what());
      }
      {
        const std::lock_guard lock(s->mutex);
        s->error = error;
        s->done = true;
      }
      s->changed.notify_all();
    }).detach();
  }

  // Throws what the call threw, what `look` throws, and a time-out at the deadline.
  void wait(const char* what, Deadline deadline, const NcclComm::Look& look) {
    std::unique_lock lock(state_->mutex);
    while (!state_->changed.wait_for(lock, between_looks, [this] { return state_->done; })) {
      lock.unlock();
      if (look) look();
      if (CommClock::now() >= deadline) {
        throw CommError(CommErrorKind::timeout, -1, str(what, ": timed out"));
      }
      lock.lock();
    }
    if (state_->error) throw CommError(*state_->error);
  }

 private:
  struct State {
    std::mutex mutex;
    ConditionVariable changed;
    bool done = false;
    std::optional<CommError> error;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Where a thread that connects leaves the communicator: whoever comes second ends one that nobody
// wants any more.
struct Connection {
  std::mutex mutex;
  ncclComm_t comm = nullptr;
  bool unwanted = false;

  void made(const Nccl& nccl, ncclComm_t made) {
    {
      const std::lock_guard lock(mutex);
      comm = made;
      if (!unwanted) return;
    }
    (void)nccl.comm_abort(made);  // there is nobody to tell that ending has failed
  }
  void give_up(const Nccl& nccl) {
    {
      const std::lock_guard lock(mutex);
      unwanted = true;
      if (comm == nullptr) return;
    }
    (void)nccl.comm_abort(comm);
  }
};

}  // namespace

void check_nccl(const Nccl& nccl, ncclResult_t result, const char* what) {
  if (result != ncclSuccess) throw error_of(nccl, result, what);
}

NcclComm::NcclComm(const Nccl& nccl, Device& device, int rank, int size, const ncclUniqueId& id,
                   int most_blocks, Deadline deadline, const Look& look)
    : nccl_(nccl) {
  const auto connection = std::make_shared<Connection>();
  CallBeside call([connection, &nccl, id, rank, size, most_blocks,
                   gpu = device.kind() == DeviceKind::cuda ? device.index() : -1] {
    // The communicator belongs to the thread's current GPU.
    if (gpu >= 0) CUDA_CHECK(cudaSetDevice(gpu));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (most_blocks > 0) config.maxCTAs = most_blocks;
    ncclComm_t made = nullptr;
    check_nccl(nccl, nccl.comm_init_rank_config(&made, size, id, rank, &config),
               "ncclCommInitRankConfig");
    connection->made(nccl, made);
  });
  try {
    call.wait("NCCL's connection of the ranks", deadline, look);
  } catch (...) {
    connection->give_up(nccl);
    throw;
  }
  comm_ = connection->comm;
}

NcclComm::~NcclComm() { abort(); }

// A stay in NCCL, which abort() waits for a little.
class NcclComm::Call {
 public:
  explicit Call(NcclComm& comm) : comm_(comm) {
    const std::lock_guard lock(comm_.mutex_);
    if (comm_.aborted_) throw aborted_error();
    ++comm_.calls_;
  }
  ~Call() {
    {
      const std::lock_guard lock(comm_.mutex_);
      --comm_.calls_;
    }
    comm_.left_.notify_all();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  NcclComm& comm_;
};

void NcclComm::group(const std::function<void(const Nccl&, ncclComm_t)>& calls) {
  const Call call(*this);
  check_nccl(nccl_, nccl_.group_start(), "ncclGroupStart");
  try {
    calls(nccl_, comm_);
  } catch (...) {
    (void)nccl_.group_end();  // the thread must leave the group; the first error is the one to tell
    throw;
  }
  check_nccl(nccl_, nccl_.group_end(), "ncclGroupEnd");
}

void NcclComm::check() {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw aborted_error();
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.comm_get_async_error(comm_, &state);
  const ncclResult_t result = asked == ncclSuccess ? state : asked;
  if (result != ncclSuccess && result != ncclInProgress) throw error_of(nccl_, result, "NCCL");
}

void NcclComm::abort() noexcept {
  {
    std::unique_lock lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    // A call that is about to enter or leave NCCL must not find the communicator gone. What has not
    // left by then waits for other ranks, and aborting is what ends that.
    left_.wait_for(lock, patience_with_calls, [this] { return calls_ == 0; });
  }
  (void)nccl_.comm_abort(comm_);  // there is nobody to tell that ending has failed
}

void NcclComm::close(Deadline deadline, const Look& look) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) return;
    }
    CallBeside call([&nccl = nccl_, comm = comm_] {
      check_nccl(nccl, nccl.comm_finalize(comm), "ncclCommFinalize");
      check_nccl(nccl, nccl.comm_destroy(comm), "ncclCommDestroy");
    });
    call.wait("ncclCommFinalize", deadline, look);
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  } catch (const std::exception&) {
    abort();
  }
}

}  // namespace rondo
