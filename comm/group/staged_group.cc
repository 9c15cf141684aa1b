#include "comm/group/staged_group.h"

#include <algorithm>
#include <utility>

#include "comm/group/stream_group.h"
#include "comm/work_state.h"

namespace rondo {
namespace {

// The host's part of an operation: begun by the stream when the data have arrived, polled by it
// until it is done, cancelled by the group's thread.
class HostStep {
 public:
  explicit HostStep(std::function<Work()> begin) : begin_(std::move(begin)) {}

  void begin() {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return;
    try {
      work_ = begin_();
    } catch (const std::exception& e) {
      failure_ = e.what();
    }
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return !work_ || work_.shared_state()->done();
  }
  // Once done.
  std::optional<CommError> error() const {
    if (work_) return work_.error();
    return CommError(CommErrorKind::aborted, -1, failure_);
  }
  size_t bytes() const { return work_ ? work_.bytes() : 0; }

  // Without the lock, which the stream's thread may hold while it polls.
  void cancel() {
    std::shared_ptr<detail::WorkState> state;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      if (work_) state = work_.shared_state();
    }
    if (state && !state->done()) state->withdraw(CommErrorKind::aborted, "withdrawn");
  }

 private:
  const std::function<Work()> begin_;
  std::mutex mutex_;
  Work work_;
  bool cancelled_ = false;
  std::string failure_ = "withdrawn before it was begun";
};

enum class Copies : uint8_t { both, there, back };

class StagedGroup final : public StreamGroup {
 public:
  StagedGroup(Device& device, std::unique_ptr<ProcessGroup> host, CommClock::duration timeout)
      : StreamGroup(device, host->rank(), host->size(), timeout), host_(std::move(host)) {
    start();
  }
  ~StagedGroup() override { stop(); }
  // Simulated devices do something else meanwhile.
  bool holds_device() const override { return false; }

  Work all_reduce(const TensorView& data, Reduction op, Limit limit) override {
    RONDO_CHECK(data.dtype == DType::f32 || data.dtype == DType::f64, "all_reduce of ",
                name_of(data.dtype), " by way of the host, expected f32 or f64");
    return staged(
        "all_reduce", Kind::collective, data, Copies::both, limit,
        [this, op](const TensorView& v, Deadline d) { return host_->all_reduce(v, op, d); });
  }
  Work reduce_scatter(const TensorView& data, Reduction op, Limit limit) override {
    RONDO_CHECK(data.dtype == DType::f32 || data.dtype == DType::f64, "reduce_scatter of ",
                name_of(data.dtype), " by way of the host, expected f32 or f64");
    return staged(
        "reduce_scatter", Kind::collective, data, Copies::both, limit,
        [this, op](const TensorView& v, Deadline d) { return host_->reduce_scatter(v, op, d); });
  }
  Work all_gather(const TensorView& data, Limit limit) override {
    return staged("all_gather", Kind::collective, data, Copies::both, limit,
                  [this](const TensorView& v, Deadline d) { return host_->all_gather(v, d); });
  }
  Work broadcast(const TensorView& data, int root, Limit limit) override {
    RONDO_CHECK(root >= 0 && root < size(), "root ", root, " of a group of ", size());
    return staged(
        "broadcast", Kind::collective, data, root == rank() ? Copies::there : Copies::back, limit,
        [this, root](const TensorView& v, Deadline d) { return host_->broadcast(v, root, d); });
  }
  Work barrier(Limit limit) override {
    return staged("barrier", Kind::collective, {nullptr, DType::u8, {0}}, Copies::both, limit,
                  [this](const TensorView&, Deadline d) { return host_->barrier(d); });
  }
  Work send(int peer, uint32_t tag, std::span<const std::byte> data, Limit limit) override {
    check_peer(peer);
    const TensorView view(const_cast<std::byte*>(data.data()), DType::u8,
                          {static_cast<int64_t>(data.size())});
    return staged("send", Kind::message, view, Copies::there, limit,
                  [this, peer, tag](const TensorView& v, Deadline d) {
                    return host_->send(peer, tag, bytes_of(v), d);
                  });
  }
  Work recv(int peer, uint32_t tag, std::span<std::byte> data, Limit limit) override {
    check_peer(peer);
    const TensorView view(data.data(), DType::u8, {static_cast<int64_t>(data.size())});
    return staged("recv", Kind::message, view, Copies::back, limit,
                  [this, peer, tag](const TensorView& v, Deadline d) {
                    return host_->recv(peer, tag, bytes_of(v), d);
                  });
  }

 private:
  using HostOperation = std::function<Work(const TensorView& staged, Deadline deadline)>;

  static std::span<std::byte> bytes_of(const TensorView& v) {
    return {static_cast<std::byte*>(v.data), v.bytes()};
  }

  // One after the other on the stream, so they share the memory.
  std::byte* staging(size_t bytes) {
    if (staging_.empty() || staging_.back().bytes() < bytes) {
      staging_.emplace_back(device(), bytes, "collectives by way of the host");
    }
    return staging_.back().data();
  }

  Work staged(const char* name, Kind kind, const TensorView& data, Copies copies, Limit limit,
              HostOperation operation) {
    const std::string what =
        data ? str(name, " of ", data.numel(), " ", name_of(data.dtype)) : std::string(name);
    // The host's operation knows best what it waits for, so it is the first to give up.
    const Deadline deadline = this->limit(limit);
    return issue(what, kind, deadline + std::chrono::milliseconds(250), [&] {
      TensorView host = data;
      host.data = staging(std::max<size_t>(data.bytes(), 1));
      auto step = std::make_shared<HostStep>(
          [host, deadline, operation = std::move(operation)] { return operation(host, deadline); });
      if (copies != Copies::back) device().copy(stream(), host.data, data.data, data.bytes());
      stream().enqueue([step] { step->begin(); });
      stream().enqueue_until([step] { return step->done(); });
      if (copies != Copies::there) device().copy(stream(), data.data, host.data, data.bytes());
      return Enqueued{[step] {
                        return Outcome{step->bytes(), step->error()};
                      },
                      [step] { step->cancel(); }};
    });
  }

  void break_off(const CommError& why, bool tell) noexcept override {
    if (tell) host_->abort(why.what());
  }
  void tell_others(const std::string& reason) noexcept override { host_->abort(reason); }

  std::unique_ptr<ProcessGroup> host_;
  std::vector<StagingBuffer> staging_;  // outgrown ones may still be in use
};

}  // namespace

std::unique_ptr<DeviceGroup> make_staged_group(Device& device, std::unique_ptr<ProcessGroup> host,
                                               CommClock::duration timeout) {
  RONDO_CHECK(device.kind() != DeviceKind::cuda, "a group by way of the host is not for GPUs");
  return std::make_unique<StagedGroup>(device, std::move(host), timeout);
}

}  // namespace rondo
