#include <algorithm>
#include <condition_variable>
#include <map>
#include <thread>
#include <utility>

#include "comm/work_state.h"
#include "tests/comm/decorators.h"

namespace rondo {
namespace {

struct Shared;

// A send that waits for its time, then for the inner one.
class HeldSend final : public detail::WorkState {
 public:
  HeldSend(std::shared_ptr<Shared> world, int own, int peer, Tag t,
           std::span<const std::byte> memory, Deadline deadline)
      : WorkState(str("rank ", own, ": send to rank ", peer, " (", describe_tag(t), ", ",
                      memory.size(), " bytes)"),
                  deadline),
        shared(std::move(world)),
        to(peer),
        tag(t),
        data(memory) {}

  void withdraw(CommErrorKind kind, const std::string& cause) override;

  // The inner operation is done.
  void settle() {
    if (const auto e = inner->error()) {
      fail(*e);
    } else {
      succeed(data.size());
    }
  }
  void break_off(CommErrorKind kind, const std::string& cause) {
    fail(CommError(kind, to, str(description(), ": ", cause)));
  }

  const std::shared_ptr<Shared> shared;
  const int to;
  const Tag tag;
  const std::span<const std::byte> data;
  std::shared_ptr<detail::WorkState> inner;  // guarded by Shared::mutex
  Work work;                                 // keeps the inner operation; used by the thread alone
};

struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  // By the time of handing on; equal times keep their order.
  std::multimap<Deadline, std::shared_ptr<HeldSend>> held;
  bool hurry = false, stop = false;
};

void HeldSend::withdraw(CommErrorKind kind, const std::string& cause) {
  std::unique_lock lock(shared->mutex);
  if (!inner) {
    const size_t erased =
        std::erase_if(shared->held, [&](const auto& entry) { return entry.second.get() == this; });
    if (erased > 0) {
      lock.unlock();
      break_off(kind, cause);
      return;
    }
    // Being handed on at this moment, or done.
    shared->changed.wait(lock, [&] { return inner != nullptr || done(); });
  }
  const auto below = inner;
  lock.unlock();
  if (below) below->withdraw(kind, cause);
  wait_until(Deadline::max());
}

class Throttled final : public Transport {
 public:
  Throttled(Transport& inner, LinkLimits limits)
      : inner_(inner), limits_(std::move(limits)), shared_(std::make_shared<Shared>()) {
    if (!limits_.cable) limits_.cable = std::make_shared<Cable>();
    RONDO_CHECK(limits_.bytes_per_second >= 0 && limits_.latency >= CommClock::duration::zero(),
                "a link of negative rate or latency");
    thread_ = std::thread([this] { hand_on(); });
  }
  ~Throttled() override;

  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int machine_of(int rank) const override { return inner_.machine_of(rank); }

  Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) override;
  Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) override {
    return inner_.recv(from, tag, data, deadline);
  }
  void abort(const std::string& reason) noexcept override {
    inner_.abort(reason);
    std::lock_guard lock(shared_->mutex);
    shared_->hurry = true;  // what is held fails as soon as it is handed on
    shared_->changed.notify_all();
  }

 private:
  void hand_on();

  Transport& inner_;
  LinkLimits limits_;
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

Throttled::~Throttled() {
  std::multimap<Deadline, std::shared_ptr<HeldSend>> held;
  {
    std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
    held.swap(shared_->held);
    shared_->changed.notify_all();
  }
  thread_.join();
  for (const auto& [time, op] : held) {
    op->break_off(CommErrorKind::aborted, "the link was taken down");
  }
  shared_->changed.notify_all();
}

Work Throttled::send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) {
  RONDO_CHECK(to >= 0 && to < world_size() && to != rank(), "a send to rank ", to);
  if (limits_.between_machines && machine_of(to) == machine_of(rank())) {
    return inner_.send(to, tag, data, deadline);
  }
  auto op = std::make_shared<HeldSend>(shared_, rank(), to, tag, data, deadline);
  std::chrono::duration<double> transfer{};
  if (limits_.bytes_per_second > 0) {
    transfer =
        std::chrono::duration<double>(static_cast<double>(data.size()) / limits_.bytes_per_second);
  }
  std::lock_guard lock(shared_->mutex);
  const Deadline arrived =
      limits_.cable->take(std::chrono::duration_cast<CommClock::duration>(transfer));
  shared_->held.emplace(arrived + limits_.latency, op);
  shared_->changed.notify_all();
  return Work(std::move(op));
}

void Throttled::hand_on() {
  std::vector<std::shared_ptr<HeldSend>> under_way;
  std::unique_lock lock(shared_->mutex);
  while (!shared_->stop) {
    std::erase_if(under_way, [](const auto& op) { return op->done(); });
    if (shared_->held.empty()) {
      shared_->changed.wait(lock);
      continue;
    }
    const auto first = shared_->held.begin();
    if (!shared_->hurry && CommClock::now() < first->first) {
      shared_->changed.wait_until(lock, Deadline(first->first));
      continue;
    }
    const std::shared_ptr<HeldSend> op = first->second;
    shared_->held.erase(first);
    lock.unlock();
    Work work = inner_.send(op->to, op->tag, op->data, op->deadline());
    const auto state = work.shared_state();
    op->work = std::move(work);
    lock.lock();
    op->inner = state;
    under_way.push_back(op);
    shared_->changed.notify_all();
    lock.unlock();
    state->on_done([op] { op->settle(); });
    lock.lock();
  }
  lock.unlock();
  // The inner operations still under way end here, and with them those that stand for them.
  for (const auto& op : under_way) op->work = Work();
}

}  // namespace

std::unique_ptr<Transport> make_throttled(Transport& inner, LinkLimits limits) {
  return std::make_unique<Throttled>(inner, std::move(limits));
}

}  // namespace rondo
