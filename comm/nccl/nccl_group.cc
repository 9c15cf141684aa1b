#include "comm/nccl/nccl_group.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "comm/group/stream_group.h"
#include "comm/nccl/nccl_ring.h"
#include "comm/nccl/notices.h"
#include "kernels/base/cpu/thread.h"
#include "kernels/base/gpu/cuda_check.h"

namespace rondo {
namespace {

// How long a rank waits for the others to tell where they stand, and to leave together with it.
constexpr auto patience_with_standing = std::chrono::milliseconds(500);
constexpr auto patience_with_leaving = std::chrono::seconds(10);
constexpr auto between_meetings = std::chrono::milliseconds(5);

ncclDataType_t type_of(DType t) {
  switch (t) {
    case DType::bf16:
      return ncclBfloat16;
    case DType::f64:
      return ncclFloat64;
    default:
      return ncclFloat32;
  }
}

ncclUniqueId exchange_id(const NcclOptions& o, Deadline deadline) {
  ncclUniqueId id;
  const std::string key = o.name + "/id";
  if (o.rank == 0) {
    check_nccl(*o.nccl, o.nccl->get_unique_id(&id), "ncclGetUniqueId");
    o.store->set(key, {id.internal, sizeof id.internal}, deadline);
  } else {
    const std::string text = o.store->get(key, deadline);
    RONDO_CHECK(text.size() == sizeof id.internal, key, " has ", text.size(), " bytes");
    std::memcpy(id.internal, text.data(), text.size());
  }
  return id;
}

class Group final : public StreamGroup {
 public:
  explicit Group(const NcclOptions& o)
      : StreamGroup(*o.device, o.rank, o.world_size, o.timeout),
        options_(o),
        notices_(*o.store, o.name, o.rank, o.world_size),
        flag_(device(), sizeof(int32_t), "barrier") {
    connect();
    ring_.emplace(*comm_, device(), stream(), options_.arithmetic, rank(), size(),
                  options_.message_bytes);
    start();
  }
  ~Group() override {
    const bool well = stop();
    leave();
    if (well) {
      comm_->close(within(std::min<CommClock::duration>(options_.timeout, patience_with_leaving)),
                   [this] { look_for_reason(); });
    }
    if (aborter_.joinable()) aborter_.join();
    if (watchdog_.joinable()) watchdog_.join();
  }

  Work all_reduce(const TensorView& data, Reduction op, Limit deadline) override;
  Work reduce_scatter(const TensorView& data, Reduction op, Limit deadline) override;
  Work all_gather(const TensorView& data, Limit deadline) override;
  Work broadcast(const TensorView& data, int root, Limit deadline) override;
  Work barrier(Limit deadline) override;
  Work send(int peer, uint32_t tag, std::span<const std::byte> data, Limit deadline) override;
  Work recv(int peer, uint32_t tag, std::span<std::byte> data, Limit deadline) override;
  Work exchange(std::span<const NcclMessage> sends, std::span<const NcclMessage> recvs,
                Limit deadline);

 private:
  void connect();
  void meet(Deadline deadline);
  std::string here(int rank) const { return str(options_.name, "/here/", rank); }
  void leave() noexcept;
  void look_for_reason();
  std::string absent_ranks();
  std::string describe_sum(const char* name, const TensorView& data, Reduction op) const;
  // Whether each rank's chunk of n elements is one that NCCL's own collectives take.
  bool by_nccl(int64_t n) const {
    return options_.algorithm == NcclAlgorithm::nccl && n % size() == 0;
  }
  using Calls = std::function<void(const Nccl&, ncclComm_t, cudaStream_t)>;
  Enqueued own_collective(const Calls& calls);
  Enqueued nccl_all_reduce(const TensorView& data);
  static Enqueued sent(size_t bytes) {
    return {[bytes] { return Outcome{bytes}; }};
  }

  void break_off(const CommError& why, bool tell) noexcept override;
  void look_at_peers() override;
  CommError explain(const CommError& timeout) override;
  void tell_others(const std::string& reason) noexcept override;
  void tell_standing();
  void abort_now() noexcept;
  void watch_abort(const std::string& why);

  const NcclOptions options_;
  Notices notices_;
  std::vector<Notices::Left> left_;
  Buffer flag_;
  std::optional<NcclComm> comm_;
  std::optional<NcclRing> ring_;
  Thread aborter_, watchdog_;
  std::mutex abort_mutex_;
  ConditionVariable abort_ended_;
  bool aborting_ = true;
};

void Group::connect() {
  const Deadline deadline = within(options_.timeout);
  try {
    meet(deadline);
    const ncclUniqueId id = exchange_id(options_, deadline);
    comm_.emplace(*options_.nccl, device(), rank(), size(), id, options_.most_blocks, deadline,
                  [this] { look_for_reason(); });
  } catch (const CommError& e) {
    const std::string absent = e.kind() == CommErrorKind::timeout ? absent_ranks() : "";
    const CommError error(e.kind(), e.peer(),
                          str("rank ", rank(), ": connecting by NCCL: ", e.what(), absent));
    if (e.kind() != CommErrorKind::aborted || e.peer() < 0) tell_others(error.what());
    throw error;
  }
}

// All are there: NCCL knows no end of waiting for a rank that never comes.
void Group::meet(Deadline deadline) {
  options_.store->set(here(rank()), "", deadline);
  for (int r = 0; r < size(); ++r) {
    while (!options_.store->try_get(here(r), deadline)) {
      look_for_reason();
      if (CommClock::now() >= deadline) {
        throw CommError(CommErrorKind::timeout, -1, "ranks do not come: timed out");
      }
      std::this_thread::sleep_for(between_meetings);
    }
  }
}

std::string Group::absent_ranks() {
  std::string absent;
  try {
    for (int r = 0; r < size(); ++r) {
      if (!options_.store->try_get(here(r), within(std::chrono::seconds(1)))) {
        absent += str(absent.empty() ? "; not there: rank " : ", ", r);
      }
    }
  } catch (const CommError&) {  // the time-out is the error to tell
  }
  return absent;
}

void Group::leave() noexcept {
  try {
    notices_.leave(place().completed);
  } catch (const std::exception&) {  // the store has gone: so have the others, or they will see
  }
}

void Group::look_for_reason() {
  if (!notices_.news()) return;
  if (const auto reason = notices_.aborted()) throw *reason;
}

void Group::break_off(const CommError& why, bool tell) noexcept {
  if (tell) tell_others(why.what());
  // In a thread of its own: NCCL may wait for the other ranks to abort too.
  try {
    watch_abort(why.what());
    aborter_ = start_thread("the thread that ends NCCL", [this] { abort_now(); });
  } catch (const std::exception&) {  // this one waits then
    abort_now();
  }
}

void Group::abort_now() noexcept {
  comm_->abort();
  {
    const std::lock_guard lock(abort_mutex_);
    aborting_ = false;
  }
  abort_ended_.notify_all();
}

void Group::watch_abort(const std::string& why) {
  if (!options_.hung) return;
  watchdog_ = start_thread("the thread that watches NCCL's end", [this, why] {
    std::unique_lock lock(abort_mutex_);
    if (abort_ended_.wait_for(lock, options_.abort_timeout, [this] { return !aborting_; })) return;
    lock.unlock();
    options_.hung(why);
  });
}

void Group::tell_others(const std::string& reason) noexcept {
  try {
    notices_.abort(reason);
  } catch (const std::exception&) {  // without a store they find out by their deadlines
  }
}

void Group::tell_standing() {
  const Place p = place();
  notices_.publish_standing({p.issued, p.waiting ? int64_t{p.number} : -1, p.what});
}

void Group::look_at_peers() {
  comm_->check();
  const Place p = place();
  try {
    if (notices_.news()) {
      if (notices_.standing_asked()) tell_standing();
      if (const auto reason = notices_.aborted()) throw *reason;
      left_ = notices_.left();
    }
    if (!p.waiting) return;
    for (const Notices::Left& left : left_) {
      if (left.collectives > p.number) continue;
      throw CommError(CommErrorKind::peer_lost, left.rank,
                      str("rank ", left.rank, " is lost: it has finished"));
    }
  } catch (const CommError& e) {
    // A store that is gone matters to those who wait.
    if (p.waiting || e.kind() == CommErrorKind::aborted) throw;
  }
}

CommError Group::explain(const CommError& timeout) {
  const Place own = place();
  try {
    tell_standing();
    notices_.ask_standing();
    std::vector<std::optional<Notices::Standing>> all(static_cast<size_t>(size()));
    const Deadline patience = within(patience_with_standing);
    const auto missing = [&] { return std::count(all.begin(), all.end(), std::nullopt) > 0; };
    while (missing() && CommClock::now() < patience) {
      std::this_thread::sleep_for(look_interval / 5);
      for (int r = 0; r < size(); ++r) {
        auto& standing = all[static_cast<size_t>(r)];
        if (!standing) standing = notices_.standing_of(r);
      }
    }
    if (const auto reason = notices_.aborted()) return *reason;
    for (int r = 0; r < size(); ++r) {
      const auto& s = all[static_cast<size_t>(r)];
      if (r == rank()) continue;
      if (!s) {
        return {timeout.kind(), r, str(timeout.what(), "; rank ", r, " does not answer")};
      }
      if (s->number == own.number && s->what != own.what) {
        return {CommErrorKind::mismatch, r,
                str("ranks disagree on collective ", own.number, ": rank ", r, " calls ", s->what,
                    ", rank ", rank(), " calls ", own.what)};
      }
      if (s->issued <= own.number) {
        return {timeout.kind(), r,
                str(timeout.what(), "; rank ", r, " has issued ", s->issued, " collectives, rank ",
                    rank(), " ", own.issued)};
      }
    }
  } catch (const CommError&) {  // the time-out is the error to tell
  }
  return timeout;
}

std::string Group::describe_sum(const char* name, const TensorView& data, Reduction op) const {
  RONDO_CHECK(op == Reduction::sum, "only sums");
  const bool ours = options_.algorithm == NcclAlgorithm::ring;
  RONDO_CHECK(
      data.dtype == DType::f32 || data.dtype == DType::bf16 || (data.dtype == DType::f64 && !ours),
      name, " of ", name_of(data.dtype), ", expected f32 or bf16");
  const bool rounded = ours && options_.wire == Wire::bf16 && data.dtype == DType::f32;
  return str(name, " of ", data.numel(), " ", name_of(data.dtype), rounded ? " as bf16" : "");
}

StreamGroup::Enqueued Group::own_collective(const Calls& calls) {
  comm_->group([&](const Nccl& nccl, ncclComm_t comm) {
    calls(nccl, comm, static_cast<cudaStream_t>(stream().native()));
  });
  return sent(0);  // NCCL does not say
}

StreamGroup::Enqueued Group::nccl_all_reduce(const TensorView& data) {
  return own_collective([&](const Nccl& nccl, ncclComm_t comm, cudaStream_t stream) {
    check_nccl(nccl,
               nccl.all_reduce(data.data, data.data, static_cast<size_t>(data.numel()),
                               type_of(data.dtype), ncclSum, comm, stream),
               "ncclAllReduce");
  });
}

Work Group::all_reduce(const TensorView& data, Reduction op, Limit deadline) {
  const std::string what = describe_sum("all_reduce", data, op);
  return issue(what, Kind::collective, limit(deadline), [&] {
    if (data.numel() == 0) return sent(0);
    if (options_.algorithm == NcclAlgorithm::ring) {
      return sent(ring_->all_reduce(data, options_.wire));
    }
    return nccl_all_reduce(data);
  });
}

Work Group::reduce_scatter(const TensorView& data, Reduction op, Limit deadline) {
  const std::string what = describe_sum("reduce_scatter", data, op);
  return issue(what, Kind::collective, limit(deadline), [&] {
    if (data.numel() == 0) return sent(0);
    if (options_.algorithm == NcclAlgorithm::ring) {
      return sent(ring_->reduce_scatter(data, options_.wire));
    }
    // NCCL knows equal chunks alone; the other chunks may hold anything afterwards, sums too.
    if (!by_nccl(data.numel())) return nccl_all_reduce(data);
    const size_t chunk = static_cast<size_t>(data.numel() / size());
    auto* const own = static_cast<std::byte*>(data.data) +
                      chunk * static_cast<size_t>(rank()) * size_of(data.dtype);
    return own_collective([&](const Nccl& nccl, ncclComm_t comm, cudaStream_t stream) {
      check_nccl(
          nccl,
          nccl.reduce_scatter(data.data, own, chunk, type_of(data.dtype), ncclSum, comm, stream),
          "ncclReduceScatter");
    });
  });
}

Work Group::all_gather(const TensorView& data, Limit deadline) {
  const std::string what = str("all_gather of ", data.numel(), " ", name_of(data.dtype));
  return issue(what, Kind::collective, limit(deadline), [&] {
    if (data.numel() == 0) return sent(0);
    if (!by_nccl(data.numel())) return sent(ring_->all_gather(data));
    const size_t chunk = data.bytes() / static_cast<size_t>(size());
    const auto* const own =
        static_cast<const std::byte*>(data.data) + chunk * static_cast<size_t>(rank());
    return own_collective([&](const Nccl& nccl, ncclComm_t comm, cudaStream_t stream) {
      check_nccl(nccl, nccl.all_gather(own, data.data, chunk, ncclUint8, comm, stream),
                 "ncclAllGather");
    });
  });
}

Work Group::broadcast(const TensorView& data, int root, Limit deadline) {
  RONDO_CHECK(root >= 0 && root < size(), "root ", root, " of a group of ", size());
  const std::string what =
      str("broadcast of ", data.numel(), " ", name_of(data.dtype), " from ", root);
  return issue(what, Kind::collective, limit(deadline), [&] {
    if (data.numel() == 0) return sent(0);
    return own_collective([&](const Nccl& nccl, ncclComm_t comm, cudaStream_t stream) {
      check_nccl(nccl,
                 nccl.broadcast(data.data, data.data, data.bytes(), ncclUint8, root, comm, stream),
                 "ncclBroadcast");
    });
  });
}

Work Group::barrier(Limit deadline) {
  return issue("barrier", Kind::collective, limit(deadline), [&] {
    device().fill_bytes(stream(), flag_.data(), 0, flag_.bytes());
    return own_collective([&](const Nccl& nccl, ncclComm_t comm, cudaStream_t stream) {
      check_nccl(nccl,
                 nccl.all_reduce(flag_.data(), flag_.data(), 1, ncclInt32, ncclSum, comm, stream),
                 "ncclAllReduce");
    });
  });
}

Work Group::exchange(std::span<const NcclMessage> sends, std::span<const NcclMessage> recvs,
                     Limit deadline) {
  size_t bytes = 0;
  for (const NcclMessage& m : sends) {
    check_peer(m.peer);
    bytes += m.data.size();
  }
  for (const NcclMessage& m : recvs) check_peer(m.peer);
  const std::string what = str("exchange of ", sends.size() + recvs.size(), " messages");
  return issue(what, Kind::message, limit(deadline), [&] {
    own_collective([&](const Nccl& nccl, ncclComm_t comm, cudaStream_t stream) {
      for (const NcclMessage& m : sends) {
        check_nccl(nccl, nccl.send(m.data.data(), m.data.size(), ncclUint8, m.peer, comm, stream),
                   "ncclSend");
      }
      for (const NcclMessage& m : recvs) {
        check_nccl(nccl, nccl.recv(m.data.data(), m.data.size(), ncclUint8, m.peer, comm, stream),
                   "ncclRecv");
      }
    });
    return sent(bytes);
  });
}

Work Group::send(int peer, uint32_t, std::span<const std::byte> data, Limit deadline) {
  // Only read.
  const NcclMessage message{peer, {const_cast<std::byte*>(data.data()), data.size()}};
  return exchange({&message, 1}, {}, deadline);
}

Work Group::recv(int peer, uint32_t, std::span<std::byte> data, Limit deadline) {
  const NcclMessage message{peer, data};
  return exchange({}, {&message, 1}, deadline);
}

}  // namespace

std::unique_ptr<DeviceGroup> make_nccl_group(const NcclOptions& options) {
  RONDO_CHECK(options.nccl != nullptr && options.device != nullptr && options.store != nullptr,
              "a group needs NCCL, a device and a store");
  return std::make_unique<Group>(options);
}

Work nccl_exchange(DeviceGroup& group, std::span<const NcclMessage> sends,
                   std::span<const NcclMessage> recvs, ProcessGroup::Limit deadline) {
  auto* const nccl = dynamic_cast<Group*>(&group);
  RONDO_CHECK(nccl != nullptr, "this group is not NCCL's");
  return nccl->exchange(sends, recvs, deadline);
}

}  // namespace rondo
